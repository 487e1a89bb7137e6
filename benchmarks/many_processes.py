"""Measure what a step and a start cost one process among up to 10,000, whose peers are made up and answer at once.

Usage: python benchmarks/many_processes.py [--sizes 2,64,1000,10000] [--steps 300] [--write]

One real process trains; what it would send to others is counted; messages come back as if all had said the same. So the times are those of
its own work, without any network: what is seen to grow with the number of processes, grows in pe. Each size is measured in a process of
its own. Messages and bytes are those of the busiest process, by the tree of `collectives/tree_reduce.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import report

PAGE = report.ROOT / "docs" / "scaling.md"
MARKS = ("<!-- many: made by benchmarks/many_processes.py -->", "<!-- end of many -->")
#: Samples of each process in a step, batches in an epoch, and steps before the first that counts.
SAMPLES, BATCHES, WARM = 32, 4, 20
#: Bytes before each message of a block of several.
FRAME = 12
MODELS = {
    "dense": """\
name: dense
feeds: {x: {shape: [64]}, y: {shape: [1], dtype: int64}}
layers:
  hidden: {type: fc, input: x, size: 64, act: relu}
  logits: {type: fc, input: hidden, size: 10}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: y}
  loss: {type: mean, x: xent}
fetches: [loss]
""",
    "sequences": """\
name: sequences
feeds: {x: {shape: [1], dtype: int64, lod_level: 1}, y: {shape: [1], dtype: int64}}
layers:
  rows: {type: embedding, input: x, size: [100, 64]}
  pooled: {type: sequence_pool, input: rows, pool_type: sum}
  logits: {type: fc, input: pooled, size: 10}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: y}
  loss: {type: mean, x: xent}
fetches: [loss]
""",
}
FIELDS = {"dense": "x: {shape: [64]}", "sequences": "x: {shape: [1], dtype: int64, classes: 100, lengths: [1, 30]}"}
CONFIG = """\
model: model.yaml
data:
  train: {reader: synthetic, samples: SAMPLES, fields: {FIELDS, y: {shape: [1], dtype: int64, classes: 10}}}
train: {loss: loss, epochs: EPOCHS, batch_size: BATCH, optimizer: {type: SGD, learning_rate: 0.01}}
executor: {devices: 1, processes: auto, seed: 1}
output: {dir: runs, checkpoint: ~}
"""


class Done:
    """A sum that is there."""

    spans: tuple[tuple[int, int], ...] = ()

    def wait(self) -> None:
        """Return."""


class MadeUpPeers:
    """A `Summing` over processes that say what this one says, and have nothing to add.

    Attributes:
        messages, nbytes: that this process has sent to others since the start.
        stepped: seconds of the clock at each small sum, of which a step has one.
    """

    doing = advice = ""

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size
        self.messages = self.nbytes = 0
        self.stepped: list[tuple[float, int, int]] = []
        self._levels = size.bit_length() - 1
        self.reserve = self.reserve_parts = lambda nbytes: None

    def gather(self, message: bytes) -> list[bytes]:
        """Return the message of all."""
        self._send((len(message) + FRAME) * (self.size - 1))
        return [message] * self.size

    def total(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of a small array, to which the others add nothing."""
        self._send(values.nbytes * self._levels)
        self.stepped.append((time.perf_counter(), self.messages, self.nbytes))
        return values.copy()

    def scan(self, values: np.ndarray, join: object) -> tuple[np.ndarray, np.ndarray]:
        """Return what is before the first process, which is nothing, and all, of which each has as much as this one."""
        self._send((values.nbytes + FRAME) * self._levels)
        return np.zeros_like(values), values if join is np.maximum else values * self.size

    def begin(self, values: np.ndarray, most: int, halved: bool = False) -> Done:
        """Leave gradients as they are: what they cost is another table."""
        return Done()

    begin_scatter = begin_gather = begin

    def _send(self, nbytes: int) -> None:
        self.messages += self._levels
        self.nbytes += nbytes

    def fail(self, failure: object) -> None:
        """Tell nobody."""

    def take_leave(self) -> bool:
        """Let the others go on."""
        return True

    def failures(self) -> dict[int, Any]:
        """Return that nobody has failed."""
        return {}

    def close(self) -> None:
        """End."""


def measure(kind: str, size: int, steps: int) -> dict[str, float]:
    """Train in this process as one of many; return seconds, messages and bytes of a start and of a step."""
    from pe_cli.cli import main
    from pe_cli.session.processes import group_choice
    from pe_cli.session.processes.peer_group import PeerGroup

    peers, batch = MadeUpPeers(size), SAMPLES * size
    begin: list[float] = []

    def met(run: object) -> PeerGroup:
        begin.append(time.perf_counter())
        return PeerGroup(peers, peers)  # type: ignore[arg-type]

    group_choice._launched, group_choice._met = lambda: True, met
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("model.yaml").write_text(MODELS[kind], encoding="utf-8")
        values = {"SAMPLES": BATCHES * batch, "FIELDS": FIELDS[kind], "EPOCHS": -(-steps // BATCHES), "BATCH": batch}
        text = CONFIG
        for name, value in values.items():
            text = text.replace(name, str(value))
        Path("config.yaml").write_text(text, encoding="utf-8")
        if code := main.run(["train", "config.yaml", "--quiet"]):
            sys.exit(code)
    took = peers.stepped[-steps:]
    spans = [b[0] - a[0] for a, b in zip(took[WARM:], took[WARM + 1 :], strict=False)]
    last, first = took[-1], took[WARM]
    counted = len(spans)
    return {
        "start": took[0][0] - begin[0],
        "start_bytes": took[0][2],
        "step": statistics.median(spans),
        "messages": (last[1] - first[1]) / counted,
        "bytes": (last[2] - first[2]) / counted,
    }


def row(kind: str, size: int, found: dict[str, float]) -> list[str]:
    """Return a row of the table."""
    step = [f"{found['step'] * 1e3:.2f}", f"{found['messages']:.0f}", f"{found['bytes']:,.0f}"]
    return [kind, f"{size:,}", *step, f"{found['start']:.2f}", f"{found['start_bytes'] / 1e6:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="2,64,1000,10000", help="numbers of processes")
    parser.add_argument("--steps", type=int, default=300, help="of each training")
    parser.add_argument("--write", action="store_true", help="write the table into docs/scaling.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        kind, size = asked.one.split(",")
        found = measure(kind, int(size), asked.steps)
        print(json.dumps(found), file=sys.__stdout__)
        return
    rows = []
    for kind in MODELS:
        for size in map(int, asked.sizes.split(",")):
            line = [sys.executable, __file__, "--one", f"{kind},{size}", "--steps", str(asked.steps)]
            done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(row(kind, size, json.loads(done.stdout.splitlines()[-1])))
            print("  ".join(rows[-1]), flush=True)
    head = ("model", "processes", "ms a step", "messages a step", "bytes a step", "start, s", "MB at the start")
    table = report.markdown(head, rows)
    if asked.write:
        machine = f"{report.processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, NumPy {np.__version__}."
        report.replace(PAGE, MARKS, f"{machine}\n\n{table}")


if __name__ == "__main__":
    main()
