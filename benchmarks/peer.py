"""What the scripts of all peers share: arguments, clock, and the line that is printed. It runs on Python 3.7, which old peers need."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import workloads


def peak_memory_mb() -> float:
    """Return the most MB that were resident in this process; getrusage would begin with what the starting process had."""
    with open("/proc/self/status") as file:  # noqa: PTH123 - short, and old Pythons
        return int(file.read().split("VmHWM:")[1].split()[0]) / 1024


def arguments(doc: str, **switches: str) -> argparse.Namespace:
    """Read the command line and tell the libraries of mathematics how many threads they have.

    Args:
        doc: what --help says first.
        switches: further options that are on or off, with their help.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("workload", choices=workloads.NAMES)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--max-seconds", type=float, help="stop timing after so long; at least four steps")
    for name, text in switches.items():
        parser.add_argument("--" + name.replace("_", "-"), action="store_true", help=text)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    return args


def since_start() -> float:
    """Return seconds since this process was started, to a hundredth, as `pe bench` does; of its own time where nobody tells."""
    try:
        with open("/proc/self/stat", encoding="utf-8") as file:  # noqa: PTH123 - one line
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError, IndexError):
        return time.process_time()


def measure(name: str, args: argparse.Namespace, step: Callable[[], float]) -> None:
    """Time steps and print one JSON line with the keys of `pe bench --json`.

    Args:
        name: of the peer, with its version.
        args: those of `arguments`.
        step: does a whole training step and returns the loss before its update.
    """
    ready = since_start()
    begin = time.perf_counter()
    first = last = step()
    first_s = time.perf_counter() - begin
    for _ in range(args.warmup - 1):
        step()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < args.steps:
        begin = time.perf_counter()
        if args.max_seconds is not None and len(times) >= 4 and begin - start > args.max_seconds:
            break
        last = step()
        times.append((time.perf_counter() - begin) * 1e3)
    line = {
        "peer": name,
        "workload": args.workload,
        "batch_size": args.batch,
        "threads": args.threads,
        "steps": len(times),
        "ms_per_step": {"median": statistics.median(times), "min": min(times), "max": max(times)},
        "first_step_s": first_s,
        "import_s": ready,
        "peak_rss_mb": peak_memory_mb(),
        "loss_first": first,
        "loss_last": last,
    }
    print(json.dumps(line), flush=True)
