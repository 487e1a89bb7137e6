"""Every optimizer over several steps: fluid's formula in NumPy, and torch where it has the same definition."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.adaptive_moments import Adam, Adamax, Lamb
from pe_cli.optim.optimizers import (
    OPTIMIZERS,
    SGD,
    Adadelta,
    Adagrad,
    DecayedAdagrad,
    Ftrl,
    LarsMomentum,
    Momentum,
    RMSProp,
)
from pe_cli.optim.regularizer import L2Decay
from tests.needs import torch
from tests.optim.support import Training

STEPS = 6
RATE = 0.05


def sgd(p, g, s, t):
    return p - RATE * g


def momentum(p, g, s, t):
    s["v"] = 0.9 * s["v"] + g
    return p - RATE * s["v"]


def nesterov(p, g, s, t):
    s["v"] = 0.9 * s["v"] + g
    return p - RATE * (g + 0.9 * s["v"])


def adagrad(p, g, s, t):
    s["m"] = s["m"] + g**2
    return p - RATE * g / (np.sqrt(s["m"]) + 1e-6)


def decayed_adagrad(p, g, s, t):
    s["m"] = 0.95 * s["m"] + 0.05 * g**2
    return p - RATE * g / (np.sqrt(s["m"]) + 1e-6)


def adam(p, g, s, t):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["v"] = 0.999 * s["v"] + 0.001 * g**2
    rate = RATE * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return p - rate * s["m"] / (np.sqrt(s["v"]) + 1e-8)


def adamax(p, g, s, t):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["u"] = np.maximum(np.abs(g), 0.999 * s["u"] + 1e-8)
    return p - RATE / (1 - 0.9**t) * s["m"] / s["u"]


def rmsprop(p, g, s, t):
    s["m"] = 0.95 * s["m"] + 0.05 * g**2
    s["v"] = 0.3 * s["v"] + RATE * g / np.sqrt(s["m"] + 1e-6)
    return p - s["v"]


def centered(p, g, s, t):
    s["m"] = 0.95 * s["m"] + 0.05 * g**2
    s["a"] = 0.95 * s["a"] + 0.05 * g
    s["v"] = 0.3 * s["v"] + RATE * g / np.sqrt(s["m"] - s["a"] ** 2 + 1e-6)
    return p - s["v"]


def adadelta(p, g, s, t):
    s["m"] = 0.95 * s["m"] + 0.05 * g**2
    move = np.sqrt((s["u"] + 1e-6) / (s["m"] + 1e-6)) * g
    s["u"] = 0.95 * s["u"] + 0.05 * move**2
    return p - np.sqrt((s["u"] + 1e-6) / (s["m"] + 1e-6)) * g  # the original moves by what it has learned of this very step


def lars(p, g, s, t):
    size, slope = np.linalg.norm(p), np.linalg.norm(g)
    local = RATE * 0.001 * size / (slope + 0.0005 * size)
    s["v"] = 0.9 * s["v"] + local * (g + 0.0005 * p)
    return p - s["v"]


def lamb(p, g, s, t):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["v"] = 0.999 * s["v"] + 0.001 * g**2
    move = s["m"] / (np.sqrt(s["v"]) + 1e-6) + 0.01 * p
    return p - RATE * np.linalg.norm(p) / np.linalg.norm(move) * move


def ftrl(power):
    def step(p, g, s, t):
        before, after = s["m"] ** -power, (s["m"] + g**2) ** -power
        s["v"] = s["v"] + g - (after - before) / RATE * p
        s["m"] = s["m"] + g**2
        moved = (0.5 * np.sign(s["v"]) - s["v"]) / (after / RATE + 2 * 0.2)
        return np.where(np.abs(s["v"]) <= 0.5, 0.0, moved)

    return step


CASES = [
    pytest.param(lambda: SGD(RATE), sgd, id="SGD"),
    pytest.param(lambda: Momentum(RATE, 0.9), momentum, id="Momentum"),
    pytest.param(lambda: Momentum(RATE, 0.9, use_nesterov=True), nesterov, id="Momentum by Nesterov"),
    pytest.param(lambda: Adagrad(RATE), adagrad, id="Adagrad"),
    pytest.param(lambda: DecayedAdagrad(RATE), decayed_adagrad, id="DecayedAdagrad"),
    pytest.param(lambda: Adam(RATE), adam, id="Adam"),
    pytest.param(lambda: Adamax(RATE), adamax, id="Adamax"),
    pytest.param(lambda: RMSProp(RATE, momentum=0.3), rmsprop, id="RMSProp with momentum"),
    pytest.param(lambda: RMSProp(RATE, momentum=0.3, centered=True), centered, id="RMSProp, centered"),
    pytest.param(lambda: Adadelta(RATE), adadelta, id="Adadelta, whose formula has no rate"),
    pytest.param(lambda: LarsMomentum(RATE, 0.9), lars, id="LarsMomentum"),
    pytest.param(lambda: Lamb(RATE), lamb, id="Lamb without correction of the first steps"),
    pytest.param(lambda: Ftrl(RATE, 0.5 - 1e-10, 0.2 - 1e-10), ftrl(-0.5), id="Ftrl by the root"),
    pytest.param(lambda: Ftrl(RATE, 0.5 - 1e-10, 0.2 - 1e-10, -0.7), ftrl(-0.7), id="Ftrl by a power"),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-5)])
@pytest.mark.parametrize(("make", "formula"), CASES)
def test_steps_follow_the_formula(make, formula, dtype, tolerance):
    rng = np.random.default_rng(3)
    first = rng.standard_normal(37).astype(dtype)
    training = Training(make(), w=first)
    want = first.astype("float64")
    state = {k: np.zeros(37) for k in "muva"}
    for t in range(1, STEPS + 1):
        gradient = rng.standard_normal(37).astype(dtype)
        training.step(w=gradient)
        want = formula(want, gradient.astype("float64"), state, t)
        np.testing.assert_allclose(training.value("w"), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("make", "name", "arguments"),
    [
        pytest.param(lambda r: SGD(RATE, r), "SGD", {}, id="SGD"),
        pytest.param(lambda r: Momentum(RATE, 0.8, False, r), "SGD", {"momentum": 0.8}, id="Momentum"),
        pytest.param(lambda r: Momentum(RATE, 0.8, True, r), "SGD", {"momentum": 0.8, "nesterov": True}, id="Nesterov"),
        pytest.param(lambda r: Adagrad(RATE, 1e-3, r), "Adagrad", {"eps": 1e-3}, id="Adagrad"),
        # Torch adds epsilon to the corrected root: the definitions meet where it vanishes.
        pytest.param(lambda r: Adam(RATE, 0.8, 0.9, 0.0, r), "Adam", {"betas": (0.8, 0.9), "eps": 0.0}, id="Adam"),
    ],
)
def test_steps_with_weight_decay_equal_torch(make, name, arguments):
    rng = np.random.default_rng(4)
    first = rng.standard_normal(20)
    training = Training(make(L2Decay(0.1)), w=first)
    theirs = torch.nn.Parameter(torch.tensor(first))
    optimizer = getattr(torch.optim, name)([theirs], **{"lr": RATE, "weight_decay": 0.1, **arguments})
    for _ in range(STEPS):
        gradient = rng.standard_normal(20)
        training.step(w=gradient)
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(training.value("w"), theirs.detach().numpy(), rtol=1e-11, atol=1e-12)


def test_a_nan_gradient_shows_in_the_parameter():
    for make, _ in (case.values for case in CASES):
        training = Training(make(), w=np.ones(5))
        gradient = np.array([1.0, np.nan, 1.0, 1.0, 1.0])
        training.step(w=gradient)
        assert np.isnan(training.value("w")[1]), type(training.optimizer).__name__


def test_the_powers_of_adam_count_the_steps():
    training = Training(Adam(0.1), w=np.ones(3))
    for _ in range(3):
        training.step(w=np.ones(3))
    (parameter,) = training.main.global_block().parameters()
    names = [training.optimizer.state(slot, parameter).name for slot in ("Beta1Pow", "Beta2Pow")]
    assert names == ["w_beta1_pow_acc_0", "w_beta2_pow_acc_0"]
    np.testing.assert_allclose([training.scope.get(n) for n in names], [[0.9**4], [0.999**4]])
    training = Training(Adamax(0.1), w=np.ones(3))
    training.step(w=np.ones(3))
    np.testing.assert_allclose(training.scope.get("w_beta1_pow_acc_0"), [0.9**2])


def test_adagrad_starts_from_its_initial_value():
    training = Training(Adagrad(1.0, 0.0, initial_accumulator_value=3.0), w=np.zeros(1))
    training.step(w=np.ones(1))
    np.testing.assert_allclose(training.value("w"), [-0.5])


def test_ftrl_sets_elements_with_small_gradients_to_zero():
    training = Training(Ftrl(0.1, l1=1.0), w=np.ones(2))
    training.step(w=np.array([0.1, 50.0]))
    assert training.value("w")[0] == 0
    assert training.value("w")[1] != 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_type_has_named_arguments_only(name):
    kinds = {p.kind for p in inspect.signature(OPTIMIZERS[name]).parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-0.1), "learning_rate must be > 0, got -0.1"),
        (lambda: SGD("fast"), "must be a number, a schedule or a variable, got 'fast'"),
        (lambda: Momentum(0.1, 1.5), r"Momentum: momentum must be in \[0, 1\), got 1.5"),
        (lambda: Adam(0.1, beta2=1.0), r"Adam: beta2 must be in \[0, 1\), got 1.0"),
        (lambda: RMSProp(0.1, epsilon=-1.0), "RMSProp: epsilon must be >= 0, got -1.0"),
        (lambda: L2Decay(-1.0), "regularization_coeff must be >= 0, got -1.0"),
    ],
)
def test_wrong_numbers_are_named(make, message):
    with pytest.raises(PeError, match=message):
        make()
