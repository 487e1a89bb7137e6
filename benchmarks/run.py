"""Run pe and its peers on the workloads, check that their losses agree, and write docs/performance.md's table.

Usage: python benchmarks/run.py [--only mlp,lenet] [--peers torch,jax] [--python jax=PATH] [--repeats 7] [--write] [--resume]

The first repeat runs every way of every peer; later ones pe and the two best ways, in turn. Rows are kept in
build/benchmarks.json as they come, so that --resume can go on where a run was ended.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import peers
import report
import workloads
from peers import RunError, Way

#: Most by which a loss may differ, as a share of the first: near 0 losses have few digits in common, and Adam's epsilon stands
#: elsewhere in PyTorch.
LIMITS = {"loss_first": 1e-4, "loss_last": 1e-2}
#: Where several devices each normalise their own part of a batch: of pe on all devices against pe on one.
SPLIT = {key: {"loss_first": 1e-2, "loss_last": 1e-1} for key in ("resnet20", *workloads.LARGE)}
#: Timed steps of short ones, times --steps.
LONGER = {"mlp": 4, "branches": 4, "chain": 20}
PE = [sys.executable, "-m", "pe_cli.cli.main"]


@dataclass
class Own:
    """Runs of pe on one workload; those of other lengths judge peers that stopped early, and are made when one asks."""

    name: str
    size: int
    steps: int
    files: tuple[Path, Path]
    by_length: dict[int, list[dict]] = field(default_factory=dict)

    def run(self, steps: int, *extra: str) -> dict:
        # Statistics of norms are not in the file.
        given = ["--init", str(self.files[1]), "-o", "train.init.layout=paddle", "-o", "train.init.strict=false"]
        init = [] if self.name == "chain" else given
        return self.command("bench", "--warmup", "5", "--steps", str(steps), *init, *extra)

    def command(self, name: str, *options: str) -> dict:
        """Run a command of pe on this workload and return what it prints."""
        evaluates = self.name == "chain"
        data = f"data.{'eval' if evaluates else 'train'}={{reader: npz, file: '{self.files[0]}'}}"
        batch = [] if evaluates else ["-o", f"train.batch_size={self.size}"]
        return peers.run([*PE, name, f"configs/bench/{self.name}.yaml", "--json", "-o", data, *batch, *options])

    def all_devices(self) -> dict:
        return self.run(self.steps)

    def one_device(self) -> dict:
        return self.run(self.steps, "-o", "executor.devices=1")

    def needs(self) -> list[tuple[float, float]]:
        """Return for every op of a step how many multiplications and additions it counts, and how many bytes it reads and writes."""
        found = self.command("profile", "--top", "0", "--steps", "1", "-o", "executor.devices=1")
        return [((op["gflops"] or 0) * op["ms"] * 1e6, op["gbytes"] * op["ms"] * 1e6) for op in found["ops"]]

    def judges(self, steps: int) -> list[dict]:
        """Return runs of so many steps, on one device and on all: a peer that splits its batch agrees with the second."""
        if steps not in self.by_length:
            self.by_length[steps] = [self.run(steps, "-o", "executor.devices=1"), self.run(steps)]
        return self.by_length[steps]


def disagreement(found: dict, judges: list[dict], limits: dict[str, float]) -> str:
    """Return how the losses of a run differ from those of pe; nothing when they agree with one of its runs."""
    for judge in judges:
        scale = abs(judge["loss_first"])
        differ = [k for k, most in limits.items() if not abs(found[k] - judge[k]) <= most * scale]  # NaN differs
        if not differ:
            return ""
    return ", ".join(f"{k} is {found[k]:.6g}, and {' or '.join(f'{j[k]:.6g}' for j in judges)} with pe" for k in differ)


def middle(runs: list[dict]) -> float:
    """Return the median over runs of the median step, ms."""
    return statistics.median(r["ms_per_step"]["median"] for r in runs)


def quickest(runs: list[dict]) -> float:
    """Return the fastest step of all runs, ms."""
    return min(r["ms_per_step"]["min"] for r in runs)


def contenders(theirs: dict[Way, list[dict]]) -> list[Way]:
    """Return the best two ways so far: the least median, and of the others the fastest step, which noise hides less."""
    first = min(theirs, key=lambda w: middle(theirs[w]))
    return [first, *sorted((w for w in theirs if w != first), key=lambda w: quickest(theirs[w]))[:1]]


def measure(own: Own, ways: list[Way], repeats: int, pythons: dict[str, str], seconds: float) -> tuple:
    """Run pe and peers in turn; return the runs of pe on all devices and on one, those of the ways, and why ways are left out."""
    mine, one = [own.all_devices()], [own.one_device()]
    if differ := disagreement(mine[0], one, SPLIT.get(own.name, LIMITS)):
        raise RunError(f"{own.name} {own.size}: pe on all devices and on one: {differ}")
    own.by_length[own.steps] = [one[0], mine[0]]
    theirs: dict[Way, list[dict]] = {}
    left_out: dict[str, str] = {}
    for repeat in range(repeats):
        for place, way in enumerate(ways if repeat == 0 else contenders(theirs)):
            if repeat > 0:
                (one if place else mine).append(own.one_device() if place else own.all_devices())
            try:
                found = peers.measure(way, pythons[way.peer.key], own.name, own.size, own.steps, seconds)
                if differ := disagreement(found, own.judges(found["steps"]), LIMITS):
                    raise RunError(differ)
            except RunError as problem:
                left_out[way.label] = str(problem)
                theirs.pop(way, None)
                print(f"{own.name} {own.size}: left out: {way.label}: {problem}", file=sys.stderr, flush=True)
                continue
            theirs.setdefault(way, []).append(found)
        if not theirs:
            raise RunError(f"{own.name} {own.size}: no peer ran and agreed with pe")
    return mine, one, theirs, left_out


def compare(own: Own, ways: list[Way], args: argparse.Namespace, pythons: dict[str, str]) -> dict:
    """Measure a workload and return its row."""
    mine, one, theirs, left_out = measure(own, ways, args.repeats, pythons, args.max_seconds)
    every = [r for runs in theirs.values() for r in runs]
    best = min(theirs, key=lambda w: middle(theirs[w]))
    row = {
        "name": own.name,
        "size": own.size,
        "ours": middle(mine),
        "ours_quiet": quickest(mine),
        "one": middle(one),
        "theirs": middle(theirs[best]),
        "theirs_quiet": quickest(every),
        "best": best.label,
        "rss": min(r["peak_rss_mb"] for r in mine),  # one of them may have compiled kernels
        "peer_rss": min(r["peak_rss_mb"] for r in every),
        "start": min(r["import_s"] + r["first_step_s"] for r in mine),
        "peer_start": min(r["import_s"] + r["first_step_s"] for r in every),
        "operations": operations(own.name, own.size),
        "needs": own.needs(),
        "peak": peak(),
        "stream": stream(),
        "left_out": left_out,
        "runs": {w.label: [r["ms_per_step"] for r in runs] for w, runs in theirs.items()},
    }
    row["runs"] |= {"pe": [r["ms_per_step"] for r in mine], "pe, one device": [r["ms_per_step"] for r in one]}
    ratios = f"ratio {row['theirs'] / row['ours']:.2f}  quiet {row['theirs_quiet'] / row['ours_quiet']:.2f}"
    pe = f"pe {row['ours']:8.3f} ms  1 device {row['one']:8.3f} ms"
    print(f"{own.name:11} {own.size:5}  {pe}  best peer {row['theirs']:8.3f} ms ({row['best']})  {ratios}", flush=True)
    return row


def peak() -> float:
    """Return what one thread's multiply-adds reach at most at this moment, GFLOP/s."""
    import common

    with contextlib.redirect_stdout(io.StringIO()):
        return common.machine("float32")


