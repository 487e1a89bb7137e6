"""Functions that came after 2.0, beside what PaddlePaddle 2.6.2 made of them: `recordings/later`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pe_cli.paddle as paddle
from tests.paddle.later import GROUPS, cases, run
from tests.rotation import of_today

FOLDER = Path(__file__).parent / "recordings" / "later"
RECORDED: dict[str, dict[str, Any]] = {group: json.loads((FOLDER / f"{group}.json").read_text()) for group in GROUPS}
CASES = {(group, name): case for group in GROUPS for name, case in cases(group).items()}


def test_every_case_is_recorded() -> None:
    assert {(group, name) for group, found in RECORDED.items() for name in found} == set(CASES)


@pytest.mark.parametrize(("group", "name"), [pytest.param(*key, id=" ".join(key)) for key in of_today(list(CASES), 4)])
def test_a_function_has_the_numbers_and_gradients_of_the_original(group: str, name: str) -> None:
    case, was = CASES[group, name], RECORDED[group][name]
    found = run(paddle, case)
    assert len(found["results"]) == len(was["results"])
    for mine, other in zip(found["results"], was["results"], strict=True):
        assert mine["kind"] == other["kind"]
        _near(mine, other, case.near)
    for fed, slope in was["slopes"].items():
        if fed in found["slopes"]:
            _near(found["slopes"][fed], slope, 5 * case.near)
        else:
            assert not any(slope["values"]), f"{fed} has no gradient"


def _near(found: dict[str, Any], was: dict[str, Any], near: float) -> None:
    assert found["shape"] == (was["shape"] or [1])  # a number is [1] up to 2.4, and [] later
    mine, other = (np.asarray(v["values"], "float64") for v in (found, was))
    finite = np.abs(other[np.isfinite(other)])
    np.testing.assert_allclose(mine, other, rtol=0, atol=near * max(float(finite.max(initial=0.0)), 1e-3))
