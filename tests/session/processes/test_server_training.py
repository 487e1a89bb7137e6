"""pe launch with parameter servers: what one process leaves, tables in pieces, and what happens to the lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pe_cli
from pe_cli.build.build import load_and_build
from pe_cli.collectives.protocol import PeerError
from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.service import Service, listen
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from pe_cli.io.table_pieces import Table
from pe_cli.session.job import Job
from pe_cli.session.processes.server_roles import ServerGroup, ServerRole, TrainerGroup
from pe_cli.session.processes.server_training import run_server
from pe_cli.session.processes.trainer_choice import trainer_of
from pe_cli.session.training.resume import Resume
from pe_cli.session.training.stop import Limits
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench

#: Two rows of a table and a number; an id comes twice in a batch, and in both trainers' shares.
TABLE_MODEL = """\
name: rows
feeds:
  words: {shape: [1], dtype: int64, lod_level: 1}
  who:   {shape: [1], dtype: int64}
  y:     {shape: [1], dtype: float32}
layers:
  table:  {type: embedding, input: words, size: [50, 8], is_sparse: true}
  text:   {type: sequence_pool, input: table, pool_type: sum}
  person: {type: embedding, input: who, size: [20, 8], is_sparse: true}
  both:   {type: elementwise_add, x: text, y: person}
  guess:  {type: fc, input: both, size: 1}
  error:  {type: square_error_cost, input: guess, label: y}
  loss:   {type: mean, x: error}
fetches: [loss]
"""
TABLE_CONFIG = """\
model: model.yaml
data:
  train: {reader: synthetic, samples: 22, seed: 1, fields: {words: {shape: [1], dtype: int64, classes: 50, lengths: [1, 4]},
          who: {shape: [1], dtype: int64, classes: 20}, y: {shape: [1]}}}
  eval: {reader: synthetic, samples: 10, seed: 2, fields: {words: {shape: [1], dtype: int64, classes: 50, lengths: [1, 4]},
          who: {shape: [1], dtype: int64, classes: 20}, y: {shape: [1]}}}
feeds: {words: words, who: who, y: y}
train: {loss: loss, epochs: 2, batch_size: 8, optimizer: {type: Adam, learning_rate: 0.05}}
executor: {devices: 1, seed: 3}
output: {dir: RUNS}
"""
KEY, THEIRS = b"k" * 32, b"t" * 32
SERVED = "distributed={{mode: parameter_server, servers: {}, min_block_size: 4{}}}"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let children find the package."""
    monkeypatch.setenv("PYTHONPATH", str(Path(pe_cli.__file__).parents[1]))


def served(bench: Bench, where: str, trainers: int, servers: int, *options: str, **given: Any) -> Path:
    """Train with trainers and servers in threads; return the run's folder, which is gone on with where there is one."""
    errors = errors_of(bench, where, trainers, servers, *options, **given)
    if errors:
        raise min(errors, key=lambda error: isinstance(error, SystemExit))  # of those that speak
    (folder,) = (bench.base / where).iterdir()
    return folder


