"""Functions that 2.1 and later versions have: NumPy is the oracle, and PyTorch's documents where NumPy has none."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from pe_cli import paddle
from pe_cli.paddle import fluid

X = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.5]], "float32")
Y = np.array([[1.0, 0.0, -2.0], [-0.5, 0.0, 3.0]], "float32")
P = np.array([[0.2, 0.5, 0.9], [0.7, 0.01, 0.6]], "float32")
GAPS = np.array([[1.0, np.nan, 2.0], [4.0, 5.0, np.nan]], "float32")
SIGMOID = 1 / (1 + np.exp(-X))


FED = {"x": X, "y": Y, "p": P, "g": GAPS}


def fed(name):
    block = fluid.default_main_program().global_block()
    return block.var(name) if block.has_var(name) else fluid.data(name, [None, 3])


CASES = [
    ("acosh", lambda p: p.acosh(p.abs(fed("x")) + 1.0), np.arccosh(abs(X) + 1)),
    ("asinh", lambda p: p.asinh(fed("x")), np.arcsinh(X)),
    ("atanh", lambda p: p.atanh(fed("p")), np.arctanh(P)),
    ("atan2 of all quadrants", lambda p: p.atan2(fed("x"), fed("y")), np.arctan2(X, Y)),
    ("deg2rad", lambda p: p.deg2rad(fed("x")), np.deg2rad(X)),
    ("rad2deg", lambda p: p.rad2deg(fed("x")), np.rad2deg(X)),
    ("expm1 near 0", lambda p: p.expm1(p.scale(fed("x"), 1e-6)), np.expm1(X * np.float32(1e-6))),
    ("trunc", lambda p: p.trunc(fed("x")), np.trunc(X)),
    ("frac", lambda p: p.frac(fed("x")), X - np.trunc(X)),
    ("hypot", lambda p: p.hypot(fed("x"), fed("y")), np.hypot(X, Y)),
    ("logaddexp", lambda p: p.logaddexp(fed("x") * 100.0, fed("y")), np.logaddexp(X * 100, Y)),
    ("logit", lambda p: p.logit(fed("p")), np.log(P / (1 - P))),
    ("logit held", lambda p: p.logit(fed("p"), 0.3), np.log(P.clip(0.3, 0.7) / (1 - P.clip(0.3, 0.7)))),
    ("lerp", lambda p: p.lerp(fed("x"), fed("y"), 0.25), X + 0.25 * (Y - X)),
    ("neg", lambda p: p.neg(fed("x")), -X),
    ("isclose", lambda p: p.isclose(fed("g"), fed("g"), equal_nan=True), np.ones((2, 3), bool)),
    ("isclose without NaN", lambda p: p.isclose(fed("g"), fed("g")), ~np.isnan(GAPS)),
    ("masked_fill", lambda p: p.masked_fill(fed("x"), fed("x") > fed("y"), 9.0), np.where(X > Y, 9, X)),
    ("amax", lambda p: p.amax(fed("x"), axis=1, keepdim=True), X.max(1, keepdims=True)),
    ("amin", lambda p: p.amin(fed("x"), 0), X.min(0)),
    ("count_nonzero", lambda p: p.count_nonzero(fed("y"), axis=0), np.count_nonzero(Y, 0)),
    ("nansum", lambda p: p.nansum(fed("g"), axis=1), np.nansum(GAPS, 1)),
    ("nanmean", lambda p: p.nanmean(fed("g"), axis=0), np.nanmean(GAPS, 0)),
    ("diff", lambda p: p.diff(fed("x"), n=2), np.diff(X, 2)),
    ("moveaxis", lambda p: p.moveaxis(p.stack([fed("x"), fed("y")], 2), 2, 0), np.stack([X, Y])),
    ("repeat_interleave", lambda p: p.repeat_interleave(fed("x"), 2, 1), np.repeat(X, 2, 1)),
    ("repeat_interleave of rows", lambda p: p.repeat_interleave(fed("x"), 3, 0), np.repeat(X, 3, 0)),
    ("repeat_interleave of all", lambda p: p.repeat_interleave(fed("x"), 2), np.repeat(X, 2)),
    ("inner", lambda p: p.inner(fed("x"), p.assign(Y)), np.inner(X, Y)),
    ("outer", lambda p: p.outer(fed("x"), p.assign(Y[0])), np.outer(X, Y[0])),
    ("take_along_axis", lambda p: p.take_along_axis(fed("x"), p.argsort(fed("x"), 1), 1), np.sort(X, 1)),
    ("clone", lambda p: p.clone(fed("x")), X),
    ("cast to paddle.int64", lambda p: p.cast(fed("x"), p.int64), X.astype("int64")),
    ("silu", lambda p: p.nn.Silu()(fed("x")), X * SIGMOID),
    ("mish", lambda p: p.nn.functional.mish(fed("x")), X * np.tanh(np.log1p(np.exp(X)))),
    ("celu", lambda p: p.nn.CELU(2.0)(fed("x")), np.where(X > 0, X, 2 * np.expm1(X / 2))),
    ("glu", lambda p: p.nn.GLU()(p.concat([fed("y"), fed("x")], 1)), Y * SIGMOID),
    ("identity", lambda p: p.nn.Identity()(fed("x")), X),
]


@pytest.mark.parametrize(("make", "wanted"), [pytest.param(m, w, id=i) for i, m, w in CASES])
def test_functions(make, wanted):
    made = make(paddle)
    feed = {name: value for name, value in FED.items() if fluid.default_main_program().global_block().has_var(name)}
    found = np.asarray(fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[made])[0])
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6 * float(np.max(np.abs(wanted))))


def test_gradients_flow_through_what_is_composed():
    x = fed("x")
    x.stop_gradient = False
    (slope,) = fluid.gradients(paddle.sum(paddle.atan2(x, paddle.full_like(x, 2.0)) + paddle.asinh(x)), [x])
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": X}, fetch_list=[slope])[0]
    np.testing.assert_allclose(found, 2 / (4 + X**2) + 1 / np.sqrt(X**2 + 1), rtol=1e-5)


@pytest.mark.parametrize(("call", "says"), [
    pytest.param(lambda: paddle.diff(fed("x"), axis=0), "diff: 1 times along axis 0", id="an axis that only a step knows"),
    pytest.param(lambda: paddle.moveaxis(fed("x"), [0, 0], [0, 1]), "moveaxis", id="an axis twice"),
    pytest.param(lambda: paddle.repeat_interleave(fed("x"), 0), "repeats is 0", id="repeated no time"),
    pytest.param(lambda: paddle.io.RandomSampler(range(3), num_samples=2), "num_samples is 2", id="fewer without replacement"),
    pytest.param(lambda: paddle.io.WeightedRandomSampler([1.0, 0.0], 2, False), "2 of 1 samples", id="more than have a weight"),
    pytest.param(lambda: paddle.io.ComposeDataset([range(2), range(3)]), "lengths are", id="data sets of two lengths"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_samplers_give_each_sample_as_often_as_they_say():
    random.seed(3)
    io = paddle.io
    assert list(io.SequenceSampler(range(4))) == [0, 1, 2, 3]
    assert sorted(io.RandomSampler(range(50))) == list(range(50)) != list(io.RandomSampler(range(50)))
    assert len(list(io.RandomSampler(range(3), replacement=True, num_samples=9))) == 9
    assert sorted(io.SubsetRandomSampler([7, 5, 9])) == [5, 7, 9]
    drawn = list(io.WeightedRandomSampler([1.0, 0.0, 3.0], 4000))
    assert set(drawn) == {0, 2}
    assert abs(drawn.count(2) / 4000 - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 4000)
    assert sorted(io.WeightedRandomSampler([1.0, 0.0, 3.0], 2, replacement=False)) == [0, 2]
    batches = list(io.BatchSampler(sampler=io.SequenceSampler(range(5)), batch_size=2))
    assert batches == [[0, 1], [2, 3], [4]]


def test_data_sets_of_others():
    io = paddle.io
    joined = io.ConcatDataset([[10, 11], [12]])
    assert [joined[i] for i in (0, 1, 2, -1)] == [10, 11, 12, 12]
    with pytest.raises(IndexError, match="no sample 3 of 3"):
        joined[3]
    assert io.ComposeDataset([[(1, 2)], [3]])[0] == (1, 2, 3)
    assert list(io.ChainDataset([[1, 2], [3]])) == [1, 2, 3]
