"""pe run: hands a script to Python with `paddle` as another name of this program's; what Python then does is tested in tests/paddle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Pe
from tests.cli.test_completion import offered

SCRIPT = "import os, sys\nprint(sys.argv, os.environ.get('CPU_NUM'), os.environ.get('PYTHONHASHSEED'))\nsys.exit(5)\n"


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Return a list that gets the command and the environment of what would take this process's place."""
    found: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda program, words, variables: found.append((words, variables)))
    return found


def test_a_script_ends_the_command_as_it_ends(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "pe_cli", "run", "--devices", "3", "--seed", "4", "s.py", "--devices", "7", "-m"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "['s.py', '--devices', '7', '-m'] 3 4\n"), done.stderr


def test_without_options_the_environment_is_as_it_was(pe: Pe, handed: list[tuple[list[str], dict[str, str]]]) -> None:
    pe("run", "s.py", "--seed=9", "x")
    ((words, variables),) = handed
    assert words == [sys.executable, "-P", "-m", "pe_cli.paddle.run_script", "s.py", "--seed=9", "x"]
    assert variables == dict(os.environ)


def test_options_are_those_of_python(pe: Pe, handed: list[tuple[list[str], dict[str, str]]]) -> None:
    pe("run", "-u", "-m", "--seed", "0", "paddle.distributed.launch", "-h")
    ((words, _),) = handed
    assert words == [sys.executable, "-P", "-u", "-m", "pe_cli.paddle.run_script", "--seed=0", "-m", "paddle.distributed.launch", "-h"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], "error: pe run needs SCRIPT", id="no script"),
        pytest.param(["--devices", "0", "s.py"], "'--devices': 0 is not in the range", id="no device"),
        pytest.param(["--seed", "-1", "s.py"], "'--seed': -1 is not in the range", id="a seed below 0"),
        pytest.param(["--sed", "1", "s.py"], "--sed", id="no such option"),
    ],
)
def test_wrong_usage_is_an_error(words: list[str], message: str, pe: Pe, handed: list[tuple[list[str], dict[str, str]]]) -> None:
    said = pe("run", *words)
    assert said.code == 2
    assert message in said.err
    assert not handed


def test_scripts_are_offered(tmp_path: Path) -> None:
    for name in ("train.py", "old/net.py", "old/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert offered("bash", "pe run ", 2, tmp_path) == ["plain,old/net.py", "plain,train.py"]