def errors_of(
    bench: Bench, where: str, trainers: int, servers: int, *options: str, more: str = "", steps: int | None = None,
    agrees: Sequence[str] = ("alike",) * 9, seconds: int = 60,
) -> list[BaseException]:  # fmt: skip
    """Train with trainers and servers in threads, which go on where there is a run; return what they ended with."""
    into = bench.base / where
    wishes = (SERVED.format(servers, more), f"executor.peer_timeout={seconds}", f"output.dir={into}", *options)
    listeners = [listen("127.0.0.1:0") for _ in range(servers)]
    endpoints = [f"127.0.0.1:{each.getsockname()[1]}" for each in listeners]
    resume = Resume(RunFolder.latest(into)) if into.is_dir() else None
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        listener = listeners[rank - trainers] if rank >= trainers else None
        role = ServerRole(rank, trainers + servers, endpoints, listener, {"config": "one", "numpy": agrees[rank]}, key=KEY)
        try:
            run, built = load_and_build(bench.base / "run.yaml", wishes)
            if rank >= trainers:
                run_server(run, built, ServerGroup(role))
                return
            group = TrainerGroup(role, run)
            job = Job(run, built=built, group=group)
            with group.together():
                trainer = trainer_of(job, resume=resume if group.leads else None, limits=Limits(steps=steps))
                trainer.train(given=job.initialise(fresh=resume is None))
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,), name=f"process {rank}", daemon=True) for rank in range(trainers + servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert errors or not any(thread.is_alive() for thread in threads)
    return errors


def tables(bench: Bench) -> None:
    """Train tables with row-sparse gradients instead."""
    (bench.base / "model.yaml").write_text(TABLE_MODEL)
    (bench.base / "run.yaml").write_text(TABLE_CONFIG.replace("RUNS", str(bench.base / "runs")))


def read_in_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of the threads that read rows of tables from here on."""
    found: set[str] = set()
    rows_of = Table.__getitem__

    def told(table: Table, rows: slice) -> np.ndarray:
        found.add(threading.current_thread().name)
        return rows_of(table, rows)

    monkeypatch.setattr(Table, "__getitem__", told)
    return found


def arrays(folder: Path) -> dict[str, np.ndarray]:
    return checkpoint.load(folder / "checkpoints" / "last")[0]


@on_its_day(1, of=3)
def test_one_trainer_with_two_servers_leaves_what_one_process_leaves_bit_for_bit(bench: Bench) -> None:
    """Parameters are cut into pieces on both, with their moments and a schedule of the rate; metrics and fetched arrays are alike, too."""
    one = bench.train("one")
    assert bench.seen(served(bench, "served", 1, 2)) == bench.seen(one)


@on_its_day(0, of=3)
def test_a_stopped_run_goes_on_as_if_never_stopped(bench: Bench) -> None:
    """Two trainers, uneven batches, each with statistics of its own."""
    whole = served(bench, "whole", 2, 1)
    served(bench, "pieces", 2, 1, steps=7)
    assert bench.seen(served(bench, "pieces", 2, 1)) == bench.seen(whole)
    assert "@DEVICE@1" in "".join(arrays(whole))


def test_tables_in_pieces_learn_what_whole_ones_learn_and_load_into_other_numbers_of_servers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pe_cli.session.processes.server_training.MAPPED", 64)  # bytes: as if tables were large
    monkeypatch.setattr("pe_cli.session.processes.sharded_tables.CHUNK", 64)
    tables(bench)
    one = bench.train("one")
    expected, folder = arrays(one), served(bench, "served", 2, 2)
    last = folder / "checkpoints" / "last"
    assert {p.name for p in last.with_name(last.read_text().strip()).iterdir()} > {"rows-0.safetensors", "rows-1.safetensors"}
    assert set(arrays(folder)) == set(expected)
    for name, value in arrays(folder).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert bench.run("eval", folder, "-o", "distributed=null") == 0, bench.err
    monkeypatch.setattr("pe_cli.session.processes.sharded_tables.is_draft", lambda folder: False)  # as if servers did not see the folder
    readers = read_in_threads(monkeypatch)
    served(bench, "served", 2, 3, "train.epochs=3")
    assert readers
    assert not readers & {"process 0", "process 1"}, "servers read their rows, and trainers nothing"
    assert not list(last.with_name(last.read_text().strip()).glob("rows-*"))
    assert bench.run("train", "--quiet", "--resume", one, "-o", "train.epochs=3") == 0, bench.err
    expected = arrays(one)
    for name, value in arrays(folder).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)


#: Rates, decays and clips of single parameters.
OWN_MODEL = """\
name: own
feeds:
  x: {shape: [8], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  a:     {type: fc, input: x, size: 6, act: tanh, bias_attr: {learning_rate: 2.0CLIP},
          param_attr: {learning_rate: 0.3, regularizer: {type: L1Decay, regularization_coeff: 0.02}}}
  b:     {type: fc, input: a, size: 5, act: tanh}
  guess: {type: fc, input: b, size: 1, param_attr: {regularizer: {type: L2Decay, regularization_coeff: 0.0}}}
  error: {type: square_error_cost, input: guess, label: y}
  loss:  {type: mean, x: error}
fetches: [loss]
"""
OWN_CONFIG = """\
model: model.yaml
data: {train: {reader: synthetic, samples: 32, seed: 1, fields: {x: {shape: [8]}, y: {shape: [1]}}}}
train:
  loss: loss
  steps: 6
  batch_size: 8
  optimizer: {type: Momentum, momentum: 0.9, learning_rate: 0.05, regularization: {type: L2Decay, regularization_coeff: 0.01}}
  groups: [{match: b, learning_rate: 4x}, {match: '*.b_0', weight_decay: 0.0}]
executor: {devices: 1, seed: 3}
output: {dir: RUNS}
"""


@pytest.mark.parametrize(
    ("trainers", "sync", "apart"),
    [
        pytest.param(1, "true", 0, id="servers that wait"),
        pytest.param(2, "true", 1e-6, id="two trainers"),
        pytest.param(1, "async", 0, id="servers that do not wait"),
        pytest.param(1, "{geo: 2}", 1e-6, id="a trainer that updates by itself, and sends differences"),
    ],
)
def test_rates_decays_and_clips_of_single_parameters_are_those_of_one_process(bench: Bench, trainers: int, sync: str, apart: float) -> None:
    clip = ", gradient_clip: {type: GradientClipByNorm, clip_norm: 0.05}"  # of a trainer's own gradients
    (bench.base / "model.yaml").write_text(OWN_MODEL.replace("CLIP", clip if trainers == 1 else ""))
    (bench.base / "run.yaml").write_text(OWN_CONFIG.replace("RUNS", str(bench.base / "runs")))
    expected = arrays(bench.train("one"))
    found = arrays(served(bench, "served", trainers, 2, more=f", sync: {sync}"))
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=apart, atol=apart, err_msg=name)


@pytest.mark.parametrize(("trainers", "sync"), [(1, "true"), (1, "async"), (1, "half_async"), (2, "true")])
def test_rows_that_are_looked_up_decay_as_in_one_process(bench: Bench, trainers: int, sync: str) -> None:
    tables(bench)
    wishes = ("train.optimizer={type: Adagrad, learning_rate: 0.05, regularization: {type: L2Decay, regularization_coeff: 0.1}}",)
    expected = arrays(bench.train("one", *(word for wish in wishes for word in ("-o", wish))))
    found = arrays(served(bench, "served", trainers, 2, *wishes, more=f", sync: {sync}"))
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5 * (trainers > 1), atol=1e-6 * (trainers > 1), err_msg=name)


@pytest.mark.parametrize("sync", of_today(["async", "half_async", "{geo: 2}"], 3))
def test_trainers_that_wait_for_nobody_learn_too(bench: Bench, sync: str) -> None:
    tables(bench)
    folder = served(bench, "apart", 2, 1, "train.epochs=4", more=f", sync: {sync}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["split"] == "train"]
    assert losses[-1] < losses[0]
    assert lines[-1]["step"] == 12, "a step of each trainer is a step"


@pytest.mark.parametrize("optimizer", ["Lamb", "Muon", "Adafactor", "LarsMomentum, momentum: 0.9"])
def test_a_parameter_whose_update_looks_at_all_of_it_is_whole_on_one_server(bench: Bench, optimizer: str) -> None:
    wish = f"train.optimizer={{type: {optimizer}, learning_rate: 0.02}}"
    one = bench.train("one", "-o", wish, "-o", "train.steps=4")
    assert bench.seen(served(bench, "served", 1, 2, wish, "train.steps=4")) == bench.seen(one)


@on_its_day(0, of=3)
@pytest.mark.parametrize("sync", ["true", "async", "half_async", "{geo: 2}"])
def test_a_schedule_in_epochs_is_as_long_as_without_servers(bench: Bench, sync: str) -> None:
    """Servers open no data: trainers tell them how many steps an epoch has."""
    schedule = "train.optimizer.learning_rate={type: polynomial_decay, learning_rate: 0.01, decay_steps: 3 epochs}"
    one = bench.train("one", "-o", schedule)
    apart = served(bench, "served", 1, 2, schedule, more=f", sync: {sync}")
    if sync == "true":
        assert bench.seen(apart) == bench.seen(one)
    rates = [
        [line["learning_rate"] for line in map(json.loads, (f / "metrics.jsonl").read_text().splitlines()) if line["split"] == "train"]
        for f in (one, apart)
    ]
    assert rates[0][-1] < rates[0][0] / 5
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-6)


def test_a_trainer_with_another_version_is_named(bench: Bench) -> None:
    """The server says so, and ends; who has come is told why."""
    with pytest.raises(PeError, match=r"trainer 1 has another numpy than server 127\.0\.0\.1:\d+: older, not alike") as found:
        served(bench, "other", 2, 1, agrees=("alike", "older", "alike"))
    assert found.value.code == ExitCode.USAGE


def test_a_server_takes_no_port_where_another_group_has_the_first_one(bench: Bench) -> None:
    first = listen("127.0.0.1:0")
    taken, free = (f"127.0.0.1:{first.getsockname()[1]}", "127.0.0.1:1")  # whose use would be another error
    theirs = Service(taken, 1, 20.0, 0, key=THEIRS, listener=first)
    serving = threading.Thread(target=theirs.run, args=(lambda request: None, lambda: None), daemon=True)
    serving.start()
    run, built = load_and_build(bench.base / "run.yaml", (SERVED.format(2, ""), "executor.peer_timeout=20"))
    with pytest.raises(PeError, match=f"server {taken}: it serves another group of processes") as found:
        run_server(run, built, ServerGroup(ServerRole(2, 3, [taken, free], group="ours", key=KEY)))
    assert found.value.code == ExitCode.USAGE
    Servers([taken], 0, 20.0, 0, key=THEIRS).leave()
    serving.join(20)


def test_fewer_rows_than_trainers_are_refused(bench: Bench) -> None:
    with pytest.raises(PeError, match=r"data\.train has 2 rows for 3 processes that train") as found:
        served(bench, "few", 3, 1, "data.train.limit=2")
    assert found.value.code == ExitCode.DATA


@pytest.mark.parametrize("checked", ["true", "false"])
def test_what_all_trainers_meet_is_told_by_one(bench: Bench, checked: str) -> None:
    """Servers apply a gradient that is too large, and all trainers meet what follows in one step."""
    too_large = ("train.optimizer={type: SGD, learning_rate: 1e38}", f"executor.check_nan_inf={checked}")
    errors = errors_of(bench, "large", 3, 1, *too_large)
    (spoken,) = [error for error in errors if isinstance(error, PeError) and not isinstance(error, PeerError)]
    assert spoken.code == ExitCode.DIVERGED
    assert sorted(error.code for error in errors if isinstance(error, SystemExit)) == [ExitCode.DIVERGED] * 2
    (folder,) = (bench.base / "large").iterdir()
    assert RunFolder(folder).read_status()["state"] == "failed"


def test_the_first_server_says_why_a_run_has_failed_whose_launcher_was_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listen("127.0.0.1:0")
    endpoints = [f"127.0.0.1:{listener.getsockname()[1]}"]
    run, built = load_and_build(bench.base / "run.yaml", (SERVED.format(1, ""), "executor.peer_timeout=20"))
    ended: list[PeError] = []

    def serve() -> None:
        try:
            run_server(run, built, ServerGroup(ServerRole(1, 2, endpoints, listener, key=KEY)))
        except PeError as error:
            ended.append(error)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    group = TrainerGroup(ServerRole(0, 2, endpoints, key=KEY), run)
    folder = RunFolder.create(bench.base / "killed", "run", run.text, "", {}, model_text="")
    folder.status(state="running")
    group.trains_in(folder.path)
    monkeypatch.setattr(os, "getppid", lambda: -1)  # of an orphan it is 1 before, too
    group.servers._drop()
    serving.join(20)
    assert [error.code for error in ended] == [ExitCode.PEER_LOST]
    status = folder.read_status()
    assert status["state"] == "failed"
    assert "trainer 0 is lost: it closed the connection without leaving" in str(status["error"])


def _trainer(number: int, config: Path) -> int:
    """Return the process id of a trainer."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            said, told = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue
        if str(config).encode() in said and b"train\0" in said and f"PE_RANK={number}\0".encode() in told:
            return int(path.name)
    raise AssertionError("it has ended")


@on_its_day(2, of=3)
def test_a_killed_trainer_ends_all_with_6_and_the_others_go_on_from_the_last_checkpoint(bench: Bench) -> None:
    into = bench.base / "killed"
    line = [sys.executable, "-m", "pe_cli", "launch", "-n", "3", "--restarts", "1", bench.base / "run.yaml", "--quiet"]
    endless = ["-o", "train.epochs=1000000", "-o", "executor.peer_timeout=20", "-o", f"output.dir={into}", "-o", SERVED.format(1, "")]
    started = subprocess.Popen([*map(str, line), *endless], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not list(into.glob("*/checkpoints/last")):
            assert started.poll() is None, started.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(_trainer(1, bench.base / "run.yaml"), signal.SIGKILL)
        assert started.stderr is not None
        said = []
        while not any("restart 1 of 1: 2 processes go on from the last checkpoint" in text for text in said):
            said.append(started.stderr.readline())
            assert said[-1], said
        (run,) = into.iterdir()
        assert "trainer 1 is lost" in json.loads((run / "status.json").read_text())["error"]
        assert any("trainer 1 is lost" in text for text in said)
        first = checkpoint.steps(run / "checkpoints")[-1]
        while checkpoint.steps(run / "checkpoints")[-1] <= first:
            assert started.poll() is None, said
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(_trainer(0, run), signal.SIGKILL)
        _, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == ExitCode.PEER_LOST, err
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["error"]) == ("failed", "process 0 was ended by signal 9")
