"""A run as those see it who look at it later."""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import history
from pe_cli.io.history import find_runs, flatten, read_run
from pe_cli.io.lock import is_free, locked
from tests.io.runs import CONFIG, make_run, ordinary


def test_metrics_become_series_by_split(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, metrics=ordinary()))
    assert run.series["eval/acc"].steps == [10, 20]
    assert run.series["eval/acc"].values == [0.9, 0.8]
    assert run.series["train/loss"].values[0] == 0.5
    assert run.config["train"]["batch_size"] == 4
    assert run.seconds == 90
    assert run.config_name == "digits"


def test_steps_that_were_done_twice_after_a_crash_count_once_as_they_were_last(tmp_path: Path) -> None:
    lines = [{"step": s, "epoch": 0, "split": "train", "loss": v} for s, v in ((1, 5.0), (2, 4.0), (3, 9.0), (2, 3.0))]
    run = read_run(make_run(tmp_path, metrics=lines))
    assert (run.series["train/loss"].steps, run.series["train/loss"].values) == ([1, 2, 3], [5.0, 3.0, 9.0])


@pytest.mark.parametrize(
    ("config", "by", "value", "step"),
    [
        pytest.param(CONFIG, "eval/acc", 0.9, 10, id="by the config's rule"),
        pytest.param("train: {loss: loss}\n", "eval/loss", 0.2, 20, id="else the smallest loss of evaluation"),
    ],
)
def test_the_best(tmp_path: Path, config: str, by: str, value: float, step: int) -> None:
    best = read_run(make_run(tmp_path, metrics=ordinary(), config=config)).best
    assert best is not None
    assert (best.by, best.value, best.step) == (by, value, step)


def test_without_evaluation_the_best_is_of_training_and_no_number_is_never_the_best(tmp_path: Path) -> None:
    lines = [{"step": s, "epoch": 0, "split": "train", "loss": v} for s, v in ((1, "nan"), (2, 4.0), (3, "-inf"))]
    run = read_run(make_run(tmp_path, metrics=lines, config="train: {loss: loss}\n"))
    assert run.best is not None
    assert (run.best.by, run.best.value) == ("train/loss", 4.0)
    assert math.isnan(run.series["train/loss"].values[0])


def test_what_is_not_as_pe_writes_it_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path, config="a: [1, 2\n", state=5, step="x", started="never")
    lines = ["{torn", "[1]", '{"step": true, "split": "train", "loss": 1}', '{"step": 1e400, "split": "train", "loss": 1}',
             '{"step": 1, "split": "train", "loss": {"a": 1}, "acc": "high", "b": true, "c": 1}', '{"step": -1, "split": "train", "c": 2}',
             '{"step": ' + "9" * 400 + ', "split": "train", "c": 2}']  # fmt: skip
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "speed.jsonl").write_text('{"step": 1, "samples": "x"}\n{}\n')
    (folder / "env.json").write_text("[")
    run = read_run(folder)
    assert {name: s.values for name, s in run.series.items()} == {"train/c": [1.0]}
    assert (run.config, run.environment, run.step, run.seconds, run.speed.steps) == ({}, {}, 0, None, [])


def test_speed_is_the_difference_of_lines(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    # the third line is of a process that went on, whose clock begins again
    rows = [(1, 0.5, 64), (11, 1.5, 704), (12, 0.1, 64), (22, 1.1, 1344)]
    (folder / "speed.jsonl").write_text(
        "".join(json.dumps({"step": s, "epoch": 0, "samples": n, "seconds": t}) + "\n" for s, t, n in rows)
    )
    assert read_run(folder).speed.values == [640.0, 1280.0]


@pytest.mark.parametrize(
    ("pid", "updated", "state"),
    [
        pytest.param(os.getpid(), "2024-02-29T12:00:00+00:00", "running", id="its process is there"),
        pytest.param(2**22 + 5, "2024-02-29T12:00:00+00:00", "lost", id="its process is not, and it has been silent"),
        pytest.param(2**22 + 5, "now", "running", id="it was heard of just now, from another machine"),
    ],
)
def test_a_run_that_says_it_runs(tmp_path: Path, pid: int, updated: str, state: str) -> None:
    heard = datetime.now(UTC).isoformat() if updated == "now" else updated
    assert read_run(make_run(tmp_path, state="running", pid=pid, updated=heard)).state == state


def test_the_lock_of_this_machine_tells_at_once_whether_a_run_is_lost(tmp_path: Path) -> None:
    now = datetime.now(UTC).isoformat()
    fresh = {"state": "running", "pid": os.getpid(), "updated": now}
    silent = {"state": "running", "pid": 2**22 + 5, "updated": "2024-02-29T12:00:00+00:00"}
    folder = make_run(tmp_path, **fresh)
    with locked(folder) as mark:
        for status in (fresh, silent):
            (folder / "status.json").write_text(json.dumps({**status, "lock": mark}))
            assert read_run(folder).state == "running", "somebody holds it"
    (folder / "status.json").write_text(json.dumps({**fresh, "lock": mark}))
    assert read_run(folder).state == "lost", "nobody holds it, whoever has the number of its process now"
    (folder / "status.json").write_text(json.dumps({**fresh, "lock": "0" * 16}))
    assert read_run(folder).state == "running", "it was locked on another machine"
    (folder / "status.json").write_text(json.dumps({**fresh, "state": "done", "lock": mark}))
    assert read_run(folder).state == "done"


@pytest.mark.parametrize(
    ("later", "state"),
    [
        pytest.param({"state": "done"}, "done", id="it came to its end"),
        pytest.param({"lock": "0" * 16}, "running", id="another machine went on with it"),
    ],
)
def test_a_run_that_changes_while_it_is_looked_at_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: dict[str, str], state: str
) -> None:
    folder = make_run(tmp_path)
    with locked(folder) as mark:
        pass
    status = {"state": "running", "pid": 1, "updated": datetime.now(UTC).isoformat(), "lock": mark}
    (folder / "status.json").write_text(json.dumps(status))
    assert read_run(folder).state == "lost"

    def slow(path: Path, known: object) -> bool | None:
        (folder / "status.json").write_text(json.dumps(status | later))
        return is_free(path, known)

    monkeypatch.setattr(history, "is_free", slow)
    assert read_run(folder).state == state


def test_runs_are_found_by_when_they_began(tmp_path: Path) -> None:
    late = make_run(tmp_path, "a", started="2024-03-01T00:00:00+00:00")
    early = make_run(tmp_path, "b", started="2024-02-01T00:00:00+00:00")
    (tmp_path / "no-run").mkdir()
    assert find_runs(tmp_path) == [early, late]
    assert find_runs(late) == [late]


def test_reading_writes_nothing(tmp_path: Path) -> None:
    folder = make_run(tmp_path, metrics=ordinary())
    (folder / ".tmp-1-00000000").write_text("")
    before = sorted(p.name for p in folder.rglob("*"))
    read_run(folder)
    assert sorted(p.name for p in folder.rglob("*")) == before


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for path, text in ((tmp_path, "no status.json"), (tmp_path / "x", "no such folder")):
        with pytest.raises(PeError, match=text) as caught:
            read_run(path)
        assert caught.value.code == ExitCode.DATA
    with pytest.raises(PeError, match="no such folder"):
        find_runs(tmp_path / "x")


def test_empty_mappings_are_values() -> None:
    assert flatten({"a": {}, "b": {"c": []}}) == {"a": {}, "b.c": []}
