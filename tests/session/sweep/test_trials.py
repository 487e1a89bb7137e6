"""Trials of a sweep: which values they have."""

from __future__ import annotations

from typing import Any

import pytest

from pe_cli.config.sections.sweep import SweepSection
from pe_cli.core.errors import PeError
from pe_cli.session.sweep.trials import Values, combinations_of, trials_of


def sweep(over: dict[str, Any], **options: Any) -> SweepSection:
    return SweepSection.model_validate({"by": "eval/loss", "mode": "min", "over": over, **options})


def tried(section: SweepSection) -> list[Values]:
    return trials_of(section, combinations_of(section))


def test_a_grid_tries_every_combination_and_the_last_key_changes_fastest() -> None:
    found = tried(sweep({"a": [1, 2], "b": ["x", None], "c": {"int": [3, 3 + 1]}}))
    assert [tuple(values.values()) for values in found] == [
        (1, "x", 3), (1, "x", 4), (1, None, 3), (1, None, 4), (2, "x", 3), (2, "x", 4), (2, None, 3), (2, None, 4),
    ]  # fmt: skip


def test_draws_depend_on_seed_trial_and_key_alone() -> None:
    ranges = {"a": {"log": [1e-4, 1e-1]}, "b": {"uniform": [-1, 1]}, "c": {"int": [1, 5]}}
    found = tried(sweep(ranges, method="random", trials=50, seed=3))
    assert found == tried(sweep(ranges, method="random", trials=50, seed=3))
    assert found[:10] == tried(sweep(ranges, method="random", trials=10, seed=3))
    alone = tried(sweep({"b": ranges["b"]}, method="random", trials=50, seed=3))
    assert [values["b"] for values in alone] == [values["b"] for values in found]
    assert found != tried(sweep(ranges, method="random", trials=50, seed=4))


def test_draws_are_spread_over_their_ranges() -> None:
    ranges = {"a": {"log": [1e-4, 1e-1]}, "b": {"uniform": [-1, 1]}, "c": {"int": [1, 5]}}
    found = tried(sweep(ranges, method="random", trials=400))
    assert all(1e-4 <= v["a"] <= 1e-1 and -1 <= v["b"] <= 1 and v["c"] in range(1, 6) for v in found)
    assert {v["c"] for v in found} == set(range(1, 6))
    # a third of a logarithmic range is a decade here: of 400 draws 133 are expected in each, with a deviation of 9.4
    decades = [sum(10.0**e <= v["a"] < 10.0 ** (e + 1) for v in found) for e in (-4, -3, -2)]
    assert all(abs(count - 400 / 3) < 5 * 9.4 for count in decades)
    assert abs(sum(v["b"] for v in found) / 400) < 5 / (3 * 400) ** 0.5


def test_no_combination_is_drawn_twice_where_there_are_few() -> None:
    found = tried(sweep({"a": [1, 2, 3], "b": [1, 2, 3]}, method="random", trials=9, seed=1))
    assert len({tuple(v.values()) for v in found}) == 9


@pytest.mark.parametrize(
    ("section", "message"),
    [
        pytest.param(sweep({"a": [1, 2]}, method="random", trials=3), "sweep.trials is 3, and there are 2 combinations", id="too few"),
        pytest.param(sweep({k: {"int": [1, 100]} for k in "abc"}), "the grid has 1000000 trials, and at most 10000", id="too many"),
    ],
)
def test_as_many_trials_as_there_are_combinations(section: SweepSection, message: str) -> None:
    with pytest.raises(PeError, match=message):
        tried(section)
