"""The script `pe`, which starts `pe-python` with signals held back; another `pe-python` stands here that tells how it was started."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs

SCRIPT = Path(__file__).parents[2] / "pe_cli" / "cli" / "pe"
TELLS = f"#!{sys.executable} -IS\nimport sys\nprint(open('/proc/self/status').read())\nprint(*map('<{{}}>'.format, sys.argv[1:]), sep='')\n"
HOLDS = subprocess.run(["env", "--block-signal=INT", "true"], capture_output=True, check=False).returncode == 0
BOTH = 1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1


@pytest.fixture
def pe(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(SCRIPT, folder / "pe")
    (folder / "pe-python").write_text(TELLS)
    (folder / "pe-python").chmod(0o755)
    return folder / "pe"


def started(pe: Path, *arguments: str, path: str | None = None) -> tuple[int, int, str]:
    """Start `pe` as a shell starts a job in the background; return which signals it holds back and ignores, and its arguments."""
    program = "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])\n"
    environment = os.environ | ({"PATH": path} if path else {})
    command = [sys.executable, "-c", program, str(pe), *arguments]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    blocked, ignored = (int(re.search(rf"{name}:\t(\w+)", text)[1], 16) & BOTH for name in ("SigBlk", "SigIgn"))  # type: ignore[index]
    return blocked, ignored, text.splitlines()[-1]


@needs(HOLDS, "an env that holds signals back")
def test_signals_are_held_back_until_pe_takes_them(pe: Path) -> None:
    assert started(pe, "train", "a b.yaml", "-o", "x=*") == (BOTH, 0, "<train><a b.yaml><-o><x=*>")


@needs(HOLDS, "an env that holds signals back")
def test_a_link_to_it_starts_what_stands_beside_the_script(pe: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pe").symlink_to(os.path.relpath(pe, tmp_path / "bin"))
    assert started(tmp_path / "bin" / "pe", "") == (BOTH, 0, "<>")


def test_where_env_holds_no_signals_back_it_starts_all_the_same(pe: Path, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("#!/bin/sh\nexit 125\n")
    (tmp_path / "env").chmod(0o755)
    blocked, _, arguments = started(pe, "ops", path=f"{tmp_path}:{os.environ['PATH']}")
    assert (blocked, arguments) == (0, "<ops>")


def test_the_exit_code_is_that_of_pe(pe: Path) -> None:
    (pe.parent / "pe-python").write_text("#!/bin/sh\nexit 75\n")
    assert subprocess.run([pe], check=False).returncode == 75
