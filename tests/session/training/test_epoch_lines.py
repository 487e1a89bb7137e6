"""A line per epoch: when it is due, its columns, and the log that keeps it."""

from __future__ import annotations

import re

import pytest

from pe_cli.io.run_folder import RunFolder
from pe_cli.session.observer import Observer, Row, Start
from pe_cli.session.training import epoch_lines
from pe_cli.session.training.epoch_lines import FREE, WAIT, WITHIN, EpochLines, Table, number
from tests.session.conftest import Bench

MANY = tuple(f"eval/{name}" for name in ("loss", "acc", "precision", "recall", "calibration", "average_precision"))


class Seen(Observer):
    """Keeps the rows that it is told."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def row(self, row: Row) -> None:
        self.rows.append(row)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(epoch_lines.time, "perf_counter", lambda: now[0])
    return now


def begun(epochs: int | None = 3, metrics: tuple[str, ...] = ("train/loss", "eval/acc")) -> tuple[EpochLines, Seen]:
    seen = Seen()
    made = EpochLines([seen])
    made.started(Start("m", 1, "1 cpu", 9, epochs, "runs/m", metrics=metrics))
    return made, seen


@pytest.mark.usefixtures("clock")
def test_an_epoch_has_one_row_of_all_that_was_recorded_in_it() -> None:
    made, seen = begun()
    for step in (1, 2, 3):
        made.stepped(step, 0, 1.0, 64)
        made.recorded(step, 0, {"train/loss": 1 / step})
    made.recorded(3, 1, {"eval/acc": 0.5, "train/gradient_norm/w": 1.0})
    made.epoch_ended(3, 1)
    assert seen.rows == [Row(3, 1, {"train/loss": 1 / 3, "eval/acc": 0.5}, None)]


@pytest.mark.usefixtures("clock")
def test_an_evaluation_within_an_epoch_has_a_row() -> None:
    made, seen = begun()
    made.stepped(1, 1, 1.0, 64)
    made.recorded(1, 1, {"eval/acc": 0.5})
    made.stepped(2, 1, 1.0, 64)
    made.stepped(3, 1, 1.0, 64)
    made.ended("done")
    assert [(row.step, row.epoch) for row in seen.rows] == [(1, 2)]


def test_training_within_a_long_epoch_has_a_row_now_and_then(clock: list[float]) -> None:
    made, seen = begun()
    for step in range(1, 101):
        clock[0] += WITHIN / 20
        made.stepped(step, 0, 1.0, 64)
        made.recorded(step, 0, {"train/loss": float(step)})
    assert 2 <= len(seen.rows) <= 5
    made.ended("stopped")
    assert seen.rows[-1].values == {"train/loss": 100.0}


def test_epochs_that_come_faster_than_anyone_reads_are_held_back(clock: list[float]) -> None:
    made, seen = begun()
    for epoch in range(1, FREE + 10):
        made.stepped(epoch, epoch - 1, 1.0, 64)
        made.recorded(epoch, epoch, {"eval/acc": epoch / 100})
        made.epoch_ended(epoch, epoch)
    assert len(seen.rows) == FREE
    clock[0] += 1.01 * WAIT
    made.recorded(99, 99, {"eval/acc": 0.99})
    made.epoch_ended(99, 99)
    assert seen.rows[-1] == Row(99, 99, {"eval/acc": 0.99}, pytest.approx(64 * (FREE + 8) / 0.303, rel=0.01))


def test_columns_stay_in_place_whatever_the_numbers_are() -> None:
    table = Table(Start("m", 1, "1 cpu", 690, 30, "", metrics=("train/loss", "train/learning_rate", "eval/acc")))
    values = (1.0, -1.23456e-5, 1e300, float("-inf"), 123456.789, float("nan"))
    lines = [line for i, v in enumerate(values) for line in table.lines(Row(i, i, {"train/loss": v, "eval/acc": v}, 1e4 * i))]
    ends = {tuple(found.end() for found in re.finditer(r"\S+", line)) for line in lines[1:]}
    assert len(ends) == 1, lines


def test_at_70_columns_nothing_is_dropped() -> None:
    table = Table(Start("m", 1, "1 cpu", 690, 30, "", metrics=("train/loss", *MANY)), 70)
    values = {name: 0.12345 + i for i, name in enumerate(("train/loss", *MANY))}
    first, second = table.lines(Row(1, 1, values)), table.lines(Row(2, 2, values))
    assert max(map(len, [*first, *second])) <= 70
    text = "\n".join(second)
    assert all(number(v) in text for v in values.values())
    assert [len(line) for line in first[2:]] == [len(line) for line in second]


def test_a_metric_that_nobody_announced_gets_a_column() -> None:
    table = Table(Start("m", 1, "1 cpu", 9, None, "", metrics=("train/loss",)), speed=False)
    assert table.lines(Row(1, 1, {"train/loss": 1.0}))[1] == "epoch  step      loss"
    assert table.lines(Row(2, 2, {"train/loss": 1.0, "train/acc": 0.5}))[1:] == [
        "epoch  step      loss       acc",
        "    2     2         1       0.5",
    ]


def test_the_log_holds_what_was_said_and_a_rate_that_existed(bench: Bench) -> None:
    schedule = "train.optimizer.learning_rate={type: piecewise_decay, boundaries: [8], values: [0.5, 0.125]}"
    assert bench.run("train", bench.base / "run.yaml", "-o", schedule, "-o", "train.epochs=2") == 0, bench.err
    (run,) = (bench.base / "runs").iterdir()
    logged = [line.partition(" ")[2] for line in (run / "log.txt").read_text().splitlines()]
    assert [line for line in bench.out.splitlines() if line.rstrip() not in logged] == []
    assert [line for line in bench.err.splitlines() if line.removeprefix("note: ") not in logged] == []
    rates = [record["learning_rate"] for record in RunFolder(run).metrics() if "learning_rate" in record]
    assert set(rates) == {0.5, 0.125}
