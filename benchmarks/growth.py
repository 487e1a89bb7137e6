"""How pe's cost grows with batch, width, depth and devices, and what checking a program costs by its layers.

Usage: python benchmarks/growth.py [--only batch,depth,layers] [--steps 50] [--repeats 3] [--write]

The curves are of a perceptron, varied in one of them at a time. All settings are measured once a repeat, in turn, so that a slow phase of
the machine falls on no setting alone. The layers are those of a chain that `pe check` reads, builds, differentiates, optimises and plans,
without running it.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import peers
import report

MARKS = ("<!-- growth: made by benchmarks/growth.py -->", "<!-- end of growth -->")
CHECK_MARKS = ("<!-- checks: made by benchmarks/growth.py -->", "<!-- end of checks -->")
MODEL = """\
name: growth
args: {width: 256, depth: 4}
feeds:
  x: {shape: ["${width}"]}
  y: {shape: [1], dtype: int64}
layers:
  hidden: {block: layer, input: x, width: "${width}", repeat: "${depth}"}
  logits: {type: fc, size: 10}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: y}
  loss: {type: mean, x: xent}
blocks:
  layer:
    args: {input: ~, width: ~}
    layers:
      out: {type: fc, input: "${input}", size: "${width}", act: relu}
fetches: [loss]
"""
CONFIG = """\
model: {file: model.yaml, args: {width: WIDTH, depth: DEPTH}}
data:
  train:
    reader: synthetic
    samples: BATCH
    fields: {x: {shape: [WIDTH]}, y: {shape: [1], dtype: int64, classes: 10}}
feeds: {x: x, y: y}
train:
  loss: loss
  epochs: 1
  batch_size: BATCH
  optimizer: {type: SGD, learning_rate: 0.01}
executor: {devices: DEVICES}
output: {checkpoint: ~}
"""
#: Layers of a block of the chain.
BLOCK = 50
CHAIN = f"""\
name: chain
feeds: {{x: {{shape: [8]}}, y: {{shape: [1]}}}}
blocks:
  part:
    args: {{input: ~}}
    layers:
      l0: {{type: fc, input: "${{input}}", size: 8, act: relu}}
{"".join(f"      l{i}: {{type: fc, size: 8, act: relu}}{chr(10)}" for i in range(1, BLOCK))}layers:
  hidden: {{block: part, input: x, repeat: REPEAT}}
  out: {{type: fc, size: 1}}
  cost: {{type: square_error_cost, input: out, label: y}}
  loss: {{type: mean, x: cost}}
fetches: [loss]
"""
CHAIN_CONFIG = """\
model: chain.yaml
data:
  train: {reader: synthetic, samples: 64, fields: {x: {shape: [8]}, y: {shape: [1]}}}
