"""pe graph --schedule: the learning rates of a run that has not begun."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pe_cli.session.benchmarks.learning_rates import POINTS, rates_of
from pe_cli.session.job import Job
from tests.cli.conftest import Pe
from tests.needs import torch

COSINE = "train.optimizer.learning_rate={type: cosine_restarts, learning_rate: 1, T_0: 1 epoch}"


def rates(config, *overrides):
    return rates_of(Job.open(config, overrides))


def test_rates_are_those_of_the_formula(config: Path) -> None:
    found = rates(config, COSINE)
    each = found.per_epoch
    assert each is not None
    assert found.total == 2 * each
    assert found.steps == list(range(2 * each))
    assert found.values == pytest.approx([0.5 * (1 + math.cos(math.pi * (s % each) / each)) for s in found.steps], abs=1e-7)


def test_rates_are_those_that_torch_has(config: Path) -> None:
    wanted = []
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=30)
    for _ in range(30):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(wanted) < 30:
            schedule.step()
    cycle = "train.optimizer.learning_rate={type: one_cycle, max_lr: 0.3, total_steps: 30}"
    found = rates(config, cycle, "train.epochs=null", "train.steps=30")
    assert found.values == pytest.approx(wanted, rel=1e-6)


def test_rates_are_those_that_training_records(pe: Pe, config: Path) -> None:
    overrides = [COSINE, "fetches={loss: {every: 1 steps}}", f"output.dir={config.parent / 'seen'}"]
    said = pe("train", config, "--quiet", *(word for each in overrides for word in ("-o", each)))
    assert said.code == 0, said.err
    (folder,) = (config.parent / "seen").iterdir()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    recorded = [row["learning_rate"] for row in rows if row["split"] == "train"]
    assert recorded
    assert rates(config, COSINE).values == pytest.approx(recorded, rel=1e-6)


def test_of_several_steps_with_a_batch_the_last_is_recorded(config: Path) -> None:
    line = "train.optimizer.learning_rate={type: polynomial_decay, learning_rate: 100, decay_steps: 100, end_learning_rate: 0}"
    found = rates(config, line, "exec_strategy.num_iteration_per_run=4", "train.epochs=null", "train.steps=3")
    assert found.values == pytest.approx([97, 93, 89])


def test_a_long_run_is_looked_at_here_and_there(config: Path) -> None:
    line = "train.optimizer.learning_rate={type: polynomial_decay, learning_rate: 1, decay_steps: 999999, end_learning_rate: 0}"
    found = rates(config, line, "train.epochs=null", "train.steps=1000000")
    assert len(found.steps) == POINTS
    assert (found.steps[0], found.steps[-1]) == (0, 999_999)
    assert (found.values[0], found.values[-1]) == pytest.approx((1, 0), abs=1e-7)


def test_the_command_prints_and_draws(pe: Pe, config: Path) -> None:
    picture = config.parent / "rate.svg"
    said = pe("graph", config, "--schedule", "--svg", picture, "-o", COSINE)
    assert said.code == 0, said.err
    assert "learning rate over" in said.out
    assert "█" in said.out
    assert ET.fromstring(picture.read_text()).tag.endswith("svg")
    assert not (config.parent / "runs").exists()


def test_a_rate_that_is_a_number(pe: Pe, config: Path) -> None:
    found = rates(config, "train.optimizer.learning_rate=0.25")
    assert set(found.values) == {0.25}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(("--stage", "ssa"), "--schedule goes with --svg and -o only", id="a stage"),
        pytest.param(("--dot", "x.dot"), "--schedule goes with --svg and -o only", id="Graphviz text"),
        pytest.param(("--radius", "3"), "--schedule goes with --svg and -o only", id="a radius"),
        pytest.param(("-o", "train=null"), "there is no learning rate without training", id="no training"),
    ],
)
def test_what_has_no_schedule(pe: Pe, config: Path, arguments: tuple[str, ...], sentence: str) -> None:
    said = pe("graph", config, "--schedule", *arguments)
    assert said.code == 2
    assert sentence in said.err


def test_a_rate_that_the_data_has(pe: Pe, config: Path) -> None:
    model = config.parent / "model.yaml"
    model.write_text(model.read_text().replace("feeds:\n", "feeds:\n  rate: {shape: [1], replicate: true}\n"))
    said = pe("graph", config, "--schedule", "-o", "train.optimizer.learning_rate=rate", "-o", "feeds.rate={value: 0.1}")
    assert said.code == 2
    assert "the learning rate is the feed 'rate'" in said.err
