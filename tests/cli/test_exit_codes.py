"""Every exit code that docs/exit-codes.md lists, provoked through the command. 6 is provoked in tests/session/test_processes.py."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.devices.timestamps import StampedTape
from pe_cli.session.training.stop import StopRequest
from tests.cli.conftest import ROOT, Pe, Said


def done(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return pe("train", config)


def bug(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    def wrong(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("pe_cli.session.training.loop.Trainer._after_epoch", wrong)
    return pe("train", config)


def usage(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return pe("train", config, "-o", "train.epochs=0")


def data(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    (config.parent / "data.npz").write_bytes(b"PK\3\4 torn")
    return pe("train", config)


def diverged(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return pe("train", config, "-o", "train.optimizer.learning_rate=1e30")


def device(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setattr("pe_cli.devices.cuda.cuda_count", lambda: (0, "there is no GPU"))
    return pe("train", config, "-o", "executor.place=cuda")


def stalled(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setattr(StampedTape, "run", lambda self: time.sleep(0.5))  # no kernel runs
    return pe("train", config, "-o", "executor.watchdog=0.1")


def stopped(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return pe("train", config, "--max-steps", 1)


def interrupted(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pe_cli.session.job.run_startup", interrupt)  # Ctrl-C before training has begun
    return pe("train", config)


def different(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return pe("compare", config, "-o", "executor.seed=7")


PROVOKED = {
    ExitCode.DONE: done,
    ExitCode.BUG: bug,
    ExitCode.USAGE: usage,
    ExitCode.DATA: data,
    ExitCode.DIVERGED: diverged,
    ExitCode.DEVICE: device,
    ExitCode.STALLED: stalled,
    ExitCode.DIFFERENT: different,
    ExitCode.STOPPED: stopped,
    ExitCode.INTERRUPTED: interrupted,
}


@pytest.mark.parametrize("code", PROVOKED, ids=lambda code: f"{int(code)} {code.name.lower()}")
def test_every_code_can_be_provoked(
    pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch, code: ExitCode
) -> None:
    said = PROVOKED[code](pe, config, monkeypatch)
    assert said.code == code, said.err
    assert "Traceback" not in said.err
    fails = code not in (ExitCode.DONE, ExitCode.DIFFERENT, ExitCode.STOPPED, ExitCode.INTERRUPTED)
    assert ("error: " in said.err) == fails


def test_the_page_lists_every_code() -> None:
    assert set(ExitCode) - set(PROVOKED) == {ExitCode.PEER_LOST}
    text = (ROOT / "docs" / "exit-codes.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == set(map(int, ExitCode))


def test_a_diverged_run_keeps_its_last_good_checkpoint_and_the_hint_finds_the_op(pe: Pe, config: Path) -> None:
    """With a rate of 1e20 a few steps go well, and then a loss overflows; what is kept is finite."""
    rate = ["-o", "train.optimizer.learning_rate=1e20", "-o", "output.checkpoint={every: 1 steps, keep: 9}"]
    said = pe("train", config, *rate)
    assert said.code == ExitCode.DIVERGED
    assert "model.yaml:8" in said.err
    assert "the loss 'loss' (mean) is " in said.err
    found = re.search(r"the last checkpoint is (\S+); (pe train --resume .*) goes on", said.err)
    assert found is not None, said.err
    from pe_cli.io.checkpoint import load

    assert all(np.isfinite(array).all() for array in load(Path(found[1]))[0].values())
    again = pe(*found[2].split()[1:])
    assert again.code == ExitCode.DIVERGED
    step = re.search(r"at step (\d+)", said.err)
    assert step is not None
    (folder,) = (config.parent / "runs").iterdir()
    first = next(line for line in again.err.splitlines() if "error: " in line)
    assert first.split(": ", 1)[1] in (folder / "log.txt").read_text()
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["error"]) == ("failed", first)
    assert pe("runs", config.parent / "runs").out.splitlines()[-1] == f"{folder.name}: {first}"
    assert re.search(rf"model.yaml:\d+:\d+: error: \w+: its result '\S+' is -?(nan|inf).*, in step {step[1]}", again.err)


def test_parameters_that_are_not_finite_are_never_saved(pe: Pe, config: Path) -> None:
    """A rate of 3e38 makes them infinite in the first step, whose own loss is a good number."""
    rate = ["-o", "train.optimizer.learning_rate=3e38", "-o", "output.checkpoint={every: 1 steps, keep: 9}"]
    said = pe("train", config, *rate, "--max-steps", 1)
    assert said.code == ExitCode.DIVERGED
    assert "the parameter 'guess.w_0' is not finite after step 1" in said.err
    assert "there is no checkpoint yet" in said.err
    assert "model.yaml:6" in said.err
    (folder,) = (config.parent / "runs").iterdir()
    assert not list((folder / "checkpoints").iterdir())


def test_stopping_is_over_when_the_request_is() -> None:
    with StopRequest() as stop:
        assert not stop.asked


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libopenblas.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_little_memory_to_begin_is_no_bug(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("while loading") from error

    monkeypatch.setattr("pe_cli.session.training.loop.Trainer._after_epoch", fails)
    said = pe("train", config)
    assert said.code == ExitCode.DEVICE
    assert "too little memory" in said.err