train: {loss: loss, epochs: 1, batch_size: 32, optimizer: {type: Adam, learning_rate: 0.01}}
"""
CHAINS = (250, 1000, 2000, 4000, 8000, 19000)
#: What all curves share but in what they vary.
BASE = {"batch": 256, "width": 256, "depth": 4, "devices": 1}


def curves(cores: int) -> dict[str, list[dict[str, int]]]:
    """Return the settings of each curve."""
    devices = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores]
    return {
        "batch": [BASE | {"batch": n} for n in (1, 4, 16, 64, 256, 1024, 4096)],
        "width": [BASE | {"width": n} for n in (32, 64, 128, 256, 512, 1024)],
        "depth": [BASE | {"depth": n} for n in (1, 2, 4, 8, 16, 32)],
        "devices": [BASE | {"batch": 1024, "devices": n} for n in devices],
    }


def bench(folder: Path, setting: dict[str, int], steps: int) -> dict:
    """Run `pe bench` on a setting."""
    text = CONFIG
    for key, value in setting.items():
        text = text.replace(key.upper(), str(value))
    (folder / "model.yaml").write_text(MODEL, encoding="utf-8")
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pe_cli.cli.main", "bench", str(folder / "config.yaml"), "--json"]
    return peers.run([*command, "--steps", str(steps), "--warmup", "5", "--max-seconds", "10"])


def check(folder: Path, layers: int) -> tuple[float, float]:
    """Run `pe check` on a chain; return its seconds and peak megabytes, of the whole process."""
    (folder / "chain.yaml").write_text(CHAIN.replace("REPEAT", str(layers // BLOCK)), encoding="utf-8")
    (folder / "check.yaml").write_text(CHAIN_CONFIG, encoding="utf-8")
    begin = time.monotonic()
    command = [sys.executable, "-m", "pe_cli.cli.main", "check", str(folder / "check.yaml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"pe check of {layers} layers ended with {process.returncode}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def check_lines(runs: list[list[tuple[float, float]]], chains: Sequence[int] = CHAINS) -> list[list[str]]:
    """Return the rows of the chains: the fastest run, the time of each layer, the peak."""
    quick = [min(seconds for seconds, _ in found) for found in runs]
    return [
        [f"{n:,}", f"{seconds:.1f}", f"{1000 * seconds / n:.2f}", f"{max(mb for _, mb in found):,.0f}"]
        for n, seconds, found in zip(chains, quick, runs, strict=True)
    ]


def work(setting: dict[str, int]) -> float:
    """Return the multiplications and additions of a step: forward, and twice as much backward, but for the gradient of the feed."""
    width, depth = setting["width"], setting["depth"]
    return 2.0 * setting["batch"] * (3 * depth * width * width + 3 * width * 10 - width * width)


def lines(varied: str, settings: list[dict[str, int]], runs: list[list[dict]]) -> list[list[str]]:
    """Return the rows of a curve: medians, fastest steps, how much more than the row before, the rate, memory and start."""
    rows, before = [], 0.0
    for setting, found in zip(settings, runs, strict=True):
        median = statistics.median(r["ms_per_step"]["median"] for r in found)
        quick = min(r["ms_per_step"]["min"] for r in found)
        rows.append([
            varied, str(setting[varied]), f"{median:.3f}", f"{quick:.3f}", f"{quick / before:.2f}" if before else "-",
            f"{work(setting) / quick / 1e6:.1f}", f"{max(r['peak_rss_mb'] for r in found):.0f}",
            f"{min(r['import_s'] + r['first_step_s'] for r in found):.2f}",
        ])  # fmt: skip
        before = quick
    return rows


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    every = curves(cores)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*every, "layers"]
    parser.add_argument("--only", default=",".join(names), help="curves; all by default")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/performance.md after every repeat"
    )
    args = parser.parse_args()
    only = args.only.split(",")
    if unknown := set(only) - set(names):
        parser.error(f"--only {','.join(sorted(unknown))}: expected names out of {', '.join(names)}")
    if args.repeats < 1 or args.steps < 1:
        parser.error("--repeats and --steps must be at least 1")
    every = {key: every[key] for key in only if key in every}
    machine = f"{report.processor()}, {cores} cores, Python {platform.python_version()}"
    if "layers" in only:
        chains(args.repeats, machine, write=args.write)
    if every:
        measure(every, args, machine)


def chains(repeats: int, machine: str, *, write: bool) -> None:
    """Check all chains and print the table; `write`: also into the page."""
    with tempfile.TemporaryDirectory() as folder:
        found = [[check(Path(folder), n) for _ in range(repeats)] for n in CHAINS]
    head = ("fc layers", "pe check, s", "ms per layer", "peak MB")
    made = f"{machine}\n\n{report.markdown(head, check_lines(found))}"
    if write:
        report.replace(report.PAGE, CHECK_MARKS, made)
    print(made)


def measure(every: dict[str, list[dict[str, int]]], args: argparse.Namespace, machine: str) -> None:
    """Measure curves and print the table, after every repeat also into the page where that is asked for."""
    runs: dict[str, list[list[dict]]] = {key: [[] for _ in settings] for key, settings in every.items()}
    head = ("varied", "is", "ms a step", "fastest", "times the row before", "GFLOP/s", "peak MB", "start, s")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.repeats):
            for key, settings in every.items():
                for found, setting in zip(runs[key], settings, strict=True):
                    found.append(bench(Path(folder), setting, args.steps))
            rows = [row for key, settings in every.items() for row in lines(key, settings, runs[key])]
            made = f"{machine}\n\n{report.markdown(head, rows)}"
            if args.write:
                report.replace(report.PAGE, MARKS, made)
    print(made)


if __name__ == "__main__":
    main()