def stream() -> float:
    """Return what all cores together read and write at this moment, GB/s."""
    import memory

    return max(memory.on_all_cores("triad", len(os.sched_getaffinity(0))))


def operations(name: str, size: int) -> float:
    """Return the multiplications and additions of the products, convolutions and recurrences of a step; 0 where it has hardly any."""
    from pe_cli.build.build import load_and_build
    from pe_cli.execute.diagnostics.estimate import batch_types
    from pe_cli.execute.lowering.flop_count import operations as count
    from pe_cli.execute.lowering.types import concrete_types
    from pe_cli.graph.lod_resolution import resolve

    _, built = load_and_build(peers.ROOT / "configs" / "bench" / f"{name}.yaml", ())
    sequences = resolve(built.train or built.eval)
    types = concrete_types(sequences.program, batch_types(sequences, [size])[0])
    found = sum(count(op, types.__getitem__) or 0 for op in sequences.program.global_block().ops)
    return float(found) if found > 1e6 else 0.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ",".join(p.key for p in peers.PEERS)
    parser.add_argument("--only", default=",".join(workloads.NAMES), help="workloads; all by default")
    parser.add_argument("--peers", default=every, help=f"out of {every}, the default; absent ones are named")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH",
                        help=f"the interpreter that has a peer; also pairs in the variable {peers.VARIABLE}")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=50, help="timed steps a run; short steps are repeated more often")
    parser.add_argument("--max-seconds", type=float, default=15, help="of timing a peer's run; at least four steps")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which needs a C++ compiler")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md after every row")
    parser.add_argument("--resume", action="store_true", help="keep the rows of a run that was ended")
    args = parser.parse_args()
    if unknown := set(args.only.split(",")) - set(workloads.NAMES):
        parser.error(f"--only {','.join(sorted(unknown))}: expected names out of {', '.join(workloads.NAMES)}")
    if args.repeats < 1 or args.steps < 4:
        parser.error("--repeats must be at least 1 and --steps at least 4")
    return args


