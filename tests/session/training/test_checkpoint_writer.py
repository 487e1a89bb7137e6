"""The thread that writes checkpoints: training goes on meanwhile, and what goes wrong is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.io import checkpoint
from pe_cli.session.training.checkpoint_writer import CheckpointWriter, Snapshot
from pe_cli.session.training.loop import Trainer
from tests.session.conftest import Bench


def snapshot(step: int, value: float = 1.0, best: bool = False) -> Snapshot:
    return Snapshot(step, {"w": np.full(3, value), "state": np.full(3, np.inf)}, {}, best, [])


@pytest.fixture
def saver(tmp_path: Path) -> CheckpointWriter:
    return CheckpointWriter(tmp_path, 2, {"w": Span("model.yaml", 4, 2)})


def test_steps_go_on_while_a_checkpoint_is_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write waits for two more steps; where training waited for it, neither would ever come."""
    steps, came = threading.Semaphore(0), []
    write: Callable[..., None] = checkpoint.write
    step = Trainer._step

    def slow(root: Path, number: int, *rest: object) -> None:
        if not came:
            came.append(all(steps.acquire(timeout=20) for _ in range(number + 2)))
        write(root, number, *rest)

    def counted(self: Trainer, feed: object, samples: int) -> None:
        step(self, feed, samples)  # type: ignore[arg-type]
        steps.release()

    monkeypatch.setattr("pe_cli.session.training.checkpoint_writer.checkpoint.write", slow)
    monkeypatch.setattr(Trainer, "_step", counted)
    folder = bench.train("runs", "-o", "output.checkpoint={every: 4 steps, keep: 9}", "-o", "train.eval_every=9 epochs")
    assert came == [True]
    assert checkpoint.steps(folder / "checkpoints") == [4, 8, 12, 16, 18]


def test_what_is_copied_is_what_is_written(bench: Bench) -> None:
    """Parameters change while the thread writes; each checkpoint is of its own step, as those of a run with one alone."""
    often = bench.train("often", "-o", "output.checkpoint={every: 1 steps, keep: 99}", "-o", "train.eval_every=9 epochs")
    for step in (3, 11):
        once = bench.train(f"once{step}", "--max-steps", step, "-o", "train.eval_every=9 epochs", code=ExitCode.STOPPED)
        one, two = (checkpoint.load(folder / "checkpoints" / f"step-{step}")[0] for folder in (often, once))
        assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in two.items()}


def test_marks_and_pruning(saver: CheckpointWriter, tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        saver.save(snapshot(step, best=step == 1))
    saver.wait()
    assert checkpoint.steps(tmp_path) == [1, 3, 4]
    assert (checkpoint.marked(tmp_path, "best"), checkpoint.marked(tmp_path, "last")) == (1, 4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_parameter_that_is_not_finite_is_never_saved_but_state_may_be(
    saver: CheckpointWriter, tmp_path: Path, value: float
) -> None:
    saver.save(snapshot(1))
    saver.save(snapshot(2, value))
    with pytest.raises(PeError, match="the parameter 'w' is not finite after step 2") as caught:
        saver.wait()
    assert (caught.value.code, caught.value.at) == (ExitCode.DIVERGED, Span("model.yaml", 4, 2))
    assert "step-1;" in (caught.value.hint or "")
    assert checkpoint.steps(tmp_path) == [1]
    saver.check()  # told once


def test_a_failure_is_raised_by_the_next_call(saver: CheckpointWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PeError("no room", code=ExitCode.DEVICE)

    monkeypatch.setattr("pe_cli.session.training.checkpoint_writer.checkpoint.write", fail)
    saver.save(snapshot(1))
    with pytest.raises(PeError, match="no room"):
        saver.save(snapshot(2))
    saver.wait()


def test_what_the_last_prune_did_not_come_to_goes_when_the_run_is_opened_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("-o", "output.checkpoint={every: 4 steps, keep: 2}", "-o", "train.eval_every=9 epochs")
    with monkeypatch.context() as patch:
        patch.setattr("pe_cli.session.training.checkpoint_writer.checkpoint.prune", lambda root, keep: None)  # as where it was killed
        folder = bench.train("runs", *wanted)
    left = folder / "checkpoints" / f".tmp-{os.getpid()}-0123abcd"
    left.mkdir()
    assert checkpoint.steps(folder / "checkpoints") == [4, 8, 12, 16, 18]
    assert bench.run("train", "--resume", folder, "--quiet") == 0, bench.err
    assert checkpoint.steps(folder / "checkpoints") == [16, 18]
    assert not left.exists()
