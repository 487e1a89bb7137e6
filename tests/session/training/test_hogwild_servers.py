"""Asynchronous training over processes: threads of each share its parameters, and servers have those of all."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from pe_cli.build.build import load_and_build
from pe_cli.collectives.servers.service import listen
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import Dataset
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.job import Job
from pe_cli.session.processes.server_roles import ServerGroup, ServerRole, TrainerGroup
from pe_cli.session.processes.server_training import run_server
from pe_cli.session.processes.trainer_choice import trainer_of
from pe_cli.session.training.hogwild import AsyncTrainer
from pe_cli.session.training.resume import Resume
from pe_cli.session.training.stop import Limits
from tests.rotation import of_today
from tests.session.training.test_hogwild import MODEL, RUN, WORTH, write_files

SERVED = "distributed={{mode: parameter_server, servers: {}, sync: {}, min_block_size: 2}}"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(MODEL.replace("size: [4, 1]", "size: [4, 1], is_sparse: true"), RUN.replace("checkpoint: ~", "dir: runs"))


def train(trainers: int, servers: int, sync: str, *options: str, steps: int | None = None) -> Path:
    """Train with processes that are threads here; return the run's folder, which is gone on with where there is one.

    Raises:
        BaseException: the first that one of them ends with.
    """
    wishes = (SERVED.format(servers, sync), *options)
    listeners = [listen("127.0.0.1:0") for _ in range(servers)]
    endpoints = [f"127.0.0.1:{each.getsockname()[1]}" for each in listeners]
    resume = Resume(RunFolder.latest(Path("runs"))) if Path("runs").is_dir() else None
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        role = ServerRole(rank, trainers + servers, endpoints, listeners[rank - trainers] if rank >= trainers else None, key=b"k" * 32)
        try:
            run, built = load_and_build("run.yaml", wishes)
            if rank >= trainers:
                run_server(run, built, ServerGroup(role))
                return
            group = TrainerGroup(role, run)
            with group.together():
                job = Job(run, built=built, group=group)
                trainer = trainer_of(job, resume=resume if group.leads else None, limits=Limits(steps=steps))
                trainer.train(given=job.initialise(fresh=resume is None))
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(trainers + servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    for error in errors:
        if not isinstance(error, SystemExit):
            raise error
    assert not any(thread.is_alive() for thread in threads)
    return next(Path("runs").iterdir())


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("trainers", "servers", "sync"), of_today([(1, 1, "async"), (2, 1, "async"), (3, 2, "half_async"), (2, 2, "{geo: 3}")], 4)
)
def test_threads_of_all_processes_learn_one_table(trainers: int, servers: int, sync: str) -> None:
    folder = train(trainers, servers, sync, "output.checkpoint={every: 12 epochs}")
    found = checkpoint.load(folder / "checkpoints" / "last")[0]["embedding_0.w_0"]
    np.testing.assert_allclose(found.ravel(), WORTH, atol=0.1)
    last = lines(folder)[-1]
    assert last["split"] == "eval"
    assert last["loss"] < 0.05
    assert last["step"] == 12 * 15, "steps of all files, as one process counts them"


def test_a_run_that_was_stopped_goes_on_with_as_many_steps(tmp_path: Path) -> None:
    rate = "train.optimizer.learning_rate={type: polynomial_decay, learning_rate: 0.5, decay_steps: 60, end_learning_rate: 0.1}"
    folder = train(2, 1, "async", rate, "train.epochs=4", steps=23)
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["step"], status["epoch"]) == ("stopped", 23, 1), "the second epoch begins anew"
    train(2, 1, "async", rate, "train.epochs=4")
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["step"], status["epoch"]) == ("done", 23 + 3 * 15, 4)
    arrays = checkpoint.load(folder / "checkpoints" / "last")[0]
    (counter,) = (value for name, value in arrays.items() if "COUNTER" in name)
    assert counter.ravel()[0] == 23 + 3 * 15 - 1, "the rate goes by the steps of all trainers, before the run was stopped, too"


def test_steps_are_those_of_all_processes() -> None:
    folder = train(2, 1, "async", "train.epochs=null", "train.steps=50")
    assert json.loads((folder / "status.json").read_text())["step"] == 50


def test_processes_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[int, set[str]] = {}
    made = AsyncTrainer._open

    def told(trainer: AsyncTrainer) -> list[Dataset]:
        found = made(trainer)
        trainer.job.data.dataset("train")
        opened[trainer.job.group.rank] = {path.name for path in trainer.job.data.prepared.sources.read}
        return found

    monkeypatch.setattr(AsyncTrainer, "_open", told)
    train(2, 1, "async", "train.epochs=1")
    assert opened == {0: {"a.txt", "c.txt"}, 1: {"b.txt"}}


def test_fewer_files_than_processes_are_refused() -> None:
    with pytest.raises(PeError, match=r"data\.train has 3 files for 4 processes that train") as caught:
        train(4, 1, "async")
    assert caught.value.code == ExitCode.DATA


def test_what_is_watched_within_epochs_is_refused() -> None:
    with pytest.raises(PeError, match="'train/loss' is measured within epochs") as caught:
        train(2, 1, "async", "train.early_stopping={by: train/loss, mode: min, patience: 2}")
    assert "fetches.loss.every: 1 epoch" in caught.value.hint
    train(2, 1, "async", "train.early_stopping={by: train/loss, mode: min, patience: 2}", "fetches.loss.every=1 epoch", "train.epochs=2")


def test_servers_that_wait_for_all_are_refused() -> None:
    with pytest.raises(PeError, match=r"distributed\.sync: true: servers wait for one gradient of every trainer"):
        load_and_build("run.yaml", [SERVED.format(1, "true")])
