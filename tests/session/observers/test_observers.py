"""Observers of other programs: what they are told, and that none of them can end or hold up a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pe_cli.config.load import load_run
from pe_cli.session.observer import Start
from pe_cli.session.observers import observer_processes
from tests.cli.conftest import Pe

#: Writes every call of a package's functions into a file, and does what the test wants at one of them.
FAKE = """\
import json, os, time, types

def _told(name, /, *values, **keys):
    with open(os.environ["FAKE_CALLS"], "a") as file:
        file.write(json.dumps([name, list(values), keys], default=str) + "\\n")
    wanted, _, how = os.environ.get("FAKE_DOES", "").partition(":")
    if wanted == name:
        if how == "raise":
            raise RuntimeError("no such server")
        if how == "die":
            os._exit(9)
        time.sleep(600)

class Run:
    def __init__(self, id): self.info = types.SimpleNamespace(run_id=id)
    def __getattr__(self, name): return lambda *values, **keys: _told("run." + name, *values, **keys)

def search_runs(**keys):
    _told("search_runs", **keys)
    return [Run("r1")]

def init(**keys):
    _told("init", **keys)
    return Run("r1")

def __getattr__(name):
    return lambda *values, **keys: _told(name, *values, **keys)
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the calls of packages called mlflow and wandb, which are found before any that are installed."""
    site = tmp_path / "site"
    site.mkdir()
    for name in ("mlflow", "wandb"):
        (site / f"{name}.py").write_text(FAKE)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def read(calls: Path, name: str) -> list[Any]:
    found = [json.loads(line) for line in calls.read_text().splitlines()]
    return [call for call in found if call[0] == name]


def ask(config: Path, observers: str, more: str = "") -> None:
    text = config.read_text().replace("output: {", f"output: {{observers: {observers}, {more}")
    config.write_text(text)


def test_mlflow_gets_config_tags_metrics_and_the_end(pe: Pe, config: Path, calls: Path) -> None:
    ask(config, "{mlflow: {uri: 'file:/somewhere', experiment: lines}}", "tags: [first], note: why, ")
    assert pe("train", config, "--quiet").code == 0
    assert read(calls, "set_tracking_uri") == [["set_tracking_uri", ["file:/somewhere"], {}]]
    assert read(calls, "set_experiment") == [["set_experiment", ["lines"], {}]]
    run = next((config.parent / "runs").glob("line-*"))
    (begun,) = read(calls, "start_run")
    assert begun[2] == {"run_name": run.name, "tags": {"pe.folder": str(run), "first": "true"}, "description": "why"}
    assert read(calls, "log_params")[0][1][0]["train.optimizer.learning_rate"] == "0.1"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = [(line["step"], {f"{line['split']}/loss": line["loss"]}) for line in lines]
    told = [(call[2]["step"], {k: v for k, v in call[1][0].items() if k.endswith("loss")}) for call in read(calls, "log_metrics")]
    assert told == wanted
    assert read(calls, "end_run") == [["end_run", ["FINISHED"], {}]]
    assert pe("train", config, "--quiet", "--resume", "-o", "train.epochs=3").code == 0
    assert read(calls, "start_run")[1:] == [["start_run", [], {"run_id": "r1"}]]


def test_wandb_goes_on_with_the_run_of_the_folder(pe: Pe, config: Path, calls: Path) -> None:
    ask(config, "{wandb: {project: lines, mode: offline}}", "tags: [first], ")
    said = pe("train", config)
    assert said.code == 0
    assert "observer" not in said.err
    assert pe("train", config, "--quiet", "--resume", "-o", "train.epochs=3").code == 0
    first, second = (call[2] for call in read(calls, "init"))
    assert (first["project"], first["mode"], first["tags"], first["config"]["train"]["batch_size"]) == ("lines", "offline", ["first"], 16)
    assert first["id"] == second["id"]
    logged = [call[1][0] for call in read(calls, "run.log")]
    assert [line["step"] for line in logged if "eval/loss" in line] == [3, 6, 9]
    assert [call[2] for call in read(calls, "run.finish")] == [{"exit_code": 0}] * 2


@pytest.mark.parametrize(
    ("does", "why"),
    [
        pytest.param("start_run:raise", "RuntimeError: no such server", id="it raises at the start"),
        pytest.param("log_metrics:raise", "RuntimeError: no such server", id="it raises in between"),
        pytest.param("log_metrics:die", "its process ended", id="it dies"),
    ],
)
def test_an_observer_that_fails_is_told_once_and_changes_no_bit(
    pe: Pe, config: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, does: str, why: str
) -> None:
    assert pe("train", config, "--quiet").code == 0
    plain = next((config.parent / "runs").glob("line-*"))
    monkeypatch.setenv("FAKE_DOES", does)
    ask(config, "{mlflow: {}}", "name: watched, ")
    said = pe("train", config)
    assert said.code == 0
    assert said.err.count("observer mlflow failed, the run goes on without it: " + why) == 1
    watched = next((config.parent / "runs").glob("watched-*"))
    assert (watched / "metrics.jsonl").read_text() == (plain / "metrics.jsonl").read_text()
    assert "observer mlflow failed" in (watched / "log.txt").read_text()


def test_an_observer_that_hangs_is_left_behind(config: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(config, "{mlflow: {}}")
    monkeypatch.setenv("FAKE_DOES", "search_runs:sleep")
    monkeypatch.setattr(observer_processes, "PARTING", 0.2)
    monkeypatch.setattr(observer_processes, "MOST_WAITING", 4)
    said: list[str] = []
    (observer,) = observer_processes.outside(load_run(config), said.append)
    assert isinstance(observer, observer_processes.Outside)
    observer.started(Start("line", 5, "1 cpu", 6, 2, str(config.parent)))
    process = observer._process
    assert process is not None
    try:
        for step in range(50):  # more than the pipe and the queue hold
            observer.recorded(step, 0, {f"train/{i}": 1.0 for i in range(2000)})
        observer.ended("done")
    finally:
        process.kill()
    assert said == ["observer mlflow failed, the run goes on without it: it took nothing for 0.2 seconds"]


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        pytest.param("{mlfow: {}}", "there is no observer 'mlfow'", "did you mean 'mlflow'?", id="name"),
        pytest.param("{mlflow: {url: a}}", "output.observers.mlflow has no key 'url'", "did you mean 'uri'?", id="option"),
        pytest.param("{wandb: {mode: on}}", "output.observers.wandb.mode must be online, offline or disabled", "", id="value"),
        pytest.param("[mlflow]", "output.observers must be a mapping", "for example {mlflow: ", id="a list"),
    ],
)
@pytest.mark.parametrize("command", ["check", "train"])
def test_a_mistake_is_found_before_anything_is_trained(
    pe: Pe, config: Path, calls: Path, command: str, written: str, message: str, hint: str
) -> None:
    ask(config, written)
    said = pe(command, config)
    assert said.code == 2
    assert f"{config}:12:" in said.err
    assert message in said.err
    assert hint in said.err
    assert not (config.parent / "runs").exists()


def test_a_package_that_is_missing_is_an_error_with_the_extra(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(config, "{mlflow: {}}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = pe("check", config)
    assert said.code == 2
    assert "output.observers: mlflow needs the package mlflow, which is not installed" in said.err
    assert "pip install 'pe-cli[mlflow]'" in said.err
