"""What only a GPU can tell, in one command of at most eight minutes; its JSON is written after each stage, so that nothing is lost.

Usage: python benchmarks/gpu.py [--out build/gpu.json] [--budget 480] [--only ceilings,speed] [--rehearse]

Stages: versions; ceilings (copies, launches, graphs, a product); losses (five steps of configs in each precision against the CPU); speed
(pe bench with NVIDIA's libraries and without, launch by launch, and in each precision, beside PyTorch, eager, compiled, with CUDA graphs);
choices (libraries beside our kernels, call by call); cards (two GPUs: copies, sums, a training); counters (ncu on a step); agreement (the
tests of tests/cuda/device, on the card); sanitizer (some of them under compute-sanitizer). A stage that fails says why in the JSON, and the
next begins; what does not fit the budget is left out, and a stage that hangs for a minute longer ends all. --rehearse runs all of it in
minutes on a machine with no card: kernels run as PTX on the CPU, sizes are small, times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import workloads  # noqa: E402
from gpu_tools import METRICS, by_tool, said, slowest  # noqa: E402

from pe_cli.cli.main import run as pe  # noqa: E402
from pe_cli.devices import cuda_driver  # noqa: E402
from pe_cli.devices.cuda_libraries import loaded_libraries, measured_choice  # noqa: E402

#: Workloads whose speed is compared; those of large images last.
NAMES = ("mlp", "lenet", "resnet20", "lstm", "transformer", "ctr", "resnet50")
#: Column of ours -> `executor.libraries`; where no library is installed there is the second alone.
COLUMNS = {"libraries": "auto", "none": "none"}
#: Precisions, that of most bits first: all that it is compared with is measured in it, PyTorch's fastest way in the others.
PRECISIONS = ("float32", "tf32", "bf16")
#: Ways of PyTorch -> switches of torch_peer.py.
WAYS = {"eager": (), "compiled": ("--compile",), "graphed": ("--compile", "--graphs")}
#: Seconds that a stage needs at least: it is left out where less is left.
LEAST = 10.0
#: Seconds behind the budget after which a stage is taken to hang: a card that does not answer holds this process, too.
GRACE = 60.0


class Watched:
    """The cache of choices between libraries and our kernels, which remembers what passes.

    Attributes:
        found: key -> what is kept.
        below: the cache.
    """

    def __init__(self, below: Any) -> None:
        self.found: dict[str, Any] = {}
        self.below = below

    def read(self, key: str) -> bytes | None:
        """Return what is kept."""
        body: bytes | None = self.below.read(key)
        if body is not None:
            self.found[key] = {**json.loads(body), "algorithm": "library" if json.loads(body)["algorithm"] else "ours"}
        return body

    def store(self, key: str, body: bytes) -> None:
        """Keep something."""
        self.below.store(key, body)


KEPT = Watched(measured_choice.cache)


@dataclass(frozen=True)
class Settings:
    """How large everything is.

    Args:
        rehearse: whether the device is the test device, and PyTorch runs on the CPU.
        elements: of a copy.
        side: of the matrices of a product.
        launches: that are timed.
        steps: that are timed.
        names: workloads.
        batch: samples of a step; 0 for the first size of `workloads.BATCHES`.
        configs: whose losses are compared with the CPU's.
        tests: of tests/cuda/device.
    """

    rehearse: bool = False
    elements: int = 1 << 26
    side: int = 4096
    launches: int = 1000
    steps: int = 50
    names: tuple[str, ...] = NAMES
    batch: int = 0
    configs: tuple[str, ...] = ("digits", "digits_cnn", "bert", "gpt", "ratings", "bench/mlp", "bench/lenet", "bench/resnet20")
    tests: tuple[str, ...] = ("tests/cuda/device",)


REHEARSAL = Settings(
    True, elements=1 << 10, side=32, launches=3, steps=1, names=("mlp",), batch=2, configs=("iris",),
    tests=("tests/cuda/device/test_rows.py",),
)  # fmt: skip
#: Stage -> what it does with the settings and the seconds that are left; gives what the JSON says.
STAGES: dict[str, Callable[[Settings, float], Any]] = {}


def stage(fn: Callable[[Settings, float], Any]) -> Callable[[Settings, float], Any]:
    """Add a stage, by the function's name."""
    STAGES[fn.__name__] = fn
    return fn


