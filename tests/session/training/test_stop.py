"""What ends training early: signals at any moment, other processes, and files that are gone or damaged."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

import pe_cli
from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.kernels.compiler.cache import DAMAGED, MAGIC, folder
from pe_cli.session.training.stop import StopRequest
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1])}
COMMAND = [sys.executable, "-m", "pe_cli.cli.main"]


@pytest.mark.parametrize("every", ["4 steps", "1 epoch"])
@pytest.mark.parametrize("look", [2, 3, 6, 8, 21])
def test_a_request_at_any_moment_also_inside_an_evaluation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, every: str, look: int
) -> None:
    given = ["-o", f"train.eval_every={every}", "-o", "output.checkpoint.keep=1"]
    whole = bench.seen(bench.train("whole", *given))
    looks = [0]

    def now(self: StopRequest) -> bool:
        looks[0] += 1
        return looks[0] >= look

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "now", property(now))
        folder = bench.train("pieces", *given, code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", folder, "--quiet") == 0, bench.err
    assert bench.seen(folder) == whole


def test_a_second_signal_ends_even_a_step_that_never_returns() -> None:
    """The native call holds the main thread, so that Python's own handlers would wait for its end."""
    code = (
        "import hashlib, os, signal, threading, time\n"
        "from pe_cli.session.training.stop import StopRequest\n"
        "def later():\n"
        "    for _ in range(2):\n"
        "        time.sleep(0.2); os.kill(os.getpid(), signal.SIGINT)\n"
        "with StopRequest() as stop:\n"
        "    threading.Thread(target=later, daemon=True).start()\n"
        "    hashlib.pbkdf2_hmac('sha512', b'', b'', 2**31 - 1)\n"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, timeout=60, check=False)
    assert done.returncode == ExitCode.INTERRUPTED
    assert time.monotonic() - begin < 30


