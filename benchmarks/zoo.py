"""Time networks written for PaddlePaddle 1.8 under it and under pe, turn by turn, and print a Markdown table.

CASES is a folder with two modules: `cases`, whose CASES maps a name to a function and its options, and `feeds`, whose one(variable,
built, random, step) draws what a variable is fed. A function builds a network and returns a dict: loss or programs (pairs of a program
and its fetches), optimizer, batch, and what feeds.one reads. The options say where the network's own modules lie: tag, dir, path, cwd,
below CASES/models.

Each case is built once under each interpreter. Then both take turns of as many steps, so that what else the machine does hits both.
A figure is the median step of all turns, fed from arrays and fetched back. Where a network takes sequences, further columns are of as
many steps whose sequences have lengths that are drawn anew for each, from 2 to LONGEST.

A worker is this file with --worker: the original runs on Python 3.7, so it keeps to that language.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path

ABSENT = (  # what scripts import for data and pictures, and never call while a network is built
    "paddlehub", "wget", "pycocotools", "pycocotools.coco", "pycocotools.cocoeval", "h5py", "Cython", "PIL", "PIL.Image",
    "cv2", "matplotlib", "matplotlib.pyplot", "imageio",
)  # fmt: skip


def _stand_in(name):
    """Put an empty module where there is none of that name; what scripts call of it while they are imported does nothing."""
    try:
        __import__(name)
        return
    except ImportError:
        module = types.ModuleType(name)
    module.download = module.use = lambda *args, **more: None
    module.COCO = module.COCOeval = object
    sys.modules[name] = module
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)


class _Case:
    """A network that is built and has its first values, and the steps that it can do."""

    def __init__(self, folder, name):
        import numpy

        for old in ("int", "float", "bool", "object", "str"):
            if not hasattr(numpy, old):
                setattr(numpy, old, getattr(__builtins__, old, None) or __builtins__[old])
        for each in ABSENT:
            _stand_in(each)
        sys.path.insert(0, folder)
        import cases
        import feeds
        from paddle import fluid

        self.numpy, self.fluid, self.feeds = numpy, fluid, feeds
        build, options = cases.CASES[name]
        root = Path(folder, "models", options.get("tag", "v1.8.0"), options.get("dir") or "")
        sys.path[:0] = [str(root / each) for each in options.get("path", [""])]
        os.chdir(str(root / options.get("cwd", "")))
        sys.argv = ["train.py"]
        numpy.random.seed(0)  # noqa: NPY002 - networks that draw do so by it
        self.built = build()
        main = self.built.get("main") or fluid.default_main_program()
        startup = self.built.get("startup") or fluid.default_startup_program()
        self.programs = self.built.get("programs") or [(main, [self.built["loss"], *self.built.get("also", [])])]
        optimizer = self.built.get("optimizer", True)
        if not self.built.get("programs") and optimizer is not None:
            with fluid.program_guard(main, startup):
                (fluid.optimizer.SGD(0.01) if optimizer is True else optimizer()).minimize(self.built["loss"])
        self.executor = fluid.Executor(fluid.CPUPlace())
        for each in startup if isinstance(startup, list) else [startup]:
            self.executor.run(each)
        self.known = [{v.name for v in program.list_vars()} for program, _ in self.programs]

    def feed(self, step, longest=None):
        """What every program is fed in a step: arrays, or arrays with lengths, up to `longest` where it is said."""
        if longest is not None:
            self.built["maxlen"] = longest
        random = self.numpy.random.RandomState(100 + step)
        drawn = {}
        for program, _ in self.programs:
            for variable in program.global_block().vars.values():
                fed = getattr(variable, "is_data", False) and not variable.persistable
                if fed and variable.name not in drawn and variable.name not in self.built.get("skip", ()):
                    drawn[variable.name] = self.feeds.one(variable, self.built, random, step)
        for name, make in self.built.get("gens", {}).items():
            if name not in drawn:
                made = make(random, step)
                drawn[name] = made if isinstance(made, tuple) else (made, None)
        place = self.fluid.CPUPlace()
        return {n: self.fluid.create_lod_tensor(a, lengths, place) if lengths else a for n, (a, lengths) in drawn.items()}

    def step(self, fed):
        """Run every program once and return the seconds that it took."""
        begin = time.perf_counter()
        for (program, fetches), known in zip(self.programs, self.known):  # noqa: B905 - Python 3.7 has no strict
            loader = self.built.get("loader")
            if loader is not None:
                self._load(loader, fed)
                self.executor.run(program, fetch_list=fetches, return_numpy=False)
                loader.reset()
                continue
            self.executor.run(program, feed={n: v for n, v in fed.items() if n in known}, fetch_list=fetches, return_numpy=False)
        return time.perf_counter() - begin

    def _load(self, loader, fed):
        """Let a loader give one batch."""
        order = [each if isinstance(each, str) else each.name for each in self.built["feed_order"]]
        if hasattr(loader, "set_batch_generator"):
            loader.set_batch_generator(lambda: iter([[fed[n] for n in order]]), places=self.fluid.CPUPlace())
        else:
            loader.decorate_tensor_provider(lambda: iter([[fed[n] for n in order]]))
        loader.start()


def _work(folder, name, steps, longest):
    """Answer each line of the input with the seconds of as many steps: `same` feeds again, or `new` ones."""
    case = _Case(folder, name)
    first = case.feed(0)
    sequences = any(isinstance(v, case.fluid.LoDTensor) for v in first.values())
    for _ in range(3):
        case.step(first)
    print(json.dumps({"sequences": sequences}), flush=True)
    number = 1
    for line in sys.stdin:
        if line.strip() == "same":
            fed = [first] * steps
        else:
            fed = [case.feed(number + i, longest) for i in range(steps)]
            number += steps
        print(json.dumps([case.step(each) for each in fed]), flush=True)
    os._exit(0)  # the original's threads outlive it


class _Worker:
    """A process with one case; None in `error` as long as it answers."""

    def __init__(self, python, folder, name, steps, threads, longest):
        environment = dict(os.environ, CPU_NUM="1", GLOG_minloglevel="2", MKL_DEBUG_CPU_TYPE="5")
        for each in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "FLAGS_paddle_num_threads", "NUMBA_NUM_THREADS"):
            environment[each] = str(threads)
        command = [*python.split(), str(Path(__file__).resolve()), "--worker", name, "--steps", str(steps)]
        command += ["--longest", str(longest), folder]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.sequences = False
        said = self._answer()
        self.error = None if said else (self.process.communicate()[1].strip().splitlines() or ["it ended"])[-1]
        if said:
            self.sequences = said["sequences"]

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith(("[", "{")):  # scripts print things of their own
                return json.loads(line)
        return None

    def steps(self, kind):
        """Seconds of a turn of steps; none where the process has ended, as its error says then."""
        try:
            self.process.stdin.write(kind + "\n")
            self.process.stdin.flush()
            said = self._answer()
        except BrokenPipeError:
            said = None
        if said is None:
            self.error = (self.process.communicate()[1].strip().splitlines() or ["it ended"])[-1]
        return said or []

    def end(self):
        """End the process."""
        self.process.kill()
        if self.error is None:
            self.process.communicate()


def _row(name, agrees, workers, turns):
    """One line of the table, from two workers that take turns."""
    failed = [each.error for each in workers if each.error]
    if failed:
        return f"| {name} | {agrees} | {failed[0][:120].replace('|', '/')} |||||"
    cells = [name, agrees]
    for kind in ("same", "new"):
        if kind == "new" and not workers[0].sequences:
            cells += [""] * 3
            continue
        seconds = [[], []]
        for _ in range(turns):
            for mine, worker in zip(seconds, workers):  # noqa: B905 - Python 3.7 has no strict
                mine += worker.steps(kind) if worker.error is None else []
        if not all(seconds):
            cells += [next(each.error for each in workers if each.error)[:120].replace("|", "/"), "", ""]
            break
        middle = [statistics.median(each) * 1000 for each in seconds]
        cells += [f"{each:.3g}" for each in middle] + [f"{middle[0] / middle[1]:.2g}"]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", help="the folder with cases.py, feeds.py and models/")
    parser.add_argument("--original", help="command of a Python 3.7 with PaddlePaddle 1.8.5")
    parser.add_argument("--pe", default=sys.executable + " -m pe_cli run", help="command that runs a script with pe as paddle")
    parser.add_argument("--only", action="append", help="cases whose name has this in it")
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--longest", type=int, default=40, help="sequence of those that are drawn anew")
    parser.add_argument("--verdicts", help="a table separated by tabs whose first two columns are cases and how far their losses agree")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    args = parser.parse_args()
    folder = str(Path(args.cases).resolve())
    if args.list:
        sys.path.insert(0, folder)
        print("\n".join(__import__("cases").CASES))
        return
    if args.worker:
        _work(folder, args.worker, args.steps, args.longest)
    listing = [*args.pe.split(), str(Path(__file__).resolve()), "--list", folder]
    names = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    rows = [line.split("\t") for line in Path(args.verdicts).read_text().splitlines()] if args.verdicts else []
    agree = {row[0]: row[1] for row in rows}
    print("| network | losses | 1.8.5, ms | pe, ms | ratio | new lengths: 1.8.5, ms | pe, ms | ratio |\n" + "|---" * 8 + "|", flush=True)
    for name in names:
        if args.only and not any(each in name for each in args.only):
            continue
        workers = [_Worker(each, folder, name, args.steps, args.threads, args.longest) for each in (args.original, args.pe)]
        print(_row(name, agree.get(name, ""), workers, args.turns), flush=True)
        for each in workers:
            each.end()


if __name__ == "__main__":
    main()
