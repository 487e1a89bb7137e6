"""pe lr: the learning-rate range test."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from pe_cli.session.training.lr_range_test import KEPT, RangeTest, open_for_range, range_test
from tests.cli.conftest import Pe

WHOLE = "train.batch_size=40"


def tried(config: Path, *overrides: str, low: float = 1e-4, high: float = 10.0, steps: int = 60) -> RangeTest:
    job = open_for_range(config, overrides)
    job.initialise()
    return range_test(job, low, high, steps)


def test_losses_are_those_of_descent_by_hand(config: Path) -> None:
    job = open_for_range(config, [WHOLE])
    job.initialise()
    weight, bias = (job.scope.get(p.name).astype("float64") for p in job.program.global_block().parameters())
    found = range_test(job, 1e-4, 10.0, 60)
    with np.load(config.parent / "data.npz") as data:
        x, y = data["x"].astype("float64"), data["y"].astype("float64")
    losses = []
    for rate in found.rates:
        error = x @ weight + bias - y
        losses.append(float((error**2).mean()))
        weight -= rate * 2 * x.T @ error / len(x)
        bias -= rate * 2 * error.mean(0)
    assert found.rates == pytest.approx([1e-4 * 1e5 ** (i / 59) for i in range(len(found.rates))])
    # behind the least loss, of 1e-8, rounding errors of float32 grow with it
    assert found.losses[:45] == pytest.approx(losses[:45], rel=1e-3)
    assert found.diverged


def test_smoothed_losses_are_weighted_means(config: Path) -> None:
    found = tried(config)
    for step in (0, 1, 5, len(found.losses) - 1):
        weights = KEPT ** np.arange(step, -1, -1.0)
        assert found.smoothed[step] == pytest.approx(float(np.average(found.losses[: step + 1], weights=weights)))


def test_it_stops_before_the_loss_is_beyond_measure(config: Path) -> None:
    found = tried(config, WHOLE)
    assert found.diverged
    assert len(found.rates) < 60
    assert max(found.smoothed) < max(4 * min(found.smoothed), found.smoothed[0]) * 1.001


def logistic(middle: float) -> RangeTest:
    """Losses that fall from 1 to 0 around a rate, by a logistic function of its logarithm."""
    rates = [10 ** (-6 + i * 6 / 100) for i in range(101)]
    losses = [1 / (1 + math.exp(3 * math.log(r / middle))) for r in rates]
    return RangeTest(rates, losses, losses, diverged=True)


@pytest.mark.parametrize("middle", [1e-4, 1e-3, 1e-2])
def test_a_logistic_function_falls_fastest_in_its_middle(middle: float) -> None:
    found = logistic(middle)
    steepest = found.steepest()
    assert steepest is not None
    assert found.rates[steepest] == pytest.approx(middle, rel=0.08)  # half of the way between two rates


def test_a_loss_that_grows_has_no_steepest_fall() -> None:
    rates = [10 ** (-3 + i / 10) for i in range(40)]
    losses = [float(i) for i in range(40)]
    assert RangeTest(rates, losses, losses, diverged=False).steepest() is None


def test_the_schedule_of_the_config_is_left_out_of_account(config: Path) -> None:
    line = "train.optimizer.learning_rate={type: polynomial_decay, learning_rate: 1, decay_steps: 9 epochs}"
    assert tried(config, line) == tried(config)


def test_an_optimizer_inside_another_has_the_rate(config: Path) -> None:
    plain = tried(config)
    inside = tried(config, "train.optimizer={type: Lookahead, k: 1000, inner: {type: SGD, learning_rate: 1}}")
    assert inside.losses[:20] == pytest.approx(plain.losses[:20], rel=1e-6)


def test_two_devices_and_parts_see_the_same_rates(config: Path) -> None:
    alone = tried(config, WHOLE)
    other = tried(config, "train.batch_size=20", "train.accumulate=2", "executor.devices=2")
    assert other.losses[:20] == pytest.approx(alone.losses[:20], rel=1e-4)


def test_the_command_says_a_rate_that_trains(pe: Pe, config: Path) -> None:
    picture = config.parent / "loss.svg"
    said = pe("lr", config, "--to", "10", "--svg", picture, "-o", WHOLE)
    assert said.code == 0, said.err
    assert "then the loss diverges" in said.out
    rate = float(said.out.partition("suggested learning rate: ")[2].partition(",")[0])
    assert 0.01 < rate < 1
    text = picture.read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert ">learning rate<" in text
    assert ">0.01<" in text
    assert {path.name for path in config.parent.iterdir()} == {"data.npz", "model.yaml", "line.yaml", "loss.svg"}


def test_there_is_no_suggestion_while_the_loss_still_falls(pe: Pe, config: Path) -> None:
    said = pe("lr", config, "--to", "0.01", "-o", WHOLE)
    assert said.code == 0
    assert "no suggestion: the loss still falls at the largest rate; try a larger --to" in said.out


def test_there_is_no_suggestion_where_all_rates_are_too_large(pe: Pe, config: Path) -> None:
    said = pe("lr", config, "--from", "5", "--to", "100", "-o", WHOLE)
    assert said.code == 0
    assert "no suggestion: the loss does not fall" in said.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(("--from", "1", "--to", "0.1"), "the rate grows from --from to --to, got 1 and 0.1", id="a rate that would fall"),
        pytest.param(("--from", "0"), "the rate grows from --from to --to, got 0 and 1", id="no power of ten gives 0"),
        pytest.param(("--to", "inf"), "the rate grows from --from to --to", id="infinity"),
        pytest.param(("--to", "nan"), "the rate grows from --from to --to", id="NaN"),
        pytest.param(("--steps", "3"), "invalid value for '--steps'", id="too few steps"),
        pytest.param(("-o", "train=null"), "there is no learning rate without training", id="no training"),
        pytest.param(("-o", "executor.processes=auto"), "a range test does its steps in one process", id="several processes"),
        pytest.param(
            ("-o", "train.batch_size=1", "-o", "executor.devices=2", "-o", "executor.uneven_batch=drop"),
            "no batch has a sample for every device",
            id="no batch for all devices",
        ),
    ],
)
def test_what_cannot_be_tried(pe: Pe, config: Path, arguments: tuple[str, ...], sentence: str) -> None:
    said = pe("lr", config, *arguments)
    assert said.code == 2
    assert sentence in said.err


def test_data_that_is_no_number(pe: Pe, config: Path) -> None:
    with np.load(config.parent / "data.npz") as data:
        x, y = data["x"], data["y"]
    np.savez(config.parent / "data.npz", x=x * np.float32("nan"), y=y)
    said = pe("lr", config)
    assert said.code == 2
    assert "the loss of the first step is no number" in said.err
