"""How many launches a training step of the workloads has, as the planner of steps notes them with no card."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.types import Place
from pe_cli.devices.cuda_dry_run import launches_of
from pe_cli.execute.diagnostics.estimate import step_on_paper
from pe_cli.execute.numeric_settings import Numerics
from tests.rotation import on_its_day

ROOT = Path(__file__).parents[2]
#: Workload -> launches that a step may have: what it takes to launch them must not be what a step takes.
AIMS = {"mlp": 14, "lenet": 24, "resnet20": 130, "lstm": 20, "transformer": 60, "ctr": 35}


def launches(name: str, precision: str) -> int:
    """Return the launches of a training step of a workload."""
    run, built = load_and_build(ROOT / f"configs/bench/{name}.yaml")
    assert built.train is not None
    assert run.train is not None
    how = Numerics(precision=precision)
    fetches = list(built.losses.values())
    works, places = step_on_paper(
        built.train, [Place("cuda", 0)], run.train.batch_size, build=run.build_strategy, fetches=fetches, numerics=how
    )
    return len(launches_of(works, places))


@on_its_day(2, of=3)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("name", AIMS)
def test_a_step_has_no_more_launches_than_it_may(name: str, precision: str):
    assert launches(name, precision) <= AIMS[name]


@pytest.mark.parametrize("name", AIMS)
def test_rounding_to_bfloat16_takes_few_launches_more(name: str):
    """Parameters by one, what is fed, and the gradient that begins the way back."""
    assert launches(name, "bf16") <= launches(name, "tf32") + 3
