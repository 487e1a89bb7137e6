"""The file of pe launch --elastic: what it may say, and what happens when it changes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pe_cli.config.load import load_run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.launch import elastic as module
from pe_cli.session.launch.cluster_environment import ClusterEnvironment, Machine, Member
from pe_cli.session.launch.elastic import Elastic
from pe_cli.session.launch.hosts import Host
from pe_cli.session.launch.launch import Launch, launch
from pe_cli.session.launch.plan import Plan, Wanted, plan
from tests.rotation import on_its_day

CONFIG = "configs/digits.yaml"


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.0)


def made(wanted: Wanted) -> Plan:
    return plan(load_run(CONFIG), wanted, ClusterEnvironment(), Machine(cores=8))


def follow(path: Path, said: list[str]) -> Elastic:
    return Elastic(path, Wanted(), made, said.append)


def test_a_number_and_machines_are_followed(tmp_path: Path) -> None:
    path, said = tmp_path / "n", []
    path.write_text("2\n")
    found = follow(path, said)
    assert (found.plan.count, found.plan.way) == (2, "mpiexec")
    assert not found.changed()
    path.write_text("1")
    assert found.changed()
    assert (found.plan.count, found.plan.way) == (1, "alone")
    path.write_text("127.0.0.1:3  # this one\n")
    assert found.changed()
    assert (found.plan.count, found.plan.hosts) == (3, (Host("127.0.0.1", 3),))
    path.write_text("127.0.0.1:3\n")
    assert not found.changed(), "another text that says the same"
    assert said == []


@pytest.mark.parametrize("text", ["banana.example.invalid", "0", "5000", "-3", ""])
def test_a_mistake_is_said_once_and_changes_nothing(tmp_path: Path, text: str) -> None:
    path, said = tmp_path / "n", []
    path.write_text("2")
    found = follow(path, said)
    path.write_text(text)
    assert [found.changed(), found.changed()] == [False, False]
    assert len(said) == 1
    assert f"{path} is not followed: " in said[0]
    path.unlink()
    assert not found.changed()
    path.write_text("3")
    assert found.changed()
    assert found.plan.count == 3


def test_where_others_start_processes_or_nothing_is_kept_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("2")
    found = follow(path, [])
    run = load_run(CONFIG)
    task = ClusterEnvironment(Member(1, 2, "srun", "file", job="1.0.0"), "SLURM_PROCID=1")
    with pytest.raises(PeError, match="--elastic starts other processes, and srun starts them here"):
        launch(Launch(run, [CONFIG], plan(run, Wanted(), task, Machine(cores=8)), task, elastic=found), lambda line, wrong: None)
    keeps_none = load_run(CONFIG, ["output.checkpoint=null"])
    with pytest.raises(PeError, match="--elastic goes on from a checkpoint, and the config writes none"):
        launch(Launch(keeps_none, [CONFIG], found.plan, elastic=found), lambda line, wrong: None)


@on_its_day(1, of=3)
def test_a_training_goes_on_with_as_many_as_the_file_says(tmp_path: Path) -> None:
    """Over parameter servers, which need no MPI: two trainers, then one."""
    path = tmp_path / "n"
    path.write_text("3")
    served = "distributed={mode: parameter_server, servers: 1}"
    line = [sys.executable, "-m", "pe_cli", "launch", "--elastic", path, CONFIG, "-o", served]
    line += ["-o", "train.epochs=100000", "-o", f"output.dir={tmp_path / 'runs'}", "-o", "output.checkpoint={every: 1 epochs}"]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            seen(log, lambda: any(tmp_path.glob("runs/*/checkpoints/step-*")), process)
            path.write_text("2")
            seen(log, lambda: "goes on after step" in log.read_text(), process)
        finally:
            process.terminate()
        code = process.wait(60)
    text = log.read_text()
    assert "instead of 3: 2 processes go on from the last checkpoint of" in text
    assert code in (ExitCode.STOPPED, ExitCode.INTERRUPTED), text


def seen(log: Path, what, process: subprocess.Popen) -> None:
    end = time.monotonic() + 120
    while not what():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
