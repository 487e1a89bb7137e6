"""Long runs: after many steps memory and the time of a step are what they were, and files may change meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.session.training.stop import StopRequest
from tests.cli.conftest import MODEL
from tests.rotation import of_today
from tests.session.conftest import Bench
from tests.session.memory_watch import anonymous

#: Epochs of 22 steps; `PE_SOAK=5000` looks longer.
EPOCHS = int(os.environ.get("PE_SOAK", "150"))
#: Epochs of those ways that take longer per step: 50,600 steps.
MOST = 2300
#: What is looked at beside plain training.
WAYS: dict[str, list[str]] = {
    "plain": [],
    "checkpoints": ["-o", "output.checkpoint={every: 1 step, keep: 2}"],
    "checkpoints every five steps": ["-o", "output.checkpoint={every: 5 steps, keep: 2, best: {by: train/loss, mode: min}}"],
    "live page": ["--live"],
    "table": ["-o", "output.log=[csv]", "-o", "output.gradient_norms=true"],
}
CONFIG = """\
model: line.yaml
data: {train: {reader: npy, files: {x: x.npy, y: y.npy}, shuffle: true}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 400, batch_size: 2, optimizer: {type: SGD, learning_rate: 0.001}}
fetches: {loss: {every: 1 steps}}
executor: {devices: 1, seed: 3}
output: {dir: runs, checkpoint: {every: 500 steps, keep: 2}}
"""


@pytest.fixture
def line(bench: Bench, rng: np.random.Generator) -> Bench:
    """A model of one layer on mapped data: 22 steps an epoch, of which each has a metric."""
    x = rng.standard_normal((44, 4)).astype(np.float32)
    np.save(bench.base / "x.npy", x)
    np.save(bench.base / "y.npy", x[:, :1])
    (bench.base / "line.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG)
    return bench


@pytest.fixture
def each_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """Have something called at every look whether to stop: once a step."""

    def install(call: Callable[[int], None]) -> None:
        looks = [0]
        plain = StopRequest.now

        def now(self: StopRequest) -> bool:
            looks[0] += 1
            call(looks[0])
            return bool(plain.__get__(self))

        monkeypatch.setattr(StopRequest, "now", property(now))

    return install


def wanted() -> list[str]:
    """Return all ways with `PE_SOAK`, else another one each day: `test_memory.py` counts in all of them."""
    return list(WAYS) if "PE_SOAK" in os.environ else of_today(list(WAYS), len(WAYS))


@pytest.mark.parametrize("options", [pytest.param(WAYS[name], id=name) for name in wanted()])
def test_memory_and_the_time_of_a_step_stay(line: Bench, each_step: Callable[..., None], options: list[str]) -> None:
    """From a third of the steps on, or from step 5,000, memory stays within 1 MiB; a step that looks at all earlier ones shows, too."""
    grown, times, epochs = _grown(line, each_step, options, "runs")
    if grown > 1 << 20:  # the heap of a process that has run other tests settles once; what holds on shows again
        grown, times, epochs = _grown(line, each_step, options, "again")
    assert grown <= 1 << 20, f"{grown} bytes in {epochs * 22} looks"
    if options:
        return
    # the quickest of many stretches: what else the machine does does not count
    took, part = np.diff(times), len(times) // 3
    early, late = took[part : 2 * part].min(), took[-part:].min()
    assert late <= 1.5 * early, f"fifty steps took {early} s, later {late} s"


def _grown(line: Bench, each_step: Callable[..., None], options: list[str], where: str) -> tuple[int, list[float], int]:
    """Train; return bytes by which memory grew, the times of every fiftieth look, and the epochs."""
    memory: list[int] = []
    times: list[float] = []
    epochs = EPOCHS if not options else min(EPOCHS, MOST)

    def measure(look: int) -> None:
        if look % 50 == 0:
            memory.append(anonymous())
            times.append(time.perf_counter())

    each_step(measure)
    folder = line.train(where, "-o", f"train.epochs={epochs}", *options)
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == epochs * 22
    assert len(memory) >= epochs * 22 // 50
    begin = min(len(memory) // 3, 100)
    return max(memory[begin:]) - memory[begin], times, epochs


def test_files_that_are_removed_while_they_are_read_do_no_harm(line: Bench, each_step: Callable[..., None]) -> None:
    """A mapped file lives until nobody reads it any more, as the other files of a program do."""
    whole = line.train("whole", "-o", "train.epochs=6")

    def remove(look: int) -> None:
        if look == 30:
            (line.base / "x.npy").unlink()
            np.save(line.base / "y.npy.new", np.zeros((44, 1), np.float32))
            (line.base / "y.npy.new.npy").rename(line.base / "y.npy")

    each_step(remove)
    pieces = line.train("pieces", "-o", "train.epochs=6")
    assert (pieces / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


def test_a_file_that_is_cut_while_it_is_read_is_named(line: Bench, each_step: Callable[..., None]) -> None:
    """Without a look at its size the process would die of SIGBUS, with no word."""
    each_step(lambda look: os.truncate(line.base / "x.npy", 128) if look == 30 else None)
    line.train("runs", "-o", "train.epochs=6", code=ExitCode.DATA)
    assert "the file of field 'x' was cut while it is read: 128 bytes of 832 are left" in line.err
