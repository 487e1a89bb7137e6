"""Commands that benchmarks/gpu.py runs beside itself, and what NVIDIA's profiler says of a step's kernels."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: What ncu is asked of each kernel: ns that it took, and how busy memory and multiprocessors were, in percent.
DURATION = "gpu__time_duration.sum"
METRICS = (DURATION, "dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__throughput.avg.pct_of_peak_sustained_elapsed")
#: How many of the slowest kernels are told.
SLOWEST = 3


def said(command: Sequence[str], left: float, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; where it takes longer than what is left, what it printed until then.

    Args:
        command: program and arguments.
        left: seconds.
        environment: variables that it has beside this process's.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True, **pipes) as child:
        try:
            return child.communicate(timeout=left)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # with all that it has started: a card is for the next stage
            return f"{child.communicate()[0]}\nended after {left:.0f} s"


def by_tool(name: str, arguments: Sequence[str], rehearse: bool, left: float) -> list[str]:
    """Return the lines that a tool of NVIDIA's prints; a rehearsal only prints its command."""
    tool = "echo" if rehearse else name
    if shutil.which(tool) is None:
        return [f"{name} is not there"]
    return said([tool, *arguments], left).splitlines()


def slowest(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the kernels that took most of the time, from what `ncu --csv` printed: launches, ns in all, means of the rest."""
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, dict[str, list[float]]] = {}
    for row in csv.DictReader(lines[begin:]):
        if row.get("Metric Value"):
            values = found.setdefault(row["Kernel Name"], {}).setdefault(row["Metric Name"], [])
            values.append(float(row["Metric Value"].replace(",", "")))
    told = [
        {
            "kernel": name,
            "launches": len(metrics.get(DURATION, ())),
            "ns": sum(metrics.get(DURATION, ())),
            **{metric: sum(values) / len(values) for metric, values in metrics.items() if metric != DURATION},
        }
        for name, metrics in found.items()
    ]
    return sorted(told, key=lambda row: -row["ns"])[:SLOWEST]
