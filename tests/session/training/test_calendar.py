"""What is due after which steps and epochs, by what a run file says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pe_cli.config.load import load_run
from pe_cli.session.training.calendar import Calendar
from pe_cli.session.training.state import Progress

MODEL = "name: m\nfeeds: {x: {shape: [2]}}\nlayers: {y: {type: fc, input: x, size: 1}, loss: {type: mean, x: y}}\n"
RUN = """\
model: model.yaml
data: {train: {reader: synthetic, samples: 8, fields: {x: {shape: [2]}}}}
feeds: {x: x}
train: {loss: loss, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
"""
Make = Callable[..., Calendar]


@pytest.fixture
def calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)

    def made(*overrides: str, smoke: bool = False) -> Calendar:
        return Calendar(load_run("run.yaml", overrides), smoke)

    return made


@pytest.mark.parametrize(
    ("overrides", "total"),
    [
        pytest.param(["train.epochs=3"], 30, id="epochs of ten steps"),
        pytest.param(["train.epochs=3", "train.steps=25"], 25, id="steps end the run within an epoch"),
        pytest.param(["train.epochs=2", "train.steps=25"], 20, id="epochs end the run before its steps do"),
        pytest.param(["train.epochs=~", "train.steps=25"], 25, id="steps alone"),
    ],
)
def test_a_run_ends_with_its_steps_or_epochs_whichever_come_first(calendar: Make, overrides: list[str], total: int):
    assert calendar(*overrides).total(10) == total


def test_a_run_goes_on_until_all_steps_are_done_and_the_epoch_has_ended(calendar: Make):
    made = calendar("train.epochs=2", "train.steps=15")
    assert made.goes_on(Progress(step=14, epoch=1, batch=4))
    assert made.enough(Progress(step=15, epoch=1, batch=5))
    assert made.goes_on(Progress(step=15, epoch=1, batch=5)), "the epoch's evaluation is left to do"
    assert not made.goes_on(Progress(step=15, epoch=2))
    assert not made.goes_on(Progress(step=3, epoch=1, stopped_early=True))


def test_evaluations_and_checkpoints_follow_the_steps_or_epochs_that_their_periods_count(calendar: Make):
    made = calendar("train.epochs=9", "train.eval_every=4 steps", "output.checkpoint={every: 2 epochs}")
    assert [step for step in range(1, 10) if made.evaluates(step)] == [4, 8]
    assert not any(made.evaluates_epoch(epoch) or made.saves(epoch) for epoch in range(1, 10))
    assert [epoch for epoch in range(1, 10) if made.saves_epoch(epoch)] == [2, 4, 6, 8]
    assert [epoch for epoch in range(1, 12) if made.is_last(epoch)] == [9]


def test_a_smoke_run_has_two_steps_and_everything_follows_each(calendar: Make):
    made = calendar("train.epochs=9", "train.eval_every=3 epochs", "output.checkpoint={every: 100 steps}", smoke=True)
    assert made.total(10) == 2
    assert made.saves(1)
    assert made.evaluates_epoch(1)
    assert made.saves_epoch(1)
