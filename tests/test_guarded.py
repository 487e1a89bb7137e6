"""Memory that is guarded is: a byte too far ends the process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import ctypes, sys
import tests.guarded
from pe_cli.devices.aligned_memory import Arena
from pe_cli.devices import tape
arena = Arena(4096)
rows = tape.np.zeros((2, 256), tape.np.int64)
at = {"arena": arena.address, "rows": rows.ctypes.data}[sys.argv[1]] + int(sys.argv[2])
print(ctypes.c_uint8.from_address(at).value, flush=True)
"""


@pytest.mark.parametrize("what", ["arena", "rows"])
@pytest.mark.parametrize(("offset", "code"), [(0, 0), (4095, 0), (4096, -signal.SIGSEGV), (-1, -signal.SIGSEGV)])
def test_a_byte_too_far_ends_the_process(what: str, offset: int, code: int) -> None:
    run = subprocess.run([sys.executable, "-c", CODE, what, str(offset)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == code, run.stderr
    assert run.stdout == ("0\n" if code == 0 else "")
