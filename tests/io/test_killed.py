"""A process that dies while it saves harms nothing: after every possible moment the last whole checkpoint loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pe_cli
from pe_cli.io import checkpoint

# A program finds the package that is tested, installed or not.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1])}
PROGRAM = Path(__file__).with_name("kill_while_saving.py")


@pytest.mark.parametrize("what", [pytest.param("new", id="a new step"), pytest.param("again", id="a step saved again")])
def test_death_before_any_system_call_harms_nothing(tmp_path: Path, what: str) -> None:
    command = [sys.executable, "-W", "ignore", PROGRAM, tmp_path / "base", what]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    results = [json.loads(line) for line in run.stdout.splitlines()]
    assert [r["survived"] for r in results] == [False] * (len(results) - 1) + [True]
    # Opening, writing, flushing and renaming two files, two folders and a mark are more calls than this.
    assert len(results) > 15
    for result in results:
        assert "error" not in result, result
        assert result["loads"] in ((1,) if what == "again" else (1, 2))
        # Nothing unfinished stays behind the next save.
        assert not [name for name in result["after"] if name.startswith(".")], result
        assert "step-3" in result["after"]
    if what == "new":
        steps = [result["loads"] for result in results]
        assert steps == sorted(steps)
        assert steps[-1] == 2


LOOP = """
import sys, numpy as np
from pathlib import Path
from pe_cli.io import checkpoint
root, arrays = Path(sys.argv[1]), {"w": np.zeros(2_000_000, np.float32)}
for step in range(1, 10**6):
    arrays["w"][:] = step
    checkpoint.write(root, step, arrays, {}, keep=2)
    checkpoint.mark(root, "last", step)
    print(step, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.007, 0.013, 0.021], ids=lambda d: f"{d * 1000:g} ms after a save")
def test_a_real_kill_at_any_time_harms_nothing(tmp_path: Path, delay: float) -> None:
    writer = subprocess.Popen([sys.executable, "-c", LOOP, tmp_path], stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert writer.stdout is not None
    with writer.stdout:
        for _ in range(3):
            done = int(writer.stdout.readline())
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    arrays, meta = checkpoint.load(tmp_path)
    assert isinstance(meta["step"], int)
    assert meta["step"] >= done
    assert set(arrays["w"].tolist()) == {meta["step"]}
    for step in checkpoint.steps(tmp_path):
        checkpoint.load(tmp_path / f"step-{step}")
