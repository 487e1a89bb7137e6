"""Commands where a system is like macOS, as far as Linux can pretend to be it, and where it is like Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONE_EPOCH = ("-o", "train.epochs=1", "-o", "executor.devices=2")


def pe(*args: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command; `before` is Python that runs first, with macOS's ways on the path where it is empty."""
    path = {"PYTHONPATH": f"{Path(__file__).parent / 'macos'}:{ROOT}", **({} if before else {"PRETEND_MACOS": "1"})}
    code = f"{before}\nimport sys\nsys.argv[0] = 'pe'\nfrom pe_cli.__main__ import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, *args], cwd=folder, env={**os.environ, **path}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder and the run in it that was trained there by two devices, whose threads wait for each other."""
    folder = tmp_path_factory.mktemp("mac")
    done = pe("train", f"{ROOT}/configs/people.yaml", *ONE_EPOCH, "-o", "output.dir=runs", folder=folder)
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "runs").iterdir()
    return folder, made


def test_training_by_two_threads_gives_what_linux_gives(run, tmp_path):
    _, made = run
    here = pe("train", f"{ROOT}/configs/people.yaml", *ONE_EPOCH, "-o", f"output.dir={tmp_path}", folder=tmp_path, before="pass")
    assert here.returncode == 0, here.stderr
    (other,) = tmp_path.glob("people-*")
    first, second = (sorted(folder.glob("checkpoints/*/*.safetensors")) for folder in (made, other))
    assert first
    assert [f.read_bytes() for f in first] == [f.read_bytes() for f in second]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(("eval", "RUN"), "600 samples", id="eval"),
        pytest.param(("predict", "RUN", f"{ROOT}/configs/data/people.csv", "--out", "p.csv"), "6,000 rows", id="predict"),
        pytest.param(("report", "RUN"), "report.html", id="report"),
        pytest.param(("profile", f"{ROOT}/configs/digits.yaml", "-o", "executor.devices=2"), "thread 1", id="profile"),
        pytest.param(("launch", f"{ROOT}/configs/digits.yaml", "-n", "2", "--dry-run"), "2 processes", id="launch"),
        pytest.param(("check", f"{ROOT}/configs/gpt.yaml"), "no mistakes", id="check"),
    ],
)
def test_a_command_does_what_it_does_on_linux(run, args, said):
    folder, made = run
    done = pe(*(str(made) if a == "RUN" else a for a in args), folder=folder)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout + done.stderr


def test_windows_is_an_error_that_says_what_to_use(tmp_path):
    done = pe("check", "x.yaml", folder=tmp_path, before="import signal\ndel signal.pthread_sigmask")
    assert done.returncode == 5
    assert done.stderr.startswith("error: pe runs on Linux and macOS")
    assert "WSL" in done.stderr