@stage
def versions(how: Settings, left: float) -> Any:
    """The card, and what drives it."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"capability": cuda_driver.only_driver().capability, "devices": cuda_driver.device_count()}
    found["libraries"] = loaded_libraries.told("auto")
    for name in ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "torch", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    found["card"] = said(query, left).strip() if shutil.which(query[0]) else "nvidia-smi is not there"
    return found


@stage
def ceilings(how: Settings, left: float) -> Any:
    """What copies, launches, graphs and a product of our own reach."""
    from gpu_ceilings import measured_ceilings

    few = how.rehearse
    return measured_ceilings(how.elements, how.side, how.launches, times=1 if few else 20, rounds=1 if few else 50)


@stage
def losses(how: Settings, left: float) -> Any:
    """Five steps of configs in each precision, a few samples each, against the CPU's, each from its state."""
    from tests.cuda.ptx.models import compare

    found: dict[str, Any] = {}
    end = time.monotonic() + left
    for precision, name in itertools.product(PRECISIONS, how.configs):
        row = found.setdefault(name, {})
        if time.monotonic() > end:
            row[precision] = "left out"
            continue
        one = compare(ROOT / f"configs/{name}.yaml", precision)
        worst = one.worst
        row[precision] = {"losses": one.losses, "worst": worst.relative, "where": worst.name, "allowed": worst.share, "fine": one.fine}
    return found


@stage
def speed(how: Settings, left: float) -> Any:
    """Milliseconds of a step, ours and PyTorch's, medians."""
    found: dict[str, Any] = {}
    end = time.monotonic() + left
    for precision, name in itertools.product(PRECISIONS, how.names):
        size = how.batch or workloads.BATCHES[name][0]
        usual = precision == PRECISIONS[0]
        row = found.setdefault(precision, {}).setdefault(name, {"batch": size})
        for column, libraries in COLUMNS.items() if loaded_libraries.installed() else (("none", "none"),):
            if time.monotonic() < end:
                row[column] = trimmed(measured(name, size, how, libraries, precision=precision))
        if usual and time.monotonic() < end:
            with uncaptured():
                row["launch by launch"] = trimmed(measured(name, size, how, "none"))
        for way, switches in WAYS.items() if usual else [("graphed", WAYS["graphed"])]:
            if time.monotonic() < end:
                switches = (*switches, *(() if usual else (f"--{precision}",)))
                row[way] = trimmed(by_torch(name, size, switches, how, end - time.monotonic()))
    return found


@contextlib.contextmanager
def uncaptured() -> Any:
    """Let steps launch one by one what is a graph elsewhere."""
    driver: Any = cuda_driver.only_driver()

    def one_by_one(launches: Any, waits: Any) -> Callable[[], None]:
        def run() -> None:
            for launch in launches:
                launch()

        return run

    driver.captured = one_by_one
    try:
        yield
    finally:
        del driver.captured


@stage
def choices(how: Settings, left: float) -> Any:
    """What libraries and our kernels took for each product, convolution and attention of the stages before, in microseconds."""
    return list(KEPT.found.values())


@stage
def cards(how: Settings, left: float) -> Any:
    """Two GPUs, where there are two: copies, sums, and the last workload on both beside one."""
    from gpu_cards import measured_cards

    name = how.names[-1]
    size = how.batch or workloads.BATCHES[name][0]
    sizes = [how.elements >> 8, how.elements >> 2]
    times = 1 if how.rehearse else 20
    return measured_cards(sizes, times, name, lambda name, count, libraries: trimmed(measured(name, size, how, libraries, count)))


