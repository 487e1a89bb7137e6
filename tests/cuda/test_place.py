"""What `place: cuda` does where no GPU is, and that nothing else imports numba-cuda."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.session import devices
from pe_cli.session.devices import resolve_places

ROOT = Path(__file__).parents[2]


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )


def modules_after(arguments: list[str]) -> tuple[int, bool]:
    """Return a command's exit code, and whether it imported numba.cuda."""
    text = (
        "import sys; from pe_cli.cli.main import run\n"
        f"code = run({arguments!r}); print('\\n', int(code), 'numba.cuda' in sys.modules)"
    )
    code, imported = python("-c", text).stdout.split()[-2:]
    return int(code), imported == "True"


@pytest.mark.parametrize("command", ["--help", "ops"])
def test_a_command_that_needs_no_gpu_does_not_import_numba_cuda(command: str):
    assert modules_after([command]) == (0, False)


def test_training_on_the_cpu_does_not_import_numba_cuda(tmp_path):
    assert modules_after(["train", "configs/digits.yaml", "-o", "train.epochs=1", "-o", f"output.dir={tmp_path}"]) == (
        0,
        False,
    )


def test_place_cuda_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(devices, "cuda_count", lambda: (0, "no CUDA device is visible"))
    at = Span("run.yaml", 3, 12)
    with pytest.raises(PeError, match="place: cuda, but no CUDA device is visible") as caught:
        resolve_places("cuda", "auto", at)
    assert (caught.value.code, caught.value.at, caught.value.hint) == (
        ExitCode.DEVICE,
        at,
        "use place: cpu, or run where a GPU is",
    )


def test_the_command_exits_with_the_code_of_a_missing_device(tmp_path):
    text = "import sys; from pe_cli.cli.main import run; sys.exit(run(sys.argv[1:]))"
    args = ["train", "configs/digits.yaml", "-o", "executor.place=cuda", "-o", f"output.dir={tmp_path}"]
    done = python("-c", text, *args, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == ExitCode.DEVICE, done.stderr
    assert "place: cuda, but no CUDA device is visible" in done.stderr
