"""A run folder holds everything under fixed names, in strict JSON, and nothing about who ran it where."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import atomic, lock
from pe_cli.io.environment import environment
from pe_cli.io.history import find_runs, read_run
from pe_cli.io.lock import is_free
from pe_cli.io.run_folder import RunFolder

NOON = datetime(2024, 2, 29, 12, 0, 5)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "lenet", "model: a\n", "model: b\n", {"pe": "1"}, now=NOON)


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_everything_has_its_place(run: RunFolder) -> None:
    assert run.path.name == "lenet-20240229-120005"
    assert {p.name for p in run.path.iterdir()} == {
        *("config.yaml", "resolved.yaml", "model.yaml", "env.json", "metrics.jsonl", "log.txt", "status.json"),
        *("fetches", "graphs", "checkpoints"),
    }
    assert run.config_path.read_text() == "model: a\n"
    assert run.resolved_path.read_text() == "model: b\n"
    assert strict(run.env_path.read_text()) == {"pe": "1", "number": 1}


def test_two_runs_in_one_second_get_two_folders(run: RunFolder) -> None:
    again = [RunFolder.create(run.path.parent, "lenet", "", "", {}, now=NOON).path.name for _ in range(2)]
    assert again == ["lenet-20240229-120005-2", "lenet-20240229-120005-3"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        pytest.param("../../etc/passwd", "etc-passwd", id="no way out of the folder"),
        pytest.param("a b", "a-b", id="blanks"),
        pytest.param("", "run", id="empty"),
        pytest.param("n" * 400, "n" * 100, id="too long"),
        pytest.param("zero\0", "zero", id="zero byte"),
    ],
)
def test_awkward_names_become_file_names(tmp_path: Path, name: str, folder: str) -> None:
    run = RunFolder.create(tmp_path, name, "", "", {}, now=NOON)
    assert run.path == tmp_path / f"{folder}-20240229-120005"


def test_metrics_are_strict_json(run: RunFolder) -> None:
    run.metric({"step": 1, "loss": np.float32(0.5), "n": np.int64(3), "shape": (1, 2)})
    infinite = {"up": np.float32("inf"), "down": -np.inf}
    run.metric({"step": 2, "loss": float("nan"), **infinite, "each": np.array([1, np.nan])})
    lines = [strict(line) for line in run.metrics_path.read_text().splitlines()]
    assert lines == [
        {"step": 1, "loss": 0.5, "n": 3, "shape": [1, 2]},
        {"step": 2, "loss": "nan", "up": "inf", "down": "-inf", "each": [1.0, "nan"]},
    ]
    assert list(run.metrics()) == lines


def test_a_torn_metric_line_is_left_out(run: RunFolder) -> None:
    run.metric({"step": 1})
    with run.metrics_path.open("a") as stream:
        stream.write('{"step": 2, "lo')
    run.metric({"step": 3})
    assert list(run.metrics()) == [{"step": 1}, {"step": 3}]


def test_every_log_line_has_its_time(run: RunFolder) -> None:
    run.log("one\ntwo")
    run.log("")
    lines = run.log_path.read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["one", "two", ""]
    assert all(datetime.fromisoformat(line.split(" ")[0]).tzinfo for line in lines)


def test_status_changes_only_what_is_given(run: RunFolder) -> None:
    first = run.read_status()
    run.status(step=7, epoch=1)
    run.status(state="done", best={"step": 5, "eval/acc": float("nan")})
    after = strict(run.status_path.read_text())
    assert isinstance(after, dict)
    assert set(after) == {"state", "step", "epoch", "started", "updated", "pid", "best", "seconds"}
    assert (after["state"], after["step"], after["epoch"]) == ("done", 7, 1)
    assert after["best"] == {"step": 5, "eval/acc": "nan"}
    assert after["started"] == first["started"]
    assert first["state"] == "running"


def test_a_damaged_status_is_replaced(run: RunFolder) -> None:
    run.status_path.write_text("{")
    with pytest.raises(PeError, match="not whole JSON") as caught:
        run.read_status()
    assert caught.value.code == ExitCode.DATA
    run.status(state="failed")
    assert run.read_status()["state"] == "failed"


def test_an_earlier_run_is_opened_again(run: RunFolder) -> None:
    assert RunFolder.open(run.path) == run
    assert RunFolder.latest(run.path.parent) == run


def started(folder: RunFolder, when: str) -> None:
    folder.status_path.write_text(json.dumps(folder.read_status() | {"started": f"{when}T00:00:00.000+00:00"}))


def test_the_latest_run_is_the_one_started_last_also_after_the_clock_was_set_back(run: RunFolder) -> None:
    started(run, "2044-01-01")
    later = RunFolder.create(run.path.parent, "aa", "", "", {}, now=NOON)
    started(later, "2001-01-01")
    assert RunFolder.latest(run.path.parent) == later
    assert find_runs(run.path.parent) == [run.path, later.path]
    later.status_path.unlink()  # lost with the power
    assert RunFolder.latest(run.path.parent) == later


def test_runs_without_a_number_are_older_and_in_the_order_of_their_times(run: RunFolder) -> None:
    old = [RunFolder.create(run.path.parent, name, "", "", {}, now=NOON) for name in "ba"]
    for folder, text in zip(old, ("{}", '{"number": "7"}'), strict=True):
        folder.env_path.write_text(text)
    for folder, when in zip(old, ("2001-01-01", "2044-01-01"), strict=True):
        started(folder, when)
    assert find_runs(run.path.parent) == [old[0].path, old[1].path, run.path]


def test_seconds_are_those_that_it_ran_whatever_the_clock_says(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pe_cli.io.run_folder.time.monotonic", lambda: now[0])
    first = RunFolder(run.path)
    first.status(step=1)
    before = float(str(first.read_status()["seconds"]))
    now[0] += 5
    first.status(step=2)
    started(first, "2001-01-01")
    again = RunFolder(run.path)  # another process goes on, much later
    now[0] = 7.0
    again.status(step=3)
    now[0] += 2.5
    again.status(step=4)
    assert again.read_status()["seconds"] == pytest.approx(before + 7.5)
    assert read_run(run.path).seconds == pytest.approx(before + 7.5)


def test_what_killed_writers_left_goes_when_the_folder_is_held(run: RunFolder) -> None:
    left = [place / atomic.temporary_name() for place in (run.path, run.fetches, run.checkpoints)]
    for path in left:
        path.mkdir()
        (path / "part").touch()
    kept = run.path / ".tmp-notes"
    kept.touch()
    run.clean()
    assert not any(path.exists() for path in left)
    assert kept.exists()


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        pytest.param("lenet-20240229-12000", "no such folder", "lenet-20240229-120005", id="a slip of the key"),
        pytest.param(".", "not the folder of a run", None, id="another folder"),
        pytest.param("../iris.yaml", "a file, not the folder", "pe train CONFIG --resume", id="a config"),
    ],
)
def test_no_run_there(run: RunFolder, path: str, message: str, hint: str | None) -> None:
    (run.path.parent.parent / "iris.yaml").touch()
    with pytest.raises(PeError, match=message) as caught:
        RunFolder.open(run.path.parent / path)
    assert caught.value.code == ExitCode.DATA
    assert hint is None or hint in (caught.value.hint or "")


def test_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(PeError, match="no run in it"):
        RunFolder.latest(tmp_path / "runs")


def test_the_environment_names_versions_but_nobody() -> None:
    env = environment()
    assert set(env) == {"pe", "python", "platform", "packages", "cpu", "cores", "memory"}
    text = json.dumps(env, allow_nan=False)
    assert np.__version__ in text
    assert platform.python_version() in text
    words = set(text.replace('"', " ").replace("/", " ").replace(",", " ").split())
    assert platform.node() not in words
    assert getpass.getuser() not in words


def test_the_environment_imports_no_numba() -> None:
    code = "import sys; from pe_cli.io.environment import environment; environment(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_held_folder_is_refused_to_others_of_this_process_too(run: RunFolder) -> None:
    with run.hold(), pytest.raises(PeError, match="another process trains in this folder") as caught:
        RunFolder(run.path).hold().__enter__()
    assert caught.value.code == ExitCode.USAGE
    with run.hold():
        pass


def test_a_held_folder_tells_its_lock_and_nothing_else_changes(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run.read_status() | {"updated": "then", "pid": 5}
    run.status_path.write_text(json.dumps(before))
    with run.hold():
        held = run.read_status()
        assert held == before | {"lock": held["lock"]}
        run.status(step=3)
        assert run.read_status()["lock"] == held["lock"]
        assert is_free(run.path, held["lock"]) is False
    assert is_free(run.path, held["lock"]) is True
    monkeypatch.setattr(lock, "_BOOT", run.path / "none")
    with run.hold():
        assert "lock" not in run.read_status(), "what an earlier process wrote counts no more"
    run.status_path.write_text("{")
    with run.hold():
        run.status(state="running")
    assert run.read_status()["state"] == "running"


def test_nothing_is_written_through_a_link_that_leads_out(run: RunFolder, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    run.status_path.rename(mine)
    text = mine.read_text()
    run.status_path.symlink_to(mine)
    with pytest.raises(PeError, match=r"status\.json: this link leads out of the run's folder") as caught, run.hold():
        pass
    assert (caught.value.code, mine.read_text()) == (ExitCode.USAGE, text)
    run.status_path.unlink()
    mine.rename(run.status_path)
    with run.hold():
        pass


def test_the_latest_run_of_a_name(run: RunFolder) -> None:
    parent = run.path.parent
    RunFolder.create(parent, "lenet-small", "", "", {}, now=NOON)
    assert RunFolder.latest(parent, "lenet") == run
    again = RunFolder.create(parent, "lenet", "", "", {}, now=NOON)
    assert RunFolder.latest(parent, "lenet") == again
    with pytest.raises(PeError, match="no run of alexnet in it"):
        RunFolder.latest(parent, "alexnet")


def test_what_ended_a_run_is_there_until_it_goes_on(run: RunFolder) -> None:
    def said() -> tuple[object, ...]:
        return tuple(run.read_status().get(key) for key in ("state", "warning", "error"))

    run.status(step=3, warning="it grows")
    assert said() == ("running", "it grows", None)
    run.status(state="failed", error="it is nan")
    run.status(step=4)
    assert said() == ("failed", "it grows", "it is nan")
    run.status(state="running")
    assert said() == ("running", "it grows", None)
    run.status(warning="")
    assert said() == ("running", None, None)


@pytest.mark.parametrize("name", ["env.json", "fetches/x.npz", "checkpoints/last", "checkpoints/step-1/meta.json"])
def test_a_pipe_in_a_files_place_is_refused(run: RunFolder, name: str) -> None:
    pipe = run.path / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(PeError, match=f"{pipe}: neither a file nor a folder"):
        RunFolder.open(run.path)
