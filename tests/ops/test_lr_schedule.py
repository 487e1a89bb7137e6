"""Schedules against their closed forms as fluid documents them, at the steps where something happens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import find
from tests.needs import torch
from tests.ops.support import run_op


def rate(op, step, inputs=None, **attrs):
    counter = np.array([step], np.int64)
    return float(run_op(op, {"Step": counter, **(inputs or {})}, {**attrs, "dtype": "float64"})[0])


DECAY = {"learning_rate": 0.5, "decay_steps": 4, "decay_rate": 0.3}


@pytest.mark.parametrize(
    ("op", "step", "attrs", "expected"),
    [
        pytest.param("exponential_decay", 0, DECAY, 0.5, id="exponential: starts at the rate"),
        pytest.param("exponential_decay", 6, DECAY, 0.5 * 0.3**1.5, id="exponential: between"),
        pytest.param("exponential_decay", 7, DECAY | {"staircase": True}, 0.5 * 0.3, id="exponential: last of a stair"),
        pytest.param("exponential_decay", 8, DECAY | {"staircase": True}, 0.5 * 0.09, id="exponential: next stair"),
        pytest.param("natural_exp_decay", 6, DECAY, 0.5 * math.exp(-0.45), id="natural exp: between"),
        pytest.param(
            "natural_exp_decay", 7, DECAY | {"staircase": True}, 0.5 * math.exp(-0.3), id="natural exp: stair"
        ),
        pytest.param("inverse_time_decay", 6, DECAY, 0.5 / 1.45, id="inverse time: between"),
        pytest.param("inverse_time_decay", 7, DECAY | {"staircase": True}, 0.5 / 1.3, id="inverse time: stair"),
    ],
)
def test_decays(op, step, attrs, expected):
    assert rate(op, step, **attrs) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("step", "attrs", "expected"),
    [
        pytest.param(0, {}, 0.5, id="starts at the rate"),
        pytest.param(3, {}, 0.4 * 0.7**2 + 0.1, id="between"),
        pytest.param(10, {}, 0.1, id="reaches the end"),
        pytest.param(99, {}, 0.1, id="stays at the end"),
        pytest.param(0, {"cycle": True}, 0.5, id="a cycle starts at the rate"),
        pytest.param(10, {"cycle": True}, 0.1, id="the first cycle reaches the end"),
        pytest.param(11, {"cycle": True}, 0.4 * (1 - 11 / 20) ** 2 + 0.1, id="the second cycle is twice as long"),
        pytest.param(25, {"cycle": True}, 0.4 * (1 - 25 / 30) ** 2 + 0.1, id="the third thrice"),
    ],
)
def test_polynomial(step, attrs, expected):
    given = {"learning_rate": 0.5, "decay_steps": 10, "end_learning_rate": 0.1, "power": 2.0}
    assert rate("polynomial_decay", step, **given, **attrs) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("step", "expected"), [(0, 1.0), (9, 1.0), (10, 0.5), (19, 0.5), (20, 0.1), (10**12, 0.1)])
def test_piecewise_changes_at_its_boundaries(step, expected):
    assert rate("piecewise_decay", step, boundaries=[10, 20], values=[1.0, 0.5, 0.1]) == expected


@pytest.mark.parametrize(("step", "epoch"), [(0, 0), (9, 0), (10, 1), (59, 5), (119, 11)])
def test_cosine_changes_by_epoch(step, epoch):
    expected = 0.1 * 0.5 * (math.cos(epoch * math.pi / 12) + 1)
    assert rate("cosine_decay", step, learning_rate=0.1, step_each_epoch=10, epochs=12) == pytest.approx(
        expected, rel=1e-14
    )


@pytest.mark.parametrize("step", [0, 1, 98, 99, 100, 5000])
def test_noam_counts_from_one(step):
    t = step + 1
    expected = 2.0 * 64**-0.5 * min(t**-0.5, t * 100**-1.5)
    assert rate("noam_decay", step, d_model=64, warmup_steps=100, learning_rate=2.0) == pytest.approx(
        expected, rel=1e-14
    )


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (1, 0.3), (3, 0.7), (4, 0.25), (99, 0.25)], ids=lambda v: f"{v}"
)
def test_warmup_hands_over(step, expected):
    given = {"warmup_steps": 4, "start_lr": 0.1, "end_lr": 0.9}
    for dtype in ("float32", "float64"):
        got = rate("linear_lr_warmup", step, {"LearningRate": np.array([0.25], dtype)}, **given)
        assert got == pytest.approx(expected, rel=1e-14)


def torch_rates(make, steps):
    """Return the rates of the first steps under a scheduler of torch, which `make(schedulers, optimizer)` returns."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"total_steps": 20}, id="torch's defaults"),
        pytest.param({"total_steps": 17, "pct_start": 0.25}, id="the top between two steps"),
        pytest.param({"total_steps": 20, "anneal_strategy": "linear"}, id="lines"),
        pytest.param({"total_steps": 10, "pct_start": 0.5, "div_factor": 3.0, "final_div_factor": 7.0}, id="other ends"),
        pytest.param({"total_steps": 10, "pct_start": 0.0}, id="down only"),
        pytest.param({"total_steps": 10, "pct_start": 1.0}, id="up only"),
    ],
)
def test_one_cycle_is_torchs(attrs):
    steps = attrs["total_steps"]
    wanted = torch_rates(lambda s, o: s.OneCycleLR(o, 0.5, cycle_momentum=False, **attrs), steps - 1)
    found = [rate("one_cycle", step, max_lr=0.5, **attrs) for step in range(steps - 1)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(0, 0.02, id="starts at max_lr / div_factor"),
        pytest.param(1, 0.02 + 0.48 / 2, id="half way up"),
        pytest.param(2, 0.5, id="the top"),
        pytest.param(9, 0.02e-4, id="the last step"),
        pytest.param(10**12, 0.02e-4, id="stays at the end"),
    ],
)
def test_one_cycle(step, expected):
    assert rate("one_cycle", step, max_lr=0.5, total_steps=10) == pytest.approx(expected, rel=1e-12)


