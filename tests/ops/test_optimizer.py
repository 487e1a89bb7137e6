"""Update ops as ops: inputs that are other variables than the outputs, types, and what happens to gradients before."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.compiler.bounds_check import CHECKED
from pe_cli.ops.define.registry import find
from tests.ops.support import build, execute, run_gradient, run_op

RNG = np.random.default_rng(8)
P, G, V = (RNG.standard_normal(9) for _ in range(3))
RATE = np.array([0.1])


def test_inputs_stay_where_the_outputs_are_other_variables():
    inputs = {"Param": [P], "Grad": [G], "Velocity": [V], "LearningRate": [RATE]}
    program, outs = build("momentum", inputs, {"mu": 0.5})
    got = execute(program, inputs, ["Param_0", "Velocity_0", outs["ParamOut"][0], outs["VelocityOut"][0]])
    np.testing.assert_array_equal(got["Param_0"], P)
    np.testing.assert_array_equal(got["Velocity_0"], V)
    velocity = 0.5 * V + G
    np.testing.assert_allclose(got[outs["VelocityOut"][0]], velocity, rtol=1e-15)
    np.testing.assert_allclose(got[outs["ParamOut"][0]], P - 0.1 * velocity, rtol=1e-14)


def test_the_rate_may_be_of_another_float_type():
    narrow = run_op("sgd", {"Param": P.astype("float32"), "Grad": G.astype("float32"), "LearningRate": RATE})
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, P - 0.1 * G, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([(3,), (4,), (1,)], "Grad is .*4.* and Param is .*3"),
        ([(3,), (3,), (3,)], r"LearningRate must be a float \[1\]"),
        ([(3,), (3,), (1,), (2,)], "an accumulator is .*2.* and Param is .*3"),
    ],
)
def test_types_must_fit(types, message):
    kinds = [TensorType(s) for s in types]
    definition = find("momentum" if len(kinds) == 4 else "sgd")
    if len(kinds) == 4:
        kinds = [kinds[0], kinds[1], kinds[3], kinds[2]]
    with pytest.raises(PeError, match=message):
        definition.infer(*kinds, **definition.check_attrs({}))


def test_integers_are_not_trained():
    definition = find("sgd")
    with pytest.raises(PeError, match="updates float32 and float64"):
        definition.infer(TensorType((3,), "int64"), TensorType((3,), "int64"), TensorType((1,)))


def test_decay_adds_its_gradient():
    inputs = {"Grad": G, "Param": P}
    np.testing.assert_allclose(run_op("l2_decay", inputs, {"coeff": 0.3}), G + 0.3 * P, rtol=1e-14)
    zeros = np.where(np.arange(9) % 3 == 0, 0.0, P)
    got = run_op("l1_decay", {"Grad": G, "Param": zeros}, {"coeff": 0.3})
    np.testing.assert_allclose(got, G + 0.3 * np.sign(zeros), rtol=1e-14)
    assert np.isnan(run_op("l1_decay", {"Grad": G, "Param": np.full(9, np.nan)}, {"coeff": 0.3})).all()


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clip_by_norm_keeps_the_direction(limit):
    length = np.linalg.norm(G)
    np.testing.assert_allclose(
        run_op("clip_by_norm", {"X": G}, {"max_norm": limit}), G * min(1.0, limit / length), rtol=1e-14
    )


@pytest.mark.skipif(CHECKED, reason="checked loops are no vectors, so that a sum has one part")
def test_squares_of_many_float32_keep_their_digits():
    many = np.full(1_000_000, 0.1, np.float32)
    np.testing.assert_allclose(run_op("squared_l2_norm", {"X": many}), [1e4], rtol=1e-6)
    back = run_gradient("squared_l2_norm", {"X": G}, upstream=np.array([3.0]))["X"]
    np.testing.assert_allclose(back, 6 * G, rtol=1e-15)


@pytest.mark.parametrize(("square", "scale"), [(4.0, 0.5), (1.0, 1.0), (0.0, 1.0), (np.nan, np.nan)])
def test_the_global_scale_is_at_most_one(square, scale):
    np.testing.assert_allclose(run_op("global_norm_scale", {"X": np.array([square])}, {"clip_norm": 1.0}), [scale])


def test_a_limit_of_zero_is_an_error():
    for op, attr in (("clip_by_norm", "max_norm"), ("global_norm_scale", "clip_norm")):
        with pytest.raises(PeError, match=f"{op}: {attr} must be > 0, got 0.0"):
            find(op).infer(TensorType((1,)), **{attr: 0.0})


def test_dpsgd_shortens_the_gradient_and_adds_noise_of_its_own_to_every_element():
    gradient = np.full(10000, 0.3)  # 30 long
    inputs = {"Param": np.zeros(10000), "Grad": gradient, "LearningRate": np.ones(1)}
    attrs = {"clip": 6.0, "batch_size": 4.0, "sigma": 2.0}
    moved = [run_op("dpsgd", inputs, attrs, step=s) for s in (0, 1)]
    noise = [-m - gradient / 5 for m in moved]
    for z in noise:
        assert abs(z.mean()) < 4 * 0.5 / 100
        assert z.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(*noise)[0, 1]) < 0.05
    still = run_op("dpsgd", {**inputs, "Grad": gradient / 10}, {**attrs, "sigma": 0.0})
    np.testing.assert_allclose(still, -gradient / 10)


@pytest.mark.parametrize("epsilon", [1e-8, 0.0])
@pytest.mark.parametrize("threads", [1, 3])
def test_fused_adam_passes_over_rows_without_gradients_only_where_nothing_would_change(epsilon, threads):
    shape = (200, 96)  # rows that are no multiple of what is passed over
    g, m, v = (np.abs(RNG.standard_normal(shape)).astype("float32") for _ in range(3))
    g[::2] = m[::4] = v[::4] = 0  # every fourth row was never touched, another fourth not this time
    g[100:110], m[120:130], v[140:150] = 0, 0, 0
    g[197, 40], m[198, 50], v[199, 60] = np.nan, np.inf, 1e-40
    p, power = RNG.standard_normal(shape).astype("float32"), np.array([0.5], "float32")
    names = ("Param", "Grad", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
    given = dict(zip(names, (p, g, m, v, power, power), strict=True))
    rate = RATE.astype("float32")
    one = run_op("adam", {**given, "LearningRate": rate}, {"epsilon": epsilon})
    outs = ("ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut")
    both = {name: [a, a[:7] if a.ndim > 1 else a] for name, a in given.items()}
    found = run_op("fused_adam", {**both, "LearningRate": rate}, {"epsilon": epsilon}, dict.fromkeys(outs, 2), threads=threads)
    assert np.isnan(one["ParamOut"]).any(axis=1).sum() == (51 if epsilon == 0 else 1)
    for name in outs:
        np.testing.assert_array_equal(found[name][0], one[name], err_msg=name)
        np.testing.assert_array_equal(found[name][1], one[name][:7], err_msg=name)


#: Op -> what is averaged in it, and the attribute that says how much of it stays.
AVERAGES = {
    "adam": ("Moment2", "beta2"), "adamw": ("Moment2", "beta2"), "nadam": ("Moment2", "beta2"), "radam": ("Moment2", "beta2"),
    "lamb": ("Moment2", "beta2"), "rmsprop": ("MeanSquare", "decay"), "adadelta": ("AvgSquaredGrad", "rho"),
}  # fmt: skip


@pytest.mark.parametrize("name", AVERAGES)
def test_a_small_average_of_large_squares_keeps_all_digits(name: str):
    definition, (slot, attr) = find(name), AVERAGES[name]
    rng, stays = np.random.default_rng(3), np.float32(0.999)
    slots = [s.name for s in definition.inputs if s.name != "Rows"]
    alone = ("LearningRate", "Beta1Pow", "Beta2Pow", "Count", "Product")
    inputs = {s: rng.uniform(0.5, 1.0, 1 if s in alone else 1000).astype(np.float32) for s in slots}
    inputs[slot] *= np.float32(1e-3)
    got = run_op(name, inputs, {attr: 0.999})[f"{slot}Out"]
    keep = float(stays)
    np.testing.assert_allclose(got, keep * inputs[slot].astype(float) + (1 - keep) * inputs["Grad"].astype(float) ** 2, rtol=4e-7)


def test_an_average_that_hardly_moves_keeps_all_digits():
    rng, keep = np.random.default_rng(3), np.float32(0.9999)
    x, average = rng.uniform(0.5, 1.0, 1000).astype(np.float32), rng.uniform(0.5e-4, 1e-4, 1000).astype(np.float32)
    got = run_op("moving_average", {"X": x, "Average": average, "Decay": np.array([keep])})
    np.testing.assert_allclose(got, float(keep) * average.astype(float) + (1 - float(keep)) * x.astype(float), rtol=4e-7)
