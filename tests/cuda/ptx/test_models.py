"""The comparison of trainings by steps: what it allows, and what it does not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pe_cli.devices import cuda_driver
from pe_cli.kernels.cuda.language import Built
from tests.cuda.ptx.device import PtxDriver, needs_compiler
from tests.cuda.ptx.models import ROOT, After, compare, differences

#: A step of 0.001 on a weight of 1, which the device makes longer by some part of itself.
BEGIN, CHANGE = {"w": np.ones(100)}, 1e-3


def after(longer: float, loss: float = 2.0) -> After:
    return After(np.array([loss]), {"w": BEGIN["w"] + CHANGE * (1 + longer)})


def largest(found: After, others: list[After]) -> float:
    return max(d.share for d in differences(BEGIN, found, after(0.0), [(BEGIN, other) for other in others]))


@pytest.mark.parametrize(
    ("found", "others", "fine"),
    [
        (after(0.0), [], True),
        (after(1e-4), [], True),  # the last bit of the weight
        (after(2e-4), [], False),
        (after(2e-4), [after(0.0), after(1e-4)], True),
        (after(2e-3), [after(0.0), after(1e-4)], False),
        (after(0.0, 2.00001), [], True),
        (after(0.0, 2.0001), [], False),
        (after(0.0, 2.0001), [after(0.0, 1.99995)], True),
        (after(0.0, np.nan), [after(0.0, 1.99995)], False),
        (after(np.nan), [], False),
    ],
)
def test_what_is_allowed_goes_by_the_change_and_by_what_moved_numbers_make_of_it(found: After, others: list[After], fine: bool):
    assert (largest(found, others) <= 1) is fine


def test_whole_numbers_are_the_same():
    begin, one, two = ({"n": np.array([n])} for n in (0, 1, 2))
    assert [d.share <= 1 for d in differences(begin, After(np.zeros(0), two), After(np.zeros(0), one), ())] == [False]


def without_decay(built: Built, text: str) -> str:
    """Return the PTX of a kernel; where it adds a thousandth of the weights to their gradient, one that leaves that out."""
    return re.sub(r"mul\.rn\.f32\s+(%\w+),.*;", r"mov.f32 \1, 0f00000000;", text) if "decay:add_l2" in built.kernel.name else text


@pytest.mark.parametrize("change", [None, without_decay], ids=["kernels as they are", "no decay of weights"])
def test_a_small_term_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch, change):
    needs_compiler()
    driver = PtxDriver(change=change)
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "device_count", lambda: 1)
    found = compare(ROOT / "configs/digits.yaml")
    assert found.fine is (change is None), found
    if change:
        assert "velocity" in found.worst.name
