"""Measure every kind of op of the workloads on one thread, against what the machine could do.

Run `python benchmarks/ops.py [workload ...]`; without names all but the large ones. An op's limit is the longer of its operations at the
peak and its bytes at the triad, of arrays that together take about as many bytes as a call: what a cache holds comes faster than what
memory holds. Bytes count as the sizes of variables say, so that an op that touches a part of one, such as some rows of a table, may show
more than its limit.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import workloads
from common import aligned, machine, seconds, triad
from run import Own

#: Bytes of the three arrays of a triad: about what the first, second and third caches and memory hold.
SIZES = (24 << 10, 512 << 10, 8 << 20, 288 << 20)
#: An op's time is the least of so many profiles, each the mean of so many steps.
PROFILES, STEPS = 3, 20
#: What takes less than this share of a step is not printed.
LEAST = 0.002


def triads() -> dict[int, float]:
    """Return the bytes a millisecond of one thread's triad, by the bytes of its arrays."""
    found = {}
    for size in SIZES:
        arrays = [aligned((size // 12,), "float32") for _ in range(3)]
        found[size] = size / seconds(triad, "float32", *arrays, size // 12) / 1e3
    return found


def measure(own: Own, peak: float, rates: dict[int, float]) -> None:
    """Print the ops of a step of a workload, the longest first.

    Args:
        own: the workload.
        peak: operations a millisecond.
        rates: bytes a millisecond, by how many there are.
    """
    alone = ("-o", "executor.devices=1", "-o", "executor.num_threads=1")
    runs = [own.command("profile", "--top", "0", "--steps", str(STEPS), *alone)["ops"] for _ in range(PROFILES)]
    calls: dict[str, float] = defaultdict(float)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for one in runs[0]:
        key = f"{one['op']} {one['role']}"
        count, moved = (one["gflops"] or 0.0) * one["ms"] * 1e6, one["gbytes"] * one["ms"] * 1e6
        ms = min(o["ms"] for run in runs for o in run if all(o[k] == one[k] for k in ("op", "layer", "role")))
        each = moved / one["calls"]
        rate = next((rates[size] for size in SIZES if each <= 2 * size), rates[SIZES[-1]])
        calls[key] += one["calls"]
        sums[key] = [a + b for a, b in zip(sums[key], (ms, count, moved, max(count / peak, moved / rate)), strict=True)]
    total = sum(ms for ms, *_ in sums.values())
    print(f"\n{f'{own.name} {own.size}':<44}{'calls':>7}{'ms':>10}{'GFLOP/s':>10}{'GB/s':>8}   of the limit")
    for key, (ms, count, moved, limit) in sorted(sums.items(), key=lambda item: -item[1][0]):
        if ms >= LEAST * total:
            print(f"{key:<44}{calls[key]:7.0f}{ms:10.3f}{count / ms / 1e6:10.1f}{moved / ms / 1e6:8.1f}{limit / ms:12.0%}", flush=True)
    print(f"{'all':<44}{sum(calls.values()):7.0f}{total:10.3f}{'':18}{sum(limit for *_, limit in sums.values()) / total:12.0%}", flush=True)


def main(names: Sequence[str]) -> None:
    """Print the ops of the workloads that are named, or of all but the large ones."""
    if unknown := set(names) - set(workloads.NAMES):
        sys.exit(f"{', '.join(sorted(unknown))}: expected names out of {', '.join(workloads.NAMES)}")
    peak, rates = machine("float32") * 1e6, triads()
    print("triad, GB/s: " + ", ".join(f"{rate / 1e6:.0f} of {size >> 10} KiB" for size, rate in rates.items()))
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [n for n in workloads.NAMES if n not in workloads.LARGE]:
            for size in workloads.BATCHES[name]:
                measure(Own(name, size, STEPS, workloads.write(Path(folder), name, size)), peak, rates)


if __name__ == "__main__":
    main(sys.argv[1:])
