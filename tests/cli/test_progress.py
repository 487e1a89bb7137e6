"""What a watcher shows on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.cli.progress import EVALUATIONS, METRIC_LINES, Lines, Quiet, watch
from pe_cli.session.observer import Start


def test_elsewhere_lines_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = watch()
    assert type(watcher) is Lines
    watcher.started(Start("m", 1234, "2 cpu", 10, 5, "runs/m"))
    watcher.recorded(1, 0, {"train/loss": 0.5})
    watcher.recorded(2, 0, {"train/loss": 0.25})
    watcher.recorded(2, 1, {"eval/acc": 1.0})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m: 1,234 parameters, 5 epochs, 10 steps, on 2 cpu, into runs/m"
    # the second comes too soon, and is told with the third
    assert lines[1:] == ["step 1/10 epoch 0  train/loss 0.5", "step 2/10 epoch 1  train/loss 0.25  eval/acc 1"]


def test_evaluations_that_come_faster_than_anyone_reads_are_held_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    watcher = Lines()
    for epoch in range(EVALUATIONS + 9):
        watcher.recorded(epoch, epoch, {"eval/acc": epoch / 100})
    assert len(capsys.readouterr().out.splitlines()) == EVALUATIONS
    now += 1.01 * METRIC_LINES
    watcher.recorded(99, 99, {"eval/loss": 0.5})
    assert capsys.readouterr().out == "step 99 epoch 99  eval/acc 0.58  eval/loss 0.5\n"


def test_quiet_says_nothing_but_counts_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = watch(quiet=True)
    assert isinstance(watcher, Quiet)
    watcher.compiling(0, 2, "a")
    watcher.compiling(1, 2, "b")
    watcher.note("x")
    assert watcher.compiled == 2
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_a_bar_lives_and_leaves_lines(config: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pe_cli.cli.main", "train", str(config), "-o", "train.epochs=20"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=environment) as child:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert child.returncode == 0, seen
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    assert "━" in text
    assert "samples/s" in text or "loss" in text
    assert re.search("step 60 epoch 20 .*eval/loss", text)
    assert "\x1b[?25h" in seen.decode(), "the cursor is shown again"
