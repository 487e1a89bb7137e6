"""What only a GPU can tell, in one command of at most eight minutes; its JSON is written after each stage, so that nothing is lost.

Usage: python benchmarks/gpu.py [--out build/gpu.json] [--budget 480] [--only ceilings,speed] [--rehearse]

Stages: versions; ceilings (copies, launches, a product); losses (five steps of configs against the CPU); speed (pe bench with NVIDIA's
libraries and without, beside PyTorch, eager, compiled and with CUDA graphs); choices (libraries beside our kernels, call by call); cards
(two GPUs: copies, sums, a training); counters (ncu on a step); agreement (the tests of tests/cuda/device, on the card); sanitizer (some of
them under compute-sanitizer). A stage that fails says why in the JSON, and the next begins; what does not fit the budget is left out.
--rehearse runs all of it in minutes on a machine with no card: kernels run as PTX on the CPU, sizes are small, times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import workloads  # noqa: E402

from pe_cli.cli.main import run as pe  # noqa: E402
from pe_cli.devices import cuda_driver  # noqa: E402
from pe_cli.devices.cuda_calls import shape_of  # noqa: E402
from pe_cli.devices.cuda_libraries import choice, opened  # noqa: E402
from pe_cli.devices.cuda_protocol import Extent  # noqa: E402
from pe_cli.kernels.calls import Call  # noqa: E402
from pe_cli.kernels.cuda import cuda_kernel  # noqa: E402
from pe_cli.kernels.lang import Int, Ptr  # noqa: E402

#: Workloads whose speed is compared; those of large images last.
NAMES = ("mlp", "lenet", "resnet20", "lstm", "transformer", "ctr", "resnet50")
#: Column of ours -> `executor.libraries`; where no library is installed there is the second alone.
COLUMNS = {"libraries": "auto", "none": "none"}
#: Ways of PyTorch -> switches of torch_peer.py.
WAYS = {"eager": (), "compiled": ("--compile",), "graphed": ("--compile", "--graphs")}
#: Seconds that a stage needs at least: it is left out where less is left.
LEAST = 10.0
#: Bytes that one read and one write of a float32 move.
MOVED = 8


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


KEPT = Watched(choice.cache)


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
    found["libraries"] = opened.told("auto")
    for name in ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "torch", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    found["card"] = said(query, left).strip() if shutil.which(query[0]) else "nvidia-smi is not there"
    return found


@cuda_kernel
def copied(x: Ptr, out: Ptr, n: Int):
    for i in range(n):
        out[i] = x[i]


@stage
def ceilings(how: Settings, left: float) -> Any:
    """What copies, launches and a product of our own reach."""
    from pe_cli.ops.define.registry import discover

    discover()
    from pe_cli.ops.math.product_tiles_cuda import TILES, kernel_of

    driver = cuda_driver.only_driver()
    n, k = how.elements, how.side
    size = 4 * max(n, k * k)
    places = [Extent(driver.allocate(size), size) for _ in range(3)]
    table = Extent(driver.allocate(32), 32)
    host = np.zeros(n, np.float32)
    for place in places:
        driver.zero(place.address, size)
    driver.write(table.address, np.array([0, 1, 0, 0]))

    def seconds(kernel: Any, *args: Any, times: int) -> float:
        grid, block = shape_of(Call(kernel, args, "float32", "float32"))
        launch = driver.launcher(shape_built(kernel), grid, block, args)
        launch()
        driver.wait()
        begin = time.perf_counter()
        for _ in range(times):
            launch()
        driver.wait()
        return (time.perf_counter() - begin) / times

    product = (0, 0, k, k, k, places[0], k, places[1], k, places[2], 1.0, 0, places[2], 0, table, 1, k, 1, places[2], table, 0)
    times = 1 if how.rehearse else 20
    begin = time.perf_counter()
    driver.send(places[0].address, host)
    driver.wait()
    upload = time.perf_counter() - begin
    found = {
        "copy_GB_s": n * MOVED / seconds(copied, places[0], places[1], n, times=times) / 1e9,
        "launch_us": seconds(copied, places[0], places[1], 1, times=how.launches) * 1e6,
        "upload_GB_s": host.nbytes / upload / 1e9,
        "product_TFLOP_s": 2 * k**3 / seconds(kernel_of(TILES[0]), *product, times=times) / 1e12,
    }
    for place in (*places, table):
        driver.free(place.address)
    return found


def shape_built(kernel: Any) -> Any:
    """Return a kernel of float32, ready to be compiled."""
    from pe_cli.kernels.cuda import build

    return build(kernel, "float32", "float32")


@stage
def losses(how: Settings, left: float) -> Any:
    """Five steps of configs, a few samples each, against the CPU."""
    from tests.cuda.ptx.models import compare

    found, end = {}, time.monotonic() + left
    for name in how.configs:
        if time.monotonic() > end:
            found[name] = "left out"
            continue
        one = compare(ROOT / f"configs/{name}.yaml")
        found[name] = {"losses": one.losses, "weights": one.weights, "where": one.where, "fine": one.fine}
    return found


@stage
def speed(how: Settings, left: float) -> Any:
    """Milliseconds of a step, ours and PyTorch's, medians."""
    found, end = {}, time.monotonic() + left
    for name in how.names:
        size = how.batch or workloads.BATCHES[name][0]
        row: dict[str, Any] = {"batch": size}
        for column, libraries in COLUMNS.items() if opened.installed() else (("none", "none"),):
            if time.monotonic() < end:
                with contextlib.suppress(RuntimeError):
                    row[column] = trimmed(measured(name, size, how, libraries))
        for way, switches in WAYS.items():
            if time.monotonic() < end:
                row[way] = trimmed(by_torch(name, size, switches, how, end - time.monotonic()))
        found[name] = row
    return found


