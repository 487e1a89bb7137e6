"""minimize: the order of clipping, decay and update, roles, rates for each parameter, and several devices."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.adaptive_moments import Adam, Lamb
from pe_cli.optim.clip import (
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
    set_gradient_clip,
)
from pe_cli.optim.optimizers import SGD, Momentum
from pe_cli.optim.regularizer import L1Decay, L2Decay
from pe_cli.optim.schedule import ExponentialDecay
from pe_cli.program.ir import Role
from pe_cli.program.parse import parse_program
from pe_cli.program.text import print_program
from tests.needs import torch
from tests.optim.support import Training, linear

P = np.array([1.0, -2.0, 0.0, 4.0])
G = np.array([3.0, -4.0, 0.5, 0.0])


def moved(optimizer, gradient=G, **facts):
    """Return how far one step of rate 1 goes."""
    training = Training(optimizer, w=(P, facts))
    training.step(w=gradient)
    return P - training.value("w")


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        pytest.param(GradientClipByValue(1.0), [1, -1, 0.5, 0], id="by value, both sides"),
        pytest.param(GradientClipByValue(1.0, -5.0), [1, -4, 0.5, 0], id="by value, one side"),
        pytest.param(GradientClipByNorm(2.0), G * 2 / np.sqrt(25.25), id="by length"),
        pytest.param(GradientClipByNorm(6.0), G, id="shorter than the limit"),
        pytest.param(GradientClipByGlobalNorm(2.0), G * 2 / np.sqrt(25.25), id="by the length of all"),
        pytest.param(GradientClipByGlobalNorm(6.0), G, id="all shorter than the limit"),
    ],
)
def test_clipping(clip, expected):
    np.testing.assert_allclose(moved(SGD(1.0, grad_clip=clip)), expected, rtol=1e-15)
    np.testing.assert_allclose(moved(SGD(1.0), gradient_clip=clip), expected, rtol=1e-15)


def test_the_global_norm_is_that_of_the_group():
    clip = GradientClipByGlobalNorm(5.0)
    other = GradientClipByGlobalNorm(1.0, "other")
    ones = np.ones(1)
    training = Training(SGD(1.0, grad_clip=clip), a=ones, b=ones, c=(ones, {"gradient_clip": other}), d=(ones, {}))
    training.step(a=ones * 6, b=ones * 8, c=ones * 10, d=ones * 0)
    np.testing.assert_allclose([training.value(n)[0] for n in "abcd"], [1 - 3, 1 - 4, 1 - 1, 1])


def test_torch_shortens_alike():
    rng = np.random.default_rng(1)
    gradients = {n: rng.standard_normal(50) for n in "ab"}
    training = Training(SGD(1.0, grad_clip=GradientClipByGlobalNorm(0.7)), a=np.zeros(50), b=np.zeros(50))
    training.step(**gradients)
    theirs = [torch.nn.Parameter(torch.zeros(50, dtype=torch.float64)) for _ in "ab"]
    for p, g in zip(theirs, gradients.values(), strict=True):
        p.grad = torch.tensor(g)
    torch.nn.utils.clip_grad_norm_(theirs, 0.7)
    for p, n in zip(theirs, "ab", strict=True):
        np.testing.assert_allclose(-training.value(n), p.grad.numpy(), rtol=1e-6)  # torch adds 1e-6 to the norm


def test_different_limits_in_one_group_are_an_error():
    with pytest.raises(PeError, match=r"different clip_norm: 1\.0 and 2\.0"):
        Training(
            SGD(1.0, grad_clip=GradientClipByGlobalNorm(1.0)),
            a=P,
            b=(P, {"gradient_clip": GradientClipByGlobalNorm(2.0)}),
        )


def test_a_nan_gradient_is_not_clipped_away():
    for clip in (GradientClipByNorm(1.0), GradientClipByGlobalNorm(1.0)):
        assert np.isnan(moved(SGD(1.0, grad_clip=clip), gradient=np.array([1.0, np.nan, 0.0, 0.0]))).all()


@pytest.mark.parametrize(
    ("optimizer", "facts", "expected"),
    [
        pytest.param(SGD(1.0, L2Decay(0.5)), {}, G + 0.5 * P, id="L2"),
        pytest.param(SGD(1.0, L1Decay(0.5)), {}, G + 0.5 * np.sign(P), id="L1"),
        pytest.param(
            SGD(1.0, L2Decay(0.5)), {"regularizer": L1Decay(2.0)}, G + 2 * np.sign(P), id="its own goes first"
        ),
        pytest.param(SGD(1.0, L2Decay(0.5)), {"regularizer": L2Decay(0.0)}, G, id="its own zero switches it off"),
        pytest.param(
            SGD(1.0, L2Decay(0.5), GradientClipByValue(1.0)), {}, np.clip(G, -1, 1) + 0.5 * P, id="clipped before decay"
        ),
        pytest.param(SGD(1.0), {"weight_decay": 0.25}, G + 0.25 * P, id="a coefficient of its own is L2"),
        pytest.param(SGD(1.0, L1Decay(0.5)), {"weight_decay": 0.25}, G + 0.25 * P, id="its own coefficient goes first"),
        pytest.param(SGD(1.0, L2Decay(0.5)), {"weight_decay": 0.0}, G, id="its own coefficient 0 switches it off"),
        pytest.param(
            SGD(1.0), {"weight_decay": 0.25, "regularizer": L1Decay(2.0)}, G + 2 * np.sign(P), id="a regularizer says more"
        ),
    ],
)
def test_decay(optimizer, facts, expected):
    np.testing.assert_allclose(moved(optimizer, **facts), expected, rtol=1e-15)


def test_a_coefficient_of_its_own_must_not_be_negative():
    for optimizer in (SGD(1.0), Lamb(1.0)):
        with pytest.raises(PeError, match=r"weight_decay of the parameter 'w' must be >= 0, got -0\.5"):
            Training(optimizer, w=(P, {"weight_decay": -0.5}))
        with pytest.raises(PeError, match="must be >= 0, got 'much'"):
            Training(optimizer, w=(P, {"weight_decay": "much"}))


def test_an_optimizer_whose_decay_is_apart_takes_the_coefficient_of_each_parameter():
    optimizer = Lamb(0.1, lamb_weight_decay=0.5)
    training = Training(optimizer, a=P, b=(P, {"weight_decay": 0.25}), c=(P, {"weight_decay": 0.0}))
    assert [op.attrs["weight_decay"] for op in training.ops] == [0.5, 0.25, 0.0]
    assert [optimizer.decay_of(p) for p, _ in training.pairs] == [0.5, 0.25, 0.0]
    assert all(op.type != "l2_decay" for op in training.main.global_block().ops)


def test_set_gradient_clip_reaches_parameters_by_name():
    main, _, _ = linear({"a": (P, {}), "b": (P, {})})
    clip = GradientClipByNorm(1.0)
    set_gradient_clip(clip, ["a"], main)
    a, b = main.global_block().parameters()
    assert a.gradient_clip is clip
    assert b.gradient_clip is None
    with pytest.raises(PeError, match="'loss' is a variable, not a parameter"):
        set_gradient_clip(clip, ["loss"], main)


OWN = [{"regularizer": L1Decay(0.1)}, {"regularizer": L2Decay(0.1)}]
OWN += [{"gradient_clip": clip} for clip in (GradientClipByValue(2.0), GradientClipByNorm(1.0), GradientClipByGlobalNorm(1.0, "mine"))]


@pytest.mark.parametrize("facts", OWN, ids=lambda facts: type(next(iter(facts.values()))).__name__)
def test_what_a_parameter_has_of_its_own_is_in_the_text_of_its_program(facts):
    """Several processes compare their programs as text, and servers are given theirs so."""
    main, _, _ = linear({"w": (P, facts)})
    found = parse_program(print_program(main)).global_block().vars["w"]
    assert {name: getattr(found, name) for name in facts} == facts


def test_a_parameter_may_have_its_own_rate():
    training = Training(SGD(0.5), a=P, b=(P, {"learning_rate": 0.1}), c=(P, {"learning_rate": 0.0}))
    training.step(a=G, b=G, c=G)
    np.testing.assert_allclose(training.value("a"), P - 0.5 * G)
    np.testing.assert_allclose(training.value("b"), P - 0.05 * G)
    np.testing.assert_array_equal(training.value("c"), P)


def test_a_rate_that_is_a_number_is_a_variable_that_may_be_set():
    training = Training(SGD(0.5), w=P)
    rate = training.optimizer.rate(training.main)
    assert rate.name == "learning_rate_0"
    assert rate.persistable
    training.scope.set("learning_rate_0", np.array([0.25]))
    training.step(w=G)
    np.testing.assert_allclose(training.value("w"), P - 0.25 * G)


def test_a_schedule_counts_the_steps():
    training = Training(SGD(ExponentialDecay(0.5, 1, 0.5)), w=np.zeros(1))
    for want in (-0.5, -0.75, -0.875):
        training.step(w=np.ones(1))
        np.testing.assert_allclose(training.value("w"), [want])


def test_frozen_parameters_stay():
    training = Training(SGD(0.5), a=P, b=(P, {"trainable": False, "stop_gradient": True}))
    assert [p.name for p, _ in training.pairs] == ["a"]
    training.step(a=G, b=G)
    np.testing.assert_array_equal(training.value("b"), P)


def test_only_listed_parameters_are_updated():
    main, startup, loss = linear({"a": (P, {}), "b": (P, {})})
    ops, pairs = SGD(0.5).minimize(loss, startup, parameter_list=["b"])
    assert [p.name for p, _ in pairs] == ["b"]
    assert [op.inputs["Param"] for op in ops] == [["b"]]
    assert main.global_block().ops[-1] is ops[-1]


def test_every_op_after_backward_carries_its_parameter():
    clip = GradientClipByGlobalNorm(1.0)
    training = Training(Momentum(0.1, 0.9, regularization=L2Decay(0.1), grad_clip=clip), a=P, b=P)
    ops = [op for op in training.main.global_block().ops if op.role is Role.OPTIMIZE]
    kinds = [op.type for op in ops]
    assert kinds == [
        *("squared_l2_norm", "squared_l2_norm", "sum", "global_norm_scale", "scale_by", "scale_by"),
        *("l2_decay", "l2_decay", "momentum", "momentum"),
    ]
    for op in ops:
        assert op.role_vars in (["a", "a@GRAD"], ["b", "b@GRAD"], [])
        assert bool(op.role_vars) == (op.type not in ("sum", "global_norm_scale"))


@pytest.mark.parametrize("devices", [1, 2])
def test_replicas_stay_equal(devices):
    clip = GradientClipByGlobalNorm(0.5)
    rng = np.random.default_rng(2)
    optimizer = Adam(ExponentialDecay(0.1, 2, 0.5), regularization=L2Decay(0.01), grad_clip=clip)
    training = Training(optimizer, devices, a=P, b=(np.ones(33), {"learning_rate": 0.5}))
    alone = Training(
        Adam(ExponentialDecay(0.1, 2, 0.5), 0.9, 0.999, 1e-8, L2Decay(0.01), clip),
        a=P,
        b=(np.ones(33), {"learning_rate": 0.5}),
    )
    for _ in range(4):
        gradients = {"a": rng.standard_normal(4), "b": rng.standard_normal(33)}
        alone.step(**gradients)
        training.step(**gradients)
    for name in "ab":
        np.testing.assert_array_equal(training.value(name, devices - 1), training.value(name))
        np.testing.assert_allclose(training.value(name), alone.value(name), rtol=1e-13)