def test_a_cycle_whose_first_step_is_the_top_begins_there():
    assert rate("one_cycle", 0, max_lr=0.5, total_steps=10, pct_start=0.1) == 0.5


@pytest.mark.parametrize(("first", "times", "least"), [(5, 1, 0.0), (3, 2, 0.01), (2, 3, 0.1), (1, 1, 0.0)])
def test_cosine_restarts_are_torchs(first, times, least):
    wanted = torch_rates(lambda s, o: s.CosineAnnealingWarmRestarts(o, first, times, least), 40)
    given = {"learning_rate": 0.5, "T_0": first, "T_mult": times, "eta_min": least}
    np.testing.assert_allclose([rate("cosine_restarts", step, **given) for step in range(40)], wanted, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(0, 0.5, id="starts at the rate"),
        pytest.param(2, 0.3, id="half way"),
        pytest.param(4, 0.5, id="starts anew"),
        pytest.param(8, 0.3, id="half way of a fall twice as long"),
        pytest.param(12, 0.5, id="starts anew again"),
        pytest.param(4 * (2**40 - 1), 0.5, id="after 40 falls"),
    ],
)
def test_cosine_restarts(step, expected):
    found = rate("cosine_restarts", step, learning_rate=0.5, T_0=4, T_mult=2, eta_min=0.1)
    assert found == pytest.approx(expected, rel=1e-14)


def test_a_delayed_counter_stays_at_0_before():
    found = [int(run_op("delayed_step", {"Step": np.array([s])}, {"begin": 3})[0]) for s in (0, 2, 3, 4, 10**12)]
    assert found == [0, 0, 0, 1, 10**12 - 3]


def test_a_rate_in_float32_is_rounded_once():
    got = run_op("exponential_decay", {"Step": np.array([1000])}, {"learning_rate": 0.1, "decay_rate": 0.999})
    assert got.dtype == np.float32
    assert got[0] == np.float32(0.1 * 0.999**1000)


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("exponential_decay", {"decay_steps": 0}, "decay_steps must be > 0, got 0"),
        ("noam_decay", {"d_model": -1}, "d_model must be > 0, got -1"),
        ("one_cycle", {"pct_start": 1.5}, r"pct_start must be in \[0, 1\], got 1.5"),
        ("one_cycle", {"total_steps": 0}, "total_steps must be > 0, got 0"),
        ("cosine_restarts", {"T_mult": 0}, "T_mult must be > 0, got 0"),
        ("delayed_step", {"begin": -1}, "begin must be >= 0, got -1"),
        ("piecewise_decay", {"boundaries": [5], "values": [0.1]}, "one value more than boundaries, got 1 and 1"),
        ("piecewise_decay", {"boundaries": [5, 5], "values": [0.1, 0.2, 0.3]}, r"increasing boundaries, got \[5, 5\]"),
    ],
)
def test_numbers_that_do_not_fit(op, attrs, message):
    definition = find(op)
    with pytest.raises(PeError, match=message):
        definition.infer(TensorType((1,), "int64"), **definition.check_attrs(attrs))


def test_the_counter_must_be_a_counter():
    definition = find("cosine_decay")
    with pytest.raises(PeError, match=r"needs a counter int64\[1\], got float32\[1\]"):
        definition.infer(TensorType((1,)), **definition.check_attrs({}))
