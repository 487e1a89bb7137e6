"""Lookahead against a plain loop in NumPy around the inner optimizer's formula."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.adaptive_moments import Adam
from pe_cli.optim.clip import GradientClipByNorm
from pe_cli.optim.decoupled_decay import SGDW
from pe_cli.optim.lookahead import Lookahead
from pe_cli.optim.optimizers import SGD, Momentum
from pe_cli.optim.schedule import COUNTER, ExponentialDecay
from tests.optim.support import Training


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6)])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_every_k_steps_the_parameter_goes_a_part_of_the_way(k, dtype, tolerance):
    rng = np.random.default_rng(3)
    fast = {n: rng.standard_normal(7) for n in "ab"}
    slow, velocity = dict(fast), dict.fromkeys(fast, 0.0)
    training = Training(Lookahead(Momentum(0.1, 0.9), 0.25, k), **{n: v.astype(dtype) for n, v in fast.items()})
    for step in range(1, 12):
        gradients = {n: rng.standard_normal(7) for n in fast}
        training.step(**{n: g.astype(dtype) for n, g in gradients.items()})
        for n, g in gradients.items():
            velocity[n] = 0.9 * velocity[n] + g
            fast[n] = fast[n] - 0.1 * velocity[n]
            if step % k == 0:
                slow[n] = fast[n] = slow[n] + 0.25 * (fast[n] - slow[n])
            np.testing.assert_allclose(training.value(n), fast[n], rtol=tolerance, atol=tolerance)


def test_with_alpha_1_it_is_the_inner_optimizer():
    rng = np.random.default_rng(4)
    first = rng.standard_normal(9)
    alone, ahead = Training(Adam(0.1), w=first), Training(Lookahead(Adam(0.1), 1.0, 2), w=first)
    for _ in range(6):
        gradient = rng.standard_normal(9)
        alone.step(w=gradient)
        ahead.step(w=gradient)
        np.testing.assert_allclose(ahead.value("w"), alone.value("w"), rtol=1e-15)


def test_a_round_starts_from_values_that_were_set():
    training = Training(Lookahead(SGD(1.0), 0.5, 2), w=np.zeros(1))
    training.scope.set("w", np.full((1, 1), 10.0))
    for want in (9.0, 9.0, 8.0, 8.0):
        training.step(w=np.ones(1))
        np.testing.assert_array_equal(training.value("w"), [want])


def test_rate_clipping_and_decay_are_the_inner_optimizers():
    inner = SGDW(ExponentialDecay(1.0, 1, 0.5), 0.5, grad_clip=GradientClipByNorm(1.0))
    training = Training(Lookahead(inner, 1.0, 1), w=np.full(1, 4.0))
    training.step(w=np.full(1, 100.0))
    np.testing.assert_allclose(training.value("w"), [4 - 0.5 * 4 - 1])
    (parameter, _), = training.pairs
    assert training.optimizer.rate(training.main) is inner.rate(training.main)
    assert training.optimizer.decay_of(parameter) == 0.5
    counts = [op for op in training.main.global_block().ops if COUNTER in op.output_names()]
    assert len(counts) == 1


def test_what_is_kept_is_stored_between_steps():
    training = Training(Lookahead(Momentum(0.1, 0.9)), w=np.zeros(3))
    (parameter, _), = training.pairs
    kept = [training.optimizer.state(slot, parameter) for slot in ("Slow", "Velocity")]
    assert [v.name for v in kept] == ["w_slow_0", "w_velocity_0"]
    assert all(v.persistable for v in kept)


@pytest.mark.parametrize("devices", [2, 3])
def test_replicas_stay_equal(devices):
    rng = np.random.default_rng(5)
    first = rng.standard_normal(40)
    one, more = (Training(Lookahead(SGD(0.5), 0.5, 2), n, w=first) for n in (1, devices))
    for _ in range(5):
        gradient = rng.standard_normal(40)
        one.step(w=gradient)
        more.step(w=gradient)
    np.testing.assert_array_equal(more.value("w", devices - 1), more.value("w"))
    np.testing.assert_allclose(more.value("w"), one.value("w"), rtol=1e-13)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lookahead(SGD(0.1), 0.0), r"alpha must be in \(0, 1\], got 0\.0"),
        (lambda: Lookahead(SGD(0.1), k=0), "k must be >= 1, got 0"),
        (lambda: Lookahead(None), "inner must be an optimizer, got None"),
    ],
)
def test_wrong_numbers_are_named(make, message):
    with pytest.raises(PeError, match=message):
        make()
