"""What `place: cuda` does where no GPU is, and that nothing else imports numba-cuda."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.cli.main import run as command
from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.devices import cuda_driver_library
from pe_cli.session.device_choice import resolve_places

ROOT = Path(__file__).parents[2]


def python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True, check=False)


def test_commands_that_need_no_gpu_do_not_import_numba_cuda(tmp_path):
    text = (
        "import sys; from pe_cli.cli.main import run\n"
        f"train = ['train', 'configs/digits.yaml', '-o', 'train.epochs=1', '-o', 'output.dir={tmp_path}']\n"
        "for arguments in (['--help'], ['ops'], train):\n"
        "    code = run(arguments)\n"
        "    print(); print('after', arguments[0], int(code), 'numba.cuda' in sys.modules)"
    )
    done = python("-c", text)
    said = [line for line in done.stdout.splitlines() if line.startswith("after ")]
    assert said == ["after --help 0 False", "after ops 0 False", "after train 0 False"], done.stderr


def test_place_cuda_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr("pe_cli.devices.cuda.cuda_count", lambda: (0, "no CUDA device is visible"))
    at = Span("run.yaml", 3, 12)
    with pytest.raises(PeError, match="place: cuda, but no CUDA device is visible") as caught:
        resolve_places("cuda", "auto", at)
    assert (caught.value.code, caught.value.at, caught.value.hint) == (
        ExitCode.DEVICE,
        at,
        "use place: cpu, or run where a GPU is",
    )


def test_the_command_exits_with_the_code_of_a_missing_device(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cuda_driver_library, "LIBRARY", "libno-such-driver.so.1")
    cuda_driver_library.library.cache_clear()
    try:
        code = command(["train", str(ROOT / "configs/digits.yaml"), "-o", "executor.place=cuda", "-o", f"output.dir={tmp_path}"])
    finally:
        cuda_driver_library.library.cache_clear()
    assert code == ExitCode.DEVICE
    assert "place: cuda, but there is no CUDA driver: libno-such-driver.so.1 is not found" in capsys.readouterr().err
