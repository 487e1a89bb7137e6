"""Pipes in the place of a run's files hang nobody: they are no files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode
from tests.rotation import on_its_day
from tests.session.conftest import Bench

NAMES = ("env.json", "resolved.yaml", "model.yaml", "config.yaml", "metrics.jsonl", "status.json", "log.txt", "fetches/hidden.jsonl")


@on_its_day(0, of=3)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_waits_for_a_pipe(bench: Bench, name: str, tmp_path: Path) -> None:
    folder = bench.train("runs", "--max-steps", 5, code=ExitCode.STOPPED)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    pages = tmp_path / "page.html"
    for arguments in (["runs", folder.parent], ["report", folder, "-o", pages], ["train", "--resume", folder, "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "pe_cli", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode in (0, ExitCode.USAGE, ExitCode.DATA, ExitCode.DEVICE, ExitCode.STOPPED), done.stderr
        assert "this is a bug" not in done.stderr
