"""Measure how long `pe train` takes until its first step is done, with no compiled kernel and with all of them.

Run `python benchmarks/cold.py [CONFIG...]`; of digits, digits_cnn, gpt, people and resnet20_synthetic by default. It prints the wall time,
and the processor time of all processes, compilers too, in seconds: the command trains one step and ends. Caches are folders of their own,
which are removed afterwards. Each row is one run: the least of several is nearest to what pe itself costs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ("digits", "digits_cnn", "people", "gpt", "resnet20_synthetic")
#: Of Linux: processes whose parents have ended become children of this one, so that their time is counted.
PR_SET_CHILD_SUBREAPER = 36
#: Seconds after which a run is given up.
LIMIT = 600.0


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(config: Path, cache: Path) -> tuple[float, float]:
    """Return the wall and processor seconds of a command that trains one step."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "pe_cli", "train", str(config), "--max-steps", "1", "--quiet", "-o", f"output.dir={runs}"]
        environment = os.environ | {"PE_CACHE_DIR": str(cache)}
        before, begin = _processor(), time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
        wall = time.perf_counter() - begin
        if "step 1" not in done.stdout:
            raise SystemExit(f"{config}: {done.stdout}{done.stderr}")
        _wait_for_all()
        return wall, _processor() - before


def _wait_for_all() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main(configs: list[str]) -> None:
    """Print a row for each config."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    print(f"{'first step of':24}{'cold: wall':>12}{'processor':>11}{'kernels':>9}{'warm: wall':>12}{'processor':>11}   seconds")
    for name in configs or CONFIGS:
        path = Path(name) if name.endswith(".yaml") else ROOT / "configs" / f"{name}.yaml"
        with tempfile.TemporaryDirectory() as cache:
            cold = run(path.resolve(), Path(cache))
            kernels = len(list(Path(cache).glob("*.o")))
            warm = run(path.resolve(), Path(cache))
        print(f"{path.stem:24}{cold[0]:12.2f}{cold[1]:11.2f}{kernels:9}{warm[0]:12.2f}{warm[1]:11.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