def measured(name: str, size: int, how: Settings, libraries: str, count: int = 1, precision: str = "float32") -> dict[str, Any]:
    """Return what `pe bench` prints with `executor.libraries` on so many devices; an error is under `error`."""
    folder = ROOT / "build/gpu"
    batch, values = workloads.write(folder, name, size)
    options = [
        "-o", "executor.place=cuda", "-o", f"executor.devices={count}", "-o", f"executor.libraries={libraries}",
        "-o", f"executor.precision={precision}",
        "-o", f"train.batch_size={size}", "-o", f"data.train={{reader: npz, file: '{batch}'}}",
        "--init", str(values), "-o", "train.init.layout=paddle", "--steps", str(how.steps), "--warmup", "1" if how.rehearse else "5",
    ]  # fmt: skip
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = pe(["bench", str(ROOT / f"configs/bench/{name}.yaml"), "--json", *options])
    return json.loads(out.getvalue()) if code == 0 else {"error": err.getvalue().strip()[-400:]}


def by_torch(name: str, size: int, switches: tuple[str, ...], how: Settings, left: float) -> dict[str, Any]:
    """Return what the peer prints; an error is under `error`."""
    place = [] if how.rehearse else ["--cuda"]
    command = [
        sys.executable, str(ROOT / "benchmarks/torch_peer.py"), name, "--batch", str(size), "--steps", str(max(4, how.steps)),
        "--warmup", "3", *place, *([] if how.rehearse else switches),
    ]  # fmt: skip
    text = said(command, left)
    with contextlib.suppress(ValueError, IndexError):
        return dict(json.loads(text.splitlines()[-1]))
    return {"error": text.strip()[-400:]}


def trimmed(found: dict[str, Any]) -> dict[str, Any]:
    """Return of a result what the table needs."""
    return {k: found[k] for k in ("ms_per_step", "first_step_s", "loss_first", "loss_last", "error") if k in found}


@stage
def counters(how: Settings, left: float) -> Any:
    """ncu on the kernels of some steps: the slowest three, and why they are slow."""
    bench = [sys.executable, "-m", "pe_cli", "bench", "configs/bench/resnet20.yaml", "-o", "executor.place=cuda", "--steps", "4"]
    bench += ["-o", "executor.libraries=none"]  # what is measured before the first step would be launches, too
    about = ["--csv", "--metrics", ",".join(METRICS), "--launch-skip", "600", "--launch-count", "300"]
    lines = by_tool("ncu", [*about, *bench], how.rehearse, left)
    return {"slowest": slowest(lines), "lines": lines[-400:]}


