"""The native loops are looked at: what they touch beside their arrays ends the process and is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rotation import on_its_day

ROOT = Path(__file__).parents[1]
CODE = """
import sys
import tests.sanitized
from pe_cli.devices import native_loops as native, tape
rows, failed = tape.np.zeros((2, 3), tape.np.int64), tape.np.zeros(1, tape.np.int64)
nothing = tests.sanitized.thread_pool._FUNCTION(lambda record: None)
rows[:, 0] = tests.sanitized.ctypes.cast(nothing, tests.sanitized.ctypes.c_void_p).value
how = sys.argv[1]
record = tape.np.array([rows.ctypes.data, 3 if how == "behind" else 2, failed.ctypes.data + 8 * (how == "status")], tape.np.int64)
if how == "freed":
    rows = None
if how == "atomic":
    head, apart = tape.np.zeros(32, tape.np.int64), tests.sanitized.np.zeros(1, tape.np.int64)
    head[native.DONE] = apart.ctypes.data
    record = tape.np.array([record.ctypes.data, head.ctypes.data, 0], tape.np.int64)
    tape.native_function(native.run_step)(record.ctypes.data)
tape.native_function(native.run_tape)(record.ctypes.data)
print("ran", flush=True)
"""


@on_its_day(1, of=3)
@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param("whole", None, id="nothing is wrong"),
        pytest.param("behind", "load of 8 bytes", id="an instruction too many"),
        pytest.param("freed", "load of 8 bytes", id="rows that are gone"),
        pytest.param("atomic", "store to 8 bytes", id="a counter of another's"),
        pytest.param("status", "store to 8 bytes", id="a word behind another"),
    ],
)
def test_what_the_loops_touch_is_looked_at(how: str, said: str | None) -> None:
    run = subprocess.run([sys.executable, "-c", CODE, how], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == ((0, "ran\n") if said is None else (-signal.SIGABRT, "")), run.stderr
    assert said is None or f"native loops: {said} at 0x" in run.stderr
