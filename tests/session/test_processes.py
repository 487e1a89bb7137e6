"""pe train in several processes: what one process with as many devices leaves, bit for bit, and no hanging when one is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.session.training.stop import SIGNALS
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench

pytestmark = needs_mpi
#: Ends by itself only after an hour.
ENDLESS = ("-o", "train.epochs=1000000", "-o", "output.checkpoint.every=100 steps")


#: Runs pe in a child, whose process id, exit code and errors it leaves. When the child is killed, it waits until another has ended:
#: the launcher, which would kill all, sees nothing, as with a machine that is gone. It also waits for the first one's end, so that the
#: child need not linger for that.
PROCESS = """
import os, sys, time
from pathlib import Path
PE = "import runpy; from pe_cli.session.processes import peer_group as g; g.LINGER = 0.0"
PE += "; runpy.run_module('pe_cli.cli.main', None, '__main__', True)"
rank, here = os.environ["PMI_RANK"], Path(__file__).parent
child = os.fork()
if child == 0:
    os.dup2(os.open(here / f"err.{rank}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)
    os.execv(sys.executable, [sys.executable, "-c", PE, *sys.argv[1:]])
(here / f"pid.{rank}").write_text(str(child))
_, status = os.waitpid(child, 0)
code = os.waitstatus_to_exitcode(status)
for _ in range(600):
    if code < 0 and not list(here.glob("code.*")):
        time.sleep(0.05)
os.write(2, (here / f"err.{rank}").read_bytes())
(here / f"code.{rank}").write_text(str(code))
for _ in range(200):  # the launcher ends all when one ends with another code than 0
    if code and len(list(here.glob("code.*"))) < int(os.environ["PMI_SIZE"]):
        time.sleep(0.05)
time.sleep(0.5 * (rank != "0"))
sys.exit(code)
"""


#: Runs pe as the command does, with the process between it and the launcher; leaves the process id of what trains.
OVERSEEN = """
import os
from pathlib import Path
from pe_cli.__main__ import _lost, main
from pe_cli.collectives.process_supervisor import supervise
supervise(_lost)
Path(__file__).with_name(f"pid.{os.environ['PMI_RANK']}").write_text(str(os.getpid()))
main()
"""


def start(bench: Bench, where: str, *arguments: object, processes: int = 2, program: str = PROCESS):
    (bench.base / "process.py").write_text(program)
    for left in bench.base.glob("code.*"):
        left.unlink()
    line = [bench.base / "process.py", "train", bench.base / "run.yaml", "--quiet", "-o", "executor.processes=auto"]
    into = ["-o", f"output.dir={bench.base / where}"]
    return mpiexec(processes, *line, *into, *arguments)


def train(bench: Bench, where: str, *arguments: object, code: int = 0, processes: int = 2) -> Path:
    found, out, err = finished(start(bench, where, *arguments, processes=processes))
    assert found == code, err
    bench.out, bench.err = out, err
    (folder,) = (bench.base / where).iterdir()
    return folder


MORE = ("-o", "train.accumulate=2", "-o", "output.gradient_norms=true", "-o", "train.ema.decay=0.9")


SYNC = ("-o", "build_strategy.sync_batch_norm=true")


@pytest.mark.parametrize("options", [(), MORE, SYNC], ids=["as it is", "accumulated, averaged, with lengths of gradients", "sync"])
def test_two_processes_leave_what_two_devices_leave_bit_for_bit(bench: Bench, options: tuple[str, ...]) -> None:
    """Metrics, fetched arrays, parameters, moments and each device's running statistics, of uneven batches too."""
    several = train(bench, "several", *options)
    assert bench.out.count("done: step") == 1, "the first process alone speaks"
    one = bench.train("one", "-o", "executor.devices=2", *options)
    assert bench.seen(several) == bench.seen(one)
    arrays, _ = checkpoint.load(several / "checkpoints" / "last")
    assert any(name.endswith("@DEVICE@1") for name in arrays)


def test_two_processes_with_two_devices_leave_what_four_devices_leave_bit_for_bit(bench: Bench) -> None:
    several = train(bench, "several", "-o", "executor.devices=2")
    assert bench.seen(several) == bench.seen(bench.train("one", "-o", "executor.devices=4"))


@on_its_day(0, of=3)
def test_a_stopped_run_goes_on_bit_for_bit_in_as_many_processes(bench: Bench) -> None:
    train(bench, "pieces", "--max-steps", 7, code=ExitCode.STOPPED)
    folder = train(bench, "pieces", "--resume")
    assert bench.seen(folder) == bench.seen(bench.train("whole", "-o", "executor.devices=2"))  # what two processes leave, as above


def test_a_run_of_two_processes_goes_on_in_one(bench: Bench) -> None:
    folder = train(bench, "pieces", "--max-steps", 7, code=ExitCode.STOPPED)
    assert (
        bench.run("train", "--resume", folder, "--quiet", "-o", "executor.processes=1", "-o", "executor.devices=2") == 0
    ), bench.err
    assert bench.seen(folder) == bench.seen(bench.train("one", "-o", "executor.devices=2"))


@pytest.mark.parametrize("strategy", [pytest.param("Reduce", marks=on_its_day(0, of=3)), "Shard"])
def test_owners_of_rows_go_on_from_a_run_of_one_process_and_one_from_theirs_bit_for_bit(bench: Bench, strategy: str) -> None:
    """What processes divide is whole in a checkpoint, or in parts that any number of processes reads."""
    average, two = ("-o", "train.ema.decay=0.9"), ("-o", "executor.devices=2")
    folder = bench.train("pieces", *average, *two, "--max-steps", 4, code=ExitCode.STOPPED)
    reduce = ("-o", "executor.devices=1", "-o", f"build_strategy.reduce_strategy={strategy}")
    train(bench, "pieces", "--resume", *average, *reduce, "--max-steps", 7, code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", folder, "--quiet", "-o", "executor.processes=1", *two) == 0, bench.err
    assert bench.seen(folder) == bench.seen(bench.train("one", *average, *two))


@on_its_day(2, of=3)
def test_a_table_is_read_in_parts_and_goes_on_in_another_number_of_processes(bench: Bench) -> None:
    """Four processes and then two see the same rows in the same order as one."""
    line = [Path(__file__).parents[2] / "configs" / "people.yaml", "--quiet", "-o", "train.epochs=1", "-o", "fetches.x.every=1 step"]
    program = bench.base / "process.py"
    program.write_text(PROCESS)
    several = ["-o", "executor.processes=auto", "-o", f"output.dir={bench.base / 'several'}"]
    code, _, err = finished(mpiexec(4, program, "train", *line, *several, "--max-steps", 5))
    assert code == ExitCode.STOPPED, err
    (folder,) = (bench.base / "several").iterdir()
    code, _, err = finished(mpiexec(2, program, "train", "--resume", folder, "--quiet", "--max-steps", 6))
    assert code == ExitCode.STOPPED, err
    one = ["-o", "executor.devices=1", "-o", f"output.dir={bench.base / 'one'}", "--max-steps", "11"]
    assert bench.run("train", *line, *one) == ExitCode.STOPPED, bench.err
    found, whole = (np.load(path / "fetches" / "x.npz") for path in (folder, next((bench.base / "one").iterdir())))
    assert found["step"].tolist() == list(range(1, 12))
    np.testing.assert_array_equal(found["x"], whole["x"])


def test_texts_are_shared_out_between_processes_as_between_devices(bench: Bench) -> None:
    """Lengths differ, so that what the others have is not known from the number of texts."""
    line = [Path(__file__).parents[2] / "configs" / "topics.yaml", "--quiet", "--max-steps", "3", "-o"]
    program = bench.base / "process.py"
    program.write_text(PROCESS)
    several = ["executor.processes=auto", "-o", "executor.devices=1", "-o", f"output.dir={bench.base / 'several'}"]
    code, _, err = finished(mpiexec(2, program, "train", *line, *several))
    assert code == ExitCode.STOPPED, err
    assert bench.run("train", *line, f"output.dir={bench.base / 'one'}") == ExitCode.STOPPED
    (ours,), (theirs,) = ((bench.base / name).iterdir() for name in ("several", "one"))
    assert (ours / "metrics.jsonl").read_text() == (theirs / "metrics.jsonl").read_text()
    arrays = [checkpoint.load(folder / "checkpoints" / "last")[0] for folder in (ours, theirs)]
    assert {n: a.tobytes() for n, a in arrays[0].items()} == {n: a.tobytes() for n, a in arrays[1].items()}


def test_several_processes_measure_and_predict_what_one_does(bench: Bench) -> None:
    """Rows that batches and processes do not divide; the first process alone writes and speaks, also where the training has servers."""
    folder = bench.train("one", "-o", "executor.devices=2", "--max-steps", 4, code=ExitCode.STOPPED)
    (bench.base / "process.py").write_text(PROCESS)

    def several(*line: object) -> str:
        mpi = ["-o", "executor.processes=auto", "-o", "executor.devices=1"]
        code, out, err = finished(mpiexec(2, bench.base / "process.py", *line, *mpi))
        assert code == 0, err
        return out

    assert bench.run("eval", folder, "--split", "train") == 0, bench.err
    assert several("eval", folder, "--split", "train") == bench.out
    assert "(44 samples" in bench.out
    files = [bench.base / "ours.npz", bench.base / "theirs.npz"]
    asked = ["predict", folder, "--split", "train", "--raw", "--fetch", "guess", "--fetch", "loss", "--fetch", "y", "--out"]
    said = several(*asked, files[0], "-o", "distributed={mode: parameter_server, servers: 1}")
    assert said.count("\n") == 1
    assert bench.run(*asked, files[1]) == 0, bench.err
    assert said.partition(", ")[0] == bench.out.partition(", ")[0]
    with np.load(files[0]) as ours, np.load(files[1]) as theirs:
        assert {n: ours[n].tobytes() for n in ours.files} == {n: theirs[n].tobytes() for n in theirs.files}


@on_its_day(1, of=3)
def test_limits_of_time_and_metrics_end_all(bench: Bench) -> None:
    train(bench, "time", *ENDLESS, "--max-time", "1s", code=ExitCode.STOPPED)
    early = "train.early_stopping={by: eval/loss, mode: max, patience: 2}"
    train(bench, "early", *ENDLESS, "-o", early)
    assert "stopped early" in next((bench.base / "early").glob("*/log.txt")).read_text()


def test_errors_are_told_once_and_end_all_and_the_launcher_with_their_code(bench: Bench) -> None:
    nan = ("-o", "train.optimizer.learning_rate=1e30")
    found, _, err = finished(start(bench, "nan", *nan, processes=3, program=OVERSEEN))
    assert found == ExitCode.DIVERGED, err
    assert err.count("error: ") == 1
    assert "the loss 'loss'" in err or "is not finite" in err


def test_an_error_of_one_process_ends_the_others_with_its_code(bench: Bench) -> None:
    """A file stands where the first process, which alone writes, had its checkpoints: whatever it does then, it can't write."""
    folder = bench.base / "full"
    started = start(bench, "full", *ENDLESS)
    _until(started, folder)
    (run,) = folder.iterdir()
    writer = _processes(bench)[0]
    os.kill(writer, signal.SIGSTOP)  # for it, both happen at once
    (run / "checkpoints").rename(run / "gone")
    (run / "checkpoints").write_text("a file where a folder was")
    os.kill(writer, signal.SIGCONT)
    finished(started)  # its own code is that of whichever process the launcher hears of first, or of the other, which it kills
    codes, errors = zip(_left(bench, 0), _left(bench, 1), strict=True)
    assert codes == (ExitCode.USAGE, ExitCode.USAGE), errors
    assert errors[0].count("error: ") == 1
    assert errors[1] == "", "the process that has met it says so"


def _until(started: subprocess.Popen[str], folder: Path, *, seconds: float = 60.0) -> None:
    """Wait for the first checkpoint."""
    end = time.monotonic() + seconds
    while not list(folder.glob("*/checkpoints/last")):
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def _processes(bench: Bench) -> list[int]:
    """Return the ids of the processes that train, by rank."""
    return [int((bench.base / f"pid.{rank}").read_text()) for rank in range(2)]


def _left(bench: Bench, rank: int) -> tuple[int, str]:
    """Return the exit code and errors of one process."""
    return int((bench.base / f"code.{rank}").read_text()), (bench.base / f"err.{rank}").read_text()


@pytest.mark.parametrize(
    ("how", "lost"),
    of_today([
        pytest.param(signal.SIGSTOP, 0, id="the first stands still"),
        pytest.param(signal.SIGSTOP, 1, id="the second stands still"),
        pytest.param(signal.SIGKILL, 1, id="the second is killed"),
    ], 3),
)
def test_a_lost_process_ends_the_other_with_6_and_it_goes_on_from_the_checkpoint(
    bench: Bench, how: signal.Signals, lost: int
) -> None:
    folder = bench.base / "lost"
    started = start(bench, "lost", *ENDLESS, "-o", "executor.peer_timeout=5", program=OVERSEEN)
    _until(started, folder)
    ids = _processes(bench)
    os.kill(ids[lost], how)
    try:
        code, _, err = finished(started, 60)
    finally:
        for each in ids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    assert code == ExitCode.PEER_LOST, "mpiexec ends all, and itself with this code"
    assert f"error: process {lost} of 2 " in err
    assert ("was ended by signal 9" in err) is (how == signal.SIGKILL)
    assert f"this is process {1 - lost}" in err
    assert ", at step " in err
    (run,) = folder.iterdir()
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "failed"
    assert f"process {lost} of 2" in status["error"]
    assert f"hint: mpiexec -n 2 pe train --resume {run} goes on from the last checkpoint" in err
    step = checkpoint.steps(run / "checkpoints")[-1]
    one = ("-o", "executor.processes=1", "--max-steps", 1)
    assert bench.run("train", "--resume", run, "--quiet", *one) == ExitCode.STOPPED
    assert bench.out.startswith(f"stopped at step {step + 1}, ")


@pytest.mark.parametrize("number", of_today(SIGNALS, 2), ids=lambda s: s.name)
def test_a_signal_to_one_process_stops_all_with_a_checkpoint(bench: Bench, number: signal.Signals) -> None:
    started = start(bench, "stopped", *ENDLESS)
    _until(started, bench.base / "stopped")
    os.kill(_processes(bench)[1], number)
    code, out, err = finished(started)
    assert code == ExitCode.STOPPED, err
    assert out.startswith("stopped at step ")


#: Runs pe with what only the second process has.
DIFFERENT = """
import os, sys
from pathlib import Path
from pe_cli.cli.main import run
second, what = os.environ["PMI_RANK"] == "1", sys.argv[2]
if second and what == "CPU_NUM":
    os.environ["CPU_NUM"] = "many"
config = Path(sys.argv[1])
if second and what == "data":  # another folder under the same path, as on another machine
    import numpy as np
    from pe_cli.data.reader_context import Origin
    np.savez(config.parent / "other.npz", x=np.ones((44, 4), np.float32), y=np.ones((44, 1), np.float32))
    find = Origin.find
    Origin.find = lambda self, name: find(self, "other.npz")
size = 9 if second and what == "config" else 8
auto = ["-o", "executor.devices=auto"]
sys.exit(run(["train", str(config), "-o", "executor.processes=auto", *auto, "-o", f"train.batch_size={size}"]))
"""


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("config", ExitCode.USAGE, "another config than process 0: batch_size: 9, not batch_size: 8"),
        ("data", ExitCode.DATA, "another data than process 0: other.npz ("),
    ],
)
def test_a_process_that_has_something_else_is_named_and_all_end(bench: Bench, what: str, code: ExitCode, said: str) -> None:
    program = bench.base / "different.py"
    program.write_text(DIFFERENT)
    found, _, err = finished(mpiexec(2, program, bench.base / "run.yaml", what), 50)  # seconds; the timeout is 60
    assert found == code, err
    assert err.count(f"error: process 1 has {said}") == 1, err


def test_a_mistake_on_one_machine_ends_all_at_once(bench: Bench) -> None:
    program = bench.base / "different.py"
    program.write_text(DIFFERENT)
    code, _, err = finished(mpiexec(2, program, bench.base / "run.yaml", "CPU_NUM"), 50)  # seconds; the timeout is 60
    assert code == ExitCode.USAGE, err
    assert "error: the environment variable CPU_NUM is 'many'" in err


def test_cores_are_divided_by_the_processes_of_a_machine(bench: Bench) -> None:
    folder = train(bench, "auto", "-o", "executor.devices=auto", "--max-steps", 1, code=ExitCode.STOPPED)
    cores = len(os.sched_getaffinity(0))
    said = r"devices: (\d+) cpu \(cores of a machine, divided by its processes\) in each of 2 processes"
    found = re.search(said, (folder / "log.txt").read_text())
    assert found
    assert 1 <= int(found[1]) <= max(1, cores // 2)  # of the cores that are of use to so small a net
