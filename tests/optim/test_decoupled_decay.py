"""Optimizers with a weight decay apart from the gradient: torch's numbers where torch has them, the papers' formulas in NumPy elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.decoupled_decay import SGDW, AdamW, Lion, MomentumW, NAdam, RAdam
from pe_cli.optim.regularizer import L2Decay
from pe_cli.program.json_values import facts_of
from tests import needs
from tests.optim.support import Training

STEPS = 10
RATE = 0.05
DECAY = 0.3


def sgdw(p, g, s, t):
    return p - RATE * DECAY * p - RATE * g


def momentumw(p, g, s, t):
    s["v"] = 0.9 * s["v"] + g
    return p - RATE * DECAY * p - RATE * s["v"]


def nesterov(p, g, s, t):
    s["v"] = 0.9 * s["v"] + g
    return p - RATE * DECAY * p - RATE * (g + 0.9 * s["v"])


def adamw(p, g, s, t):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["v"] = 0.999 * s["v"] + 0.001 * g**2
    first, second = s["m"] / (1 - 0.9**t), s["v"] / (1 - 0.999**t)
    return p - RATE * DECAY * p - RATE * first / (np.sqrt(second) + 1e-8)


def lion(p, g, s, t):
    aim = np.sign(0.9 * s["m"] + 0.1 * g)
    s["m"] = 0.99 * s["m"] + 0.01 * g
    return p - RATE * (aim + DECAY * p)


def momentum_of(t):
    return 0.9 * (1 - 0.5 * 0.96 ** (0.004 * t))


def nadam(p, g, s, t):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["v"] = 0.999 * s["v"] + 0.001 * g**2
    product = np.prod([momentum_of(k) for k in range(1, t + 1)])
    aim = (1 - momentum_of(t)) / (1 - product) * g + momentum_of(t + 1) / (1 - product * momentum_of(t + 1)) * s["m"]
    return p - RATE * DECAY * p - RATE * aim / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)


def radam(p, g, s, t):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["v"] = 0.999 * s["v"] + 0.001 * g**2
    aim = s["m"] / (1 - 0.9**t)
    most = 2 / (1 - 0.999) - 1
    seen = most - 2 * t * 0.999**t / (1 - 0.999**t)
    if seen > 5:
        rectified = np.sqrt((seen - 4) * (seen - 2) * most / ((most - 4) * (most - 2) * seen))
        aim = aim * rectified * np.sqrt(1 - 0.999**t) / (np.sqrt(s["v"]) + 1e-8)
    return p - RATE * DECAY * p - RATE * aim


CASES = [
    pytest.param(lambda: SGDW(RATE, DECAY), sgdw, id="SGDW"),
    pytest.param(lambda: MomentumW(RATE, 0.9, weight_decay=DECAY), momentumw, id="MomentumW"),
    pytest.param(lambda: MomentumW(RATE, 0.9, True, DECAY), nesterov, id="MomentumW by Nesterov"),
    pytest.param(lambda: AdamW(RATE, weight_decay=DECAY), adamw, id="AdamW"),
    pytest.param(lambda: Lion(RATE, weight_decay=DECAY), lion, id="Lion"),
    pytest.param(lambda: NAdam(RATE, weight_decay=DECAY), nadam, id="NAdam"),
    pytest.param(lambda: RAdam(RATE, weight_decay=DECAY), radam, id="RAdam"),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 5e-5)])
@pytest.mark.parametrize(("make", "formula"), CASES)
def test_steps_follow_the_formula(make, formula, dtype, tolerance):
    rng = np.random.default_rng(3)
    first = rng.standard_normal(37).astype(dtype)
    training = Training(make(), w=first)
    want = first.astype("float64")
    state = {k: np.zeros(37) for k in "mv"}
    for t in range(1, STEPS + 1):
        gradient = rng.standard_normal(37).astype(dtype)
        training.step(w=gradient)
        want = formula(want, gradient.astype("float64"), state, t)
        np.testing.assert_allclose(training.value("w"), want, rtol=tolerance, atol=tolerance)


@pytest.fixture
def torch(dtype):
    """Return torch, whose NAdam keeps the product of its momenta in the default type."""
    found = needs.package("torch")
    before = found.get_default_dtype()
    found.set_default_dtype(getattr(found, dtype))
    yield found
    found.set_default_dtype(before)


DECOUPLED = {"decoupled_weight_decay": True}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 3e-5)])
@pytest.mark.parametrize(
    ("make", "name", "arguments"),
    [
        pytest.param(lambda d: AdamW(RATE, weight_decay=d), "AdamW", {}, id="AdamW"),
        pytest.param(lambda d: AdamW(RATE, 0.8, 0.9, 1e-2, d), "AdamW", {"betas": (0.8, 0.9), "eps": 1e-2}, id="AdamW, large epsilon"),
        pytest.param(lambda d: NAdam(RATE, weight_decay=d), "NAdam", DECOUPLED, id="NAdam"),
        pytest.param(
            lambda d: NAdam(RATE, 0.8, 0.9, 1e-2, d, 0.1), "NAdam",
            {"betas": (0.8, 0.9), "eps": 1e-2, "momentum_decay": 0.1, **DECOUPLED}, id="NAdam, other numbers",
        ),
        pytest.param(lambda d: RAdam(RATE, weight_decay=d), "RAdam", DECOUPLED, id="RAdam, rectified from step 6 on"),
        pytest.param(
            lambda d: RAdam(RATE, 0.8, 0.6, 1e-2, d), "RAdam", {"betas": (0.8, 0.6), "eps": 1e-2, **DECOUPLED}, id="RAdam, never rectified"
        ),
    ],
)  # fmt: skip
def test_steps_of_parameters_with_decays_of_their_own_equal_torch(torch, make, name, arguments, dtype, tolerance):
    rng = np.random.default_rng(4)
    decays = {"a": DECAY, "b": 0.0, "c": 0.7}
    first = {n: rng.standard_normal(20).astype(dtype) for n in decays}
    own = {n: {} if d == DECAY else {"weight_decay": d} for n, d in decays.items()}
    training = Training(make(DECAY), **{n: (p, own[n]) for n, p in first.items()})
    theirs = {n: torch.nn.Parameter(torch.tensor(p)) for n, p in first.items()}
    groups = [{"params": [theirs[n]], "weight_decay": d} for n, d in decays.items()]
    optimizer = getattr(torch.optim, name)(groups, lr=RATE, **arguments)
    for _ in range(STEPS):
        gradients = {n: rng.standard_normal(20).astype(dtype) for n in decays}
        training.step(**gradients)
        for n, p in theirs.items():
            p.grad = torch.tensor(gradients[n])
        optimizer.step()
        for n, p in theirs.items():
            np.testing.assert_allclose(training.value(n), p.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=n)


@pytest.mark.parametrize("dtype", ["float64"])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        pytest.param(lambda r: NAdam(RATE, regularization=r), "NAdam", id="NAdam"),
        pytest.param(lambda r: RAdam(RATE, regularization=r), "RAdam", id="RAdam"),
    ],
)
def test_a_regularizer_is_a_part_of_the_gradient_as_torch_has_it_by_default(torch, make, name):
    rng = np.random.default_rng(5)
    first = rng.standard_normal(20)
    training = Training(make(L2Decay(DECAY)), w=first)
    theirs = torch.nn.Parameter(torch.tensor(first))
    optimizer = getattr(torch.optim, name)([theirs], lr=RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        gradient = rng.standard_normal(20)
        training.step(w=gradient)
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(training.value("w"), theirs.detach().numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("make", [case.values[0] for case in CASES], ids=[case.id for case in CASES])
def test_the_coefficient_is_that_of_each_parameter(make):
    zero, ones = np.zeros(3), np.ones(3)
    training = Training(make(), a=ones, b=(ones, {"weight_decay": 0.0}), c=(ones, {"weight_decay": 2.0}))
    assert [op.attrs["weight_decay"] for op in training.ops] == [DECAY, 0.0, 2.0]
    training.step(a=zero, b=zero, c=zero)
    found = [training.value(name) for name in "abc"]
    np.testing.assert_allclose(found, [ones - RATE * DECAY, ones, ones - RATE * 2.0], rtol=1e-14)


@pytest.mark.parametrize("make", [case.values[0] for case in CASES], ids=[case.id for case in CASES])
def test_a_nan_gradient_shows_in_the_parameter(make):
    training = Training(make(), w=np.ones(5))
    training.step(w=np.array([1.0, np.nan, 1.0, 1.0, 1.0]))
    np.testing.assert_array_equal(np.isnan(training.value("w")), [False, True, False, False, False])


@pytest.mark.parametrize("make", [case.values[0] for case in CASES], ids=[case.id for case in CASES])
def test_what_an_update_keeps_is_stored_between_steps(make):
    training = Training(make(), w=np.ones(3))
    block = training.main.global_block()
    for op in training.ops:
        assert all(block.var(name).persistable for name in op.output_names())


def test_a_small_decay_in_float32_is_rounded_once():
    first = np.random.default_rng(6).standard_normal(1000).astype("float32")
    decay = 3 * 2.0**-26  # float32 has no 1 - decay
    training = Training(SGDW(1.0, decay), w=first)
    training.step(w=np.zeros(1000, np.float32))
    np.testing.assert_array_equal(training.value("w"), (first.astype("float64") * (1 - decay)).astype("float32"))


def test_the_coefficient_of_a_parameter_is_one_of_its_facts():
    training = Training(SGDW(1.0), a=np.ones(2), b=(np.ones(2), {"weight_decay": 0.5}))
    a, b = training.main.global_block().parameters()
    assert "weight_decay" not in facts_of(a)
    assert facts_of(b)["weight_decay"] == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGDW(0.1, -1.0), r"SGDW: weight_decay must be >= 0, got -1\.0"),
        (lambda: AdamW(weight_decay=float("nan")), "AdamW: weight_decay must be >= 0, got nan"),
        (lambda: Lion(beta2=1.0), r"Lion: beta2 must be in \[0, 1\), got 1\.0"),
        (lambda: NAdam(momentum_decay=-0.5), r"NAdam: momentum_decay must be >= 0, got -0\.5"),
        (lambda: RAdam(epsilon=-1.0), r"RAdam: epsilon must be >= 0, got -1\.0"),
        (lambda: MomentumW(0.1, 1.0), r"MomentumW: momentum must be in \[0, 1\), got 1\.0"),
    ],
)
def test_wrong_numbers_are_named(make, message):
    with pytest.raises(PeError, match=message):
        make()