def start(bench: Bench, *arguments: object) -> subprocess.Popen[str]:
    """Start a long training in another process and wait for its first metrics."""
    command = [*COMMAND, "train", bench.base / "run.yaml", "-o", "train.epochs=1000000", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert child.stdout
    for line in child.stdout:
        if line.strip()[:1].isdigit():  # the row of an epoch
            break
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_real_signal_leaves_a_run_that_goes_on_exactly(bench: Bench, number: signal.Signals) -> None:
    fetches = ["-o", "fetches={}", "-o", "train.eval_every=1 epoch", "-o", "output.checkpoint={every: 1 hours, keep: 1}"]
    with start(bench, *fetches) as child:
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
    assert child.returncode == ExitCode.STOPPED, err
    (folder,) = (bench.base / "runs").iterdir()
    step = checkpoint.steps(folder / "checkpoints")[-1]
    epochs = -(-step // 6) + 1
    assert bench.run("train", "--resume", folder, "--quiet", "-o", f"train.epochs={epochs}") == 0, bench.err
    whole = bench.train("whole", *fetches, "-o", f"train.epochs={epochs}")
    assert bench.seen(folder) == bench.seen(whole)


def test_a_second_process_in_a_run_is_refused_until_the_first_one_dies(bench: Bench) -> None:
    with start(bench) as child:
        (folder,) = (bench.base / "runs").iterdir()
        assert bench.run("train", "--resume", folder) == ExitCode.USAGE
        assert f"another process trains in this folder: {child.pid}" in bench.err
        assert json.loads((folder / "status.json").read_text())["state"] == "running"
        while not checkpoint.steps(folder / "checkpoints"):  # a thread writes them
            time.sleep(0.01)
        child.kill()
        child.communicate()
    longer = checkpoint.steps(folder / "checkpoints")[-1] // 6 + 2
    assert bench.run("train", "--resume", folder, "-o", f"train.epochs={longer}") == 0, bench.err


def test_data_that_vanished_is_named_and_may_come_back(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 3, code=ExitCode.STOPPED)
    data = bench.base / "data.npz"
    data.rename(bench.base / "moved.npz")
    assert bench.run("train", "--resume", folder) == ExitCode.DATA
    assert str(data) in bench.err
    moved = [x for use in ("train", "eval") for x in ("-o", f"data.{use}.file={bench.base / 'moved.npz'}")]
    assert bench.run("train", "--resume", folder, *moved) == ExitCode.USAGE, "other data may be anything"
    assert bench.run("train", "--resume", folder, *moved, "--allow-changes", "--max-steps", 1) == ExitCode.STOPPED
    (bench.base / "moved.npz").rename(data)
    whole = [x for use in ("train", "eval") for x in ("-o", f"data.{use}.file={data}")]
    assert bench.run("train", "--resume", folder, *whole, "--allow-changes") == 0
    assert bench.seen(folder) == bench.seen(bench.train("whole"))


def test_fewer_samples_than_before_are_told(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 5, code=ExitCode.STOPPED)
    limit = ["-o", "data.train.limit=12", "--allow-changes"]
    assert bench.run("train", "--resume", folder, *limit) == ExitCode.DATA
    assert "cannot start at batch 5: an epoch has 2 batches" in bench.err


@pytest.mark.parametrize("name", ["metrics.jsonl", "fetches/error.csv"])
def test_outputs_that_were_shortened_are_told(bench: Bench, name: str) -> None:
    folder = bench.train("runs", "--max-steps", 7, code=ExitCode.STOPPED)
    (folder / name).write_text("")
    assert bench.run("train", "--resume", folder) == 0
    assert f"{folder / name}: shorter than it was at the checkpoint" in bench.err


def test_a_disk_that_fills_while_a_thread_writes_a_checkpoint_ends_with_5(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("pe_cli.io.checkpoint.write_safetensors", full)
        folder = bench.train("runs", code=ExitCode.DEVICE)
    assert "no space left" in bench.err
    assert json.loads((folder / "status.json").read_text())["state"] == "failed"
    assert bench.run("train", "--resume", folder) == 0


@on_its_day(1, of=3)
def test_a_damaged_kernel_is_compiled_again_with_a_note(bench: Bench) -> None:
    """A cache of its own, with what is used here; then one object of those that are read is damaged."""
    cache = bench.base / "kernels"
    cache.mkdir()
    environment = ENVIRONMENT | {"PE_CACHE_DIR": str(cache)}
    command = [*COMMAND, "train", str(bench.base / "run.yaml"), "-o", "train.epochs=1"]
    subprocess.run([*command, "--quiet"], env=ENVIRONMENT, check=True, capture_output=True)
    recent = sorted(folder().glob("*.o"), key=lambda path: path.stat().st_mtime)[-400:]
    for path in recent:
        shutil.copy(path, cache)
        os.utime(cache / path.name, (0, 0))
    subprocess.run([*command, "--quiet"], env=environment, check=True, capture_output=True)
    used = min((path for path in cache.glob("*.o") if path.stat().st_mtime), key=lambda path: path.stat().st_size)
    whole = used.read_bytes()
    used.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert DAMAGED in done.stdout
    assert "kernel 1 of 1" in done.stdout
    assert used.read_bytes().startswith(MAGIC)
    assert used.read_bytes() == whole


def test_a_limit_on_the_size_of_files_ends_with_5_and_can_be_lifted(bench: Bench) -> None:
    """The real limit of the system, which needs no rights and no mount; whichever file is first to have more bytes."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2500, -1)); from pe_cli.cli.main import run; "
    command = [sys.executable, "-c", f"{limit}sys.exit(run(sys.argv[1:]))", "train", bench.base / "run.yaml", "--quiet"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == ExitCode.DEVICE, done.stderr
    assert re.search(r"cannot write \S+: file too large: \d+ bytes wanted\n", done.stderr)
    assert "hint: raise the limit on the size of files (ulimit -f), or choose another disk" in done.stderr
    (folder,) = (bench.base / "runs").iterdir()
    assert json.loads((folder / "status.json").read_text())["state"] == "failed"
    assert bench.run("train", "--resume", folder, "--quiet") == 0, bench.err
    assert bench.seen(folder) == bench.seen(bench.train("whole"))


def test_a_clock_that_goes_backwards_harms_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the time of day is an hour before the one before."""
    whole = bench.seen(bench.train("whole"))
    looks = itertools.count()

    class Backwards(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) - timedelta(hours=next(looks))

    monkeypatch.setattr("pe_cli.io.run_folder.datetime", Backwards)
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600 * next(looks))
    every = ["-o", "output.checkpoint.every=2 steps"]
    folder = bench.train("runs", *every, "--max-time", "10m", "--max-steps", 7, code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", folder, "--quiet", "--max-time", "10m") == 0, bench.err
    assert bench.seen(folder) == whole
    assert bench.run("runs", bench.base / "runs", "--json") == 0, bench.err
    (run,) = json.loads(bench.out)
    assert run["state"] == "done"
    assert 0 < run["seconds"] < 600  # by a clock that nobody sets


@on_its_day(0, of=3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ignored", [False, True], ids=["in front", "in the background of a shell"])
def test_a_signal_at_any_moment_of_the_start_ends_it(bench: Bench, number: signal.Signals, ignored: bool) -> None:
    endless = ["train", bench.base / "run.yaml", "-o", "train.epochs=1000000", "-o", f"output.dir={bench.base / 'runs'}", "--quiet"]
    before = signal.getsignal(signal.SIGINT)
    for wait in of_today((0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2), 4):
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a process inherits
        try:
            process = subprocess.Popen([sys.executable, "-m", "pe_cli", *map(str, endless)], stderr=subprocess.PIPE, text=True)
        finally:
            signal.signal(signal.SIGINT, before)
        time.sleep(wait)
        process.send_signal(number)
        early = False
        try:
            _, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:  # ignored, as Python itself had not come to the first instruction
            early = ignored and number == signal.SIGINT and wait < 0.5
            process.send_signal(number)
            _, err = process.communicate(timeout=20)
        early = early or (wait < 0.5 and process.returncode in (-number, 1))
        assert early or process.returncode in (130, 75), (wait, process.returncode, err)
        assert early or "Traceback" not in err
