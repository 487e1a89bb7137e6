"""What a watcher shows on a terminal and elsewhere."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pe_cli.cli.progress import Lines, Quiet, watch
from pe_cli.cli.progress_bar import bar, clock
from pe_cli.session.observer import Row, Start


def test_elsewhere_lines_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = watch()
    assert type(watcher) is Lines
    watcher.started(Start("m", 1234, "2 cpu", 10, 5, "runs/m", metrics=("train/loss", "eval/acc")))
    watcher.row(Row(2, 1, {"train/loss": 0.25, "eval/acc": 1.0}, 1234.5))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "m: 1,234 parameters, 5 epochs, 10 steps, on 2 cpu, into runs/m",
        "                train      eval",
        "epoch  step      loss       acc  samples/s",
        "  1/5     2      0.25         1      1,234",
    ]


@pytest.mark.parametrize(("seconds", "shown"), [(None, "-"), (0.9, "0:00"), (3599.9, "59:59"), (36000, "10:00:00")])
def test_times_are_short(seconds: float | None, shown: str) -> None:
    assert clock(seconds) == shown


def test_a_bar_has_its_epoch_its_steps_and_its_times_at_70_columns() -> None:
    screen = Console(file=io.StringIO(), width=70, force_terminal=True, color_system=None)
    made = bar(screen)
    made.add_task("epoch 100/100", total=230_000, completed=115_000, facts="loss 0.04082  33,465 samples/s")
    with screen.capture() as shown:
        screen.print(made.get_renderable())
    first, second = shown.get().splitlines()
    assert len(first) <= 70
    assert re.fullmatch(r"epoch 100/100 ━+.*115000/230000 elapsed 0:00  left (-|[\d:]+)\s*", first)
    assert second.strip() == "loss 0.04082  33,465 samples/s"


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
    assert re.search(r"epoch +step +loss", text)
    assert re.search(r"20/20 +60 +[\d.]+", seen.decode()), "a row has one colour"
    assert "elapsed 0:0" in text
    assert "\x1b[?25h" in seen.decode(), "the cursor is shown again"