def main() -> None:
    args = arguments()
    pythons = peers.interpreters(args.python)
    versions, absent = peers.installed(args.peers.split(","), pythons)
    for name in absent:
        print(f"absent: {name} (--python NAME=PATH tells which interpreter has it)", flush=True)
    if not versions:
        sys.exit("no peer is installed; hint: make bench installs PyTorch into .venv")
    cores, compiler = len(os.sched_getaffinity(0)), any(map(shutil.which, ("c++", "g++", "clang++")))
    if "torch" in versions and not compiler and not args.no_compile:
        print("absent: a C++ compiler, so PyTorch is not compiled", flush=True)
    using = [p for p in peers.PEERS if p.key in versions]
    named = {p.name: versions[p.key] for p in using}
    asked = [(name, size) for name in args.only.split(",") for size in workloads.BATCHES[name]]
    about = {"processor": report.processor(), "cores": cores, "python": platform.python_version(), "peers": named}
    state = report.State(about | {"absent": absent, "steps": args.steps, "repeats": args.repeats}, len(asked))
    if args.resume:
        state.resume()
    failed = any(row["left_out"] for row in state.rows)
    with tempfile.TemporaryDirectory() as folder:
        for name, size in asked:
            if state.has(name, size):
                continue
            every = [w for p in using for w in peers.ways(p, name, cores, compiler and not args.no_compile)]
            steps = max(4, args.steps // 8) if name in workloads.LARGE else args.steps * LONGER.get(name, 1)
            try:
                own = Own(name, size, steps, workloads.write(Path(folder), name, size))
                row = compare(own, every, args, pythons)
            except RunError as problem:
                print(f"no row: {problem}", file=sys.stderr, flush=True)
                failed = True
                continue
            failed = failed or bool(row["left_out"])
            state.add(row)
            if args.write:
                state.write()
    if args.write:
        state.write()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
