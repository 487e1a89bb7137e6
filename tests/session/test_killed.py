"""Training that is killed, or whose disk fails, at any instant: what has its final name is whole, and it goes on exactly."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pe_cli
from pe_cli.core.errors import ExitCode
from tests.needs import needs
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1])}
PROGRAM = Path(__file__).with_name("kill_while_training.py")
#: How many instants are tried; `PE_KILLS=1000` tries so many of each kind.
MORE = int(os.environ.get("PE_KILLS", "0"))
#: Two epochs of six steps, and every kind of file.
SHORT = (
    ("epochs: 3", "epochs: 2"),
    ("checkpoint: {every: 2 steps, keep: 2,", "checkpoint: {every: 5 steps, keep: 2,"),
)


#: Checkpoints all the time, the one before is removed by the next, and evaluation goes by averages.
BUSY = (
    ("epochs: 3", "epochs: 1\n  ema: {decay: 0.7}"),
    ("checkpoint: {every: 2 steps, keep: 2,", "checkpoint: {every: 1 steps, keep: 1,"),
)

#: Gradients of two parts, and an end that the measurements decide.
ENDING = (
    ("epochs: 3", "epochs: 4\n  accumulate: 2\n  early_stopping: {by: eval/loss, mode: min, patience: 2, min_delta: 0.5}"),
    ("batch_size: 8", "batch_size: 4"),
    ("checkpoint: {every: 2 steps, keep: 2,", "checkpoint: {every: 3 steps, keep: 2,"),
)


def harmed(bench: Bench, how: str, instants: int, changes: tuple[tuple[str, str], ...] = SHORT) -> list[dict[str, object]]:
    config = bench.base / "run.yaml"
    text = config.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    config.write_text(text)
    command = [sys.executable, "-W", "ignore", PROGRAM, bench.base, how, str(instants)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300 + 5 * MORE, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    results = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(results) == instants
    (whole,) = (bench.base / "whole").iterdir()
    expected = bench.seen(whole)
    for result in results:
        assert result["wrong"] == [], result
        assert result["again"] == 0, result
        assert bench.seen(Path(result["folder"])) == expected, result
    return results


@pytest.mark.parametrize(
    ("changes", "instants"),
    of_today([pytest.param(SHORT, 12, id="every kind of file"), pytest.param(ENDING, 6, id="accumulation and early stopping")], 2),
)
def test_killed_before_any_call_it_goes_on_bit_for_bit(changes: tuple[tuple[str, str], ...], instants: int, bench: Bench) -> None:
    results = harmed(bench, "kill", MORE or instants, changes)
    codes = [result["code"] for result in results]
    assert set(codes) <= {-signal.SIGKILL, 0}
    # a faster run writes fewer lines of speed, and may end before its last instants
    assert codes.count(-signal.SIGKILL) > len(codes) * 2 // 3
    assert sum("goes on after step" in str(r["text"]) for r in results) == 0, "quiet says nothing"


@on_its_day(1, of=2)
def test_killed_while_a_thread_writes_a_checkpoint_it_goes_on_bit_for_bit(bench: Bench) -> None:
    results = harmed(bench, "saving", MORE or 16, BUSY)
    codes = [result["code"] for result in results]
    assert set(codes) == {-signal.SIGKILL}
    said = [str(result["said"]) for result in results]
    assert all(re.fullmatch(r"killed at \w+ by checkpoint of step \d+", text) for text in said), said
    assert len({text.split()[2] for text in said}) > 3, "at different calls"


@pytest.mark.parametrize(
    ("how", "code", "said"),
    of_today([
        pytest.param("full", ExitCode.DEVICE, "no space left", id="a full disk"),
        pytest.param("readonly", ExitCode.USAGE, "read-only file system", id="a disk that became read-only"),
        pytest.param("failing", ExitCode.DEVICE, "input/output error", id="a disk that fails"),
        pytest.param("files", ExitCode.DEVICE, "too many open files", id="too many open files"),
    ], 4),
)  # fmt: skip
def test_a_disk_that_fails_is_told_and_harms_nothing(bench: Bench, how: str, code: int, said: str) -> None:
    for result in harmed(bench, how, MORE or 4):
        assert result["code"] in (code, 0), result
        assert "Traceback" not in str(result["said"])
        assert "bug of pe" not in str(result["said"])
        if result["code"]:
            assert said in str(result["said"])
            assert "hint: " in str(result["said"])


@on_its_day(0, of=3)
@needs(importlib.util.find_spec("_testcapi") is not None, "a Python with _testcapi")
def test_memory_that_is_refused_is_told_and_harms_nothing(bench: Bench) -> None:
    results = harmed(bench, "memory", MORE or 8)
    for result in results:
        assert result["code"] in (ExitCode.DEVICE, 0), result
        assert "bug of pe" not in str(result["said"])
        if result["code"]:
            assert "memory" in str(result["said"])
            assert "hint: " in str(result["said"])
    assert sum(result["code"] != 0 for result in results) > len(results) // 2


def test_writes_that_take_only_half_are_gone_on_with(bench: Bench) -> None:
    assert [result["code"] for result in harmed(bench, "short", MORE or 3)] == [0] * (MORE or 3)


@on_its_day(0, of=2)
def test_after_a_power_failure_it_goes_on_bit_for_bit_from_what_was_flushed(bench: Bench) -> None:
    """Four disks for every instant: all that was not flushed is lost, is there, has names but no contents, or any of these."""
    instants = MORE // 4 or 9
    text = (bench.base / "run.yaml").read_text()
    for before, after in SHORT:
        text = text.replace(before, after)
    (bench.base / "run.yaml").write_text(text)
    command = [sys.executable, "-W", "ignore", PROGRAM.with_name("cut_while_training.py"), bench.base, str(instants), str(MORE)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300 + 5 * MORE, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    results = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(results) >= 4 * instants
    (whole,) = (bench.base / "whole" / "runs").iterdir()
    expected = bench.seen(whole)
    for result in results:
        assert result["code"] == 0, result
        assert result["began"] >= result["surely"], result
        assert bench.seen(Path(result["folder"])) == expected, result
    assert {result["began"] for result in results if result["how"] == "lost"} > {-1, 5}, "at instants before and after the first checkpoint"


@on_its_day(2, of=3)
def test_a_real_kill_at_any_time_harms_nothing(bench: Bench) -> None:
    """Four processes that are killed some time after they begin to write, one after the other, on one run."""
    long = ["-o", "train.epochs=40", "-o", "output.checkpoint.every=7 steps"]
    whole = bench.train("whole", *long)
    into = bench.base / "pieces"
    command = [sys.executable, "-m", "pe_cli.cli.main", "train", bench.base / "run.yaml", "--resume", "--quiet"]
    command += ["-o", f"output.dir={into}", *long]
    for delay in (0.02, 0.05, 0.09):
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            begin, before = time.monotonic(), _size(into)
            while child.poll() is None and _size(into) == before and time.monotonic() - begin < 60:
                time.sleep(0.002)
            time.sleep(delay)
            child.kill()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (folder,) = into.iterdir()
    assert bench.seen(folder) == bench.seen(whole)


def _size(into: Path) -> int:
    return sum(path.stat().st_size for path in into.glob("*/metrics.jsonl"))