@stage
def choices(how: Settings, left: float) -> Any:
    """What libraries and our kernels took for each product and convolution of the stages before, in microseconds."""
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


def measured(name: str, size: int, how: Settings, libraries: str, count: int = 1) -> dict[str, Any]:
    """Return what `pe bench` prints with `executor.libraries` on so many devices; an error is under `error`."""
    folder = ROOT / "build/gpu"
    batch, values = workloads.write(folder, name, size)
    options = [
        "-o", "executor.place=cuda", "-o", f"executor.devices={count}", "-o", f"executor.libraries={libraries}",
        "-o", f"train.batch_size={size}", "-o", f"data.train={{reader: npz, file: '{batch}'}}",
        "--init", str(values), "--steps", str(how.steps), "--warmup", "1" if how.rehearse else "5",
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
    """ncu on the kernels of some steps: which are slow, and why."""
    bench = [sys.executable, "-m", "pe_cli", "bench", "configs/bench/resnet20.yaml", "-o", "executor.place=cuda", "--steps", "4"]
    metrics = "gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed"
    return by_tool("ncu", ["--csv", "--metrics", metrics, "--launch-skip", "600", "--launch-count", "300", *bench], how, left)


@stage
def agreement(how: Settings, left: float) -> Any:
    """The tests of ops and trainings on the device."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--no-header", "--tb=line", *how.tests]
    command += ["-n", "0" if how.rehearse else str(min(8, os.cpu_count() or 1))]  # most of it is compiling
    return said(command, left).splitlines()[-12:]


@stage
def sanitizer(how: Settings, left: float) -> Any:
    """Kernels that work by blocks under compute-sanitizer."""
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/cuda/device/test_rows.py"]
    return by_tool("compute-sanitizer", ["--tool", "racecheck", *tests], how, left)


def by_tool(name: str, arguments: list[str], how: Settings, left: float) -> Any:
    """Return the last lines of what a tool of NVIDIA's prints; a rehearsal only prints its command."""
    tool = "echo" if how.rehearse else name
    if shutil.which(tool) is None:
        return f"{name} is not there"
    return said([tool, *arguments], left).splitlines()[-400:]


def said(command: list[str], left: float) -> str:
    """Return what a command prints; where it takes longer than what is left, what it printed until then."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=left, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        return f"{text}\nended after {left:.0f} s"
    return done.stdout


@contextlib.contextmanager
def fake_device() -> Any:
    """Let the driver be one whose library runs kernels on this CPU, with libraries that compute by NumPy and PyTorch."""
    from tests.cuda.libraries.card import Kept
    from tests.cuda.libraries.collectives import Nccl
    from tests.cuda.libraries.dnn import Cudnn, Engine
    from tests.cuda.libraries.lt import RIGHT, CublasLt
    from tests.cuda.ptx.library import LearningDriver, Library

    below = Library([], memory=1 << 34, devices=2)
    drivers = [LearningDriver(below, i) for i in range(2)]
    made = {"cublasLt": CublasLt(below.enqueue, {RIGHT: 2.0}), "cudnn": Cudnn(below.enqueue, Engine(2.0)), "nccl": Nccl(below)}
    libraries = {name: opened.Installed("of the tests", library) for name, library in made.items()}
    held = cuda_driver.only_driver, cuda_driver.device_count, opened.installed, cuda_driver._other_driver
    cuda_driver.only_driver, cuda_driver.device_count = (lambda: drivers[0]), (lambda: 2)  # type: ignore[assignment]
    cuda_driver._other_driver = drivers.__getitem__  # type: ignore[assignment]
    KEPT.below = Kept()
    opened.installed = (lambda: libraries)  # type: ignore[assignment]
    try:
        yield
    finally:
        cuda_driver.only_driver, cuda_driver.device_count, opened.installed, cuda_driver._other_driver = held


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
            try:
                row["found"] = STAGES[name](how, end - begin)
            except Exception as error:  # noqa: BLE001 - the other stages are worth more than a clean end
                row["error"] = [*traceback.format_exception_only(error), *traceback.format_tb(error.__traceback__)[-3:]]
        row["seconds"] = round(time.monotonic() - begin, 1)
        found["stages"][name] = row
        part = out.with_suffix(".part")
        part.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
        part.replace(out)
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
    choice.cache = KEPT  # type: ignore[assignment]
    with fake_device() if args.rehearse else contextlib.nullcontext():
        found = run(REHEARSAL if args.rehearse else Settings(), args.out, args.budget, only)
    return int(any("error" in row for row in found["stages"].values()))


if __name__ == "__main__":
    sys.exit(main())