@stage
def agreement(how: Settings, left: float) -> Any:
    """The tests of ops and trainings on the device: all samples, as many as the time allows."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--no-header", "--tb=line", *how.tests]
    command += ["-n", "0" if how.rehearse else str(min(8, os.cpu_count() or 1))]  # most of it is compiling
    return said(command, left, {} if how.rehearse else {"PE_WHOLE": "1"}).splitlines()[-12:]


@stage
def sanitizer(how: Settings, left: float) -> Any:
    """Kernels that work by blocks under compute-sanitizer."""
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/cuda/device/test_rows.py"]
    return by_tool("compute-sanitizer", ["--tool", "racecheck", *tests], how.rehearse, left)[-400:]


@contextlib.contextmanager
def fake_device() -> Any:
    """Let the driver be one whose library runs kernels on this CPU, with libraries that compute by NumPy and PyTorch."""
    from tests.cuda.libraries.card import Kept
    from tests.cuda.libraries.collectives import Nccl
    from tests.cuda.libraries.cublaslt import RIGHT, CublasLt
    from tests.cuda.libraries.cudnn import Cudnn, Engine
    from tests.cuda.ptx.library import LearningDriver, Library

    below = Library([], memory=1 << 34, devices=2)
    drivers = [LearningDriver(below, i) for i in range(2)]
    made = {"cublasLt": CublasLt(below.enqueue, {RIGHT: 2.0}, None), "cudnn": Cudnn(below.enqueue, Engine(2.0)), "nccl": Nccl(below)}
    libraries = {name: loaded_libraries.Installed("of the tests", library) for name, library in made.items()}
    held = cuda_driver.only_driver, cuda_driver.device_count, loaded_libraries.installed, cuda_driver._other_driver
    cuda_driver.only_driver, cuda_driver.device_count = (lambda: drivers[0]), (lambda: 2)  # type: ignore[assignment]
    cuda_driver._other_driver = drivers.__getitem__  # type: ignore[assignment]
    KEPT.below = Kept()
    loaded_libraries.installed = (lambda: libraries)  # type: ignore[assignment]
    try:
        yield
    finally:
        cuda_driver.only_driver, cuda_driver.device_count, loaded_libraries.installed, cuda_driver._other_driver = held


def keep(found: dict[str, Any], name: str, row: dict[str, Any], out: Path) -> None:
    """Write what there is, with the row of a stage."""
    found["stages"][name] = row
    part = out.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    part.replace(out)


def hung(found: dict[str, Any], name: str, row: dict[str, Any], out: Path) -> None:
    """End this process, which waits for a card that does not answer, and leave what there is."""
    threads = [line for frame in sys._current_frames().values() for line in traceback.format_stack(frame)[-3:]]
    keep(found, name, {**row, "error": ["it hangs", *threads]}, out)
    print(f"{name}: hangs", flush=True)
    os._exit(1)


def run(how: Settings, out: Path, budget: float, only: list[str]) -> dict[str, Any]:
    """Do the stages and write what they give after each.

    Args:
        how: sizes.
        out: the JSON.
        budget: seconds for all.
        only: names of stages; all where there is none.
    """
    end = time.monotonic() + budget
    found: dict[str, Any] = {"rehearsal": how.rehearse, "stages": {}}
    out.parent.mkdir(parents=True, exist_ok=True)
    for name in only or STAGES:
        begin = time.monotonic()
        row: dict[str, Any] = {}
        if end - begin < LEAST:
            row["skipped"] = f"{max(0.0, end - begin):.0f} s were left"
        else:
            watch = threading.Timer(end - begin + GRACE, hung, (found, name, row, out))
            watch.daemon = True
            watch.start()
            try:
                row["found"] = STAGES[name](how, end - begin)
            except Exception as error:  # noqa: BLE001 - the other stages are worth more than a clean end
                row["error"] = [*traceback.format_exception_only(error), *traceback.format_tb(error.__traceback__)[-3:]]
            watch.cancel()
        row["seconds"] = round(time.monotonic() - begin, 1)
        keep(found, name, row, out)
        print(f"{name}: {row['seconds']} s{' failed' * ('error' in row)}{' skipped' * ('skipped' in row)}", flush=True)
    return found


def main() -> int:
    """Read the command line; return 1 where a stage failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build/gpu.json")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds for all stages")
    parser.add_argument("--only", default="", help=f"stages, separated by commas: {','.join(STAGES)}")
    parser.add_argument("--rehearse", action="store_true", help="on this CPU, with small sizes")
    args = parser.parse_args()
    only = [name for name in args.only.split(",") if name]
    if unknown := set(only) - set(STAGES):
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    if not args.rehearse and not cuda_driver.device_count():
        parser.error(f"{cuda_driver.why_none()}; --rehearse needs none")
    measured_choice.cache = KEPT  # type: ignore[assignment]
    with fake_device() if args.rehearse else contextlib.nullcontext():
        found = run(REHEARSAL if args.rehearse else Settings(), args.out, args.budget, only)
    return int(any("error" in row for row in found["stages"].values()))


if __name__ == "__main__":
    sys.exit(main())
