"""Muon against its formula in NumPy, against torch (which rounds to bfloat16), and AdamW for what is no matrix."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.decoupled_decay import AdamW
from pe_cli.optim.muon import QUINTIC, Muon
from tests import needs
from tests.needs import torch
from tests.optim.matrices import Matrices

RATE, DECAY, STEPS = 0.05, 0.1, 10


def orthogonal(x: np.ndarray, steps: int = 5) -> np.ndarray:
    a, b, c = QUINTIC
    x = x / max(np.linalg.norm(x), 1e-7)
    flip = x.shape[0] > x.shape[1]
    x = x.T if flip else x
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if flip else x


def factor(shape: tuple[int, int], kind: str) -> float:
    inputs, outputs = shape
    return {"original": max(1, outputs / inputs) ** 0.5, "match_rms_adamw": 0.2 * max(shape) ** 0.5, "none": 1.0}[kind]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-4)])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("shape", "kind"), [((3, 5), "original"), ((7, 4), "match_rms_adamw"), ((1, 1), "none"), ((6, 6), "original")])
def test_ten_steps_follow_the_formula(shape, kind, nesterov, dtype, tolerance):
    rng = np.random.default_rng(3)
    first = rng.standard_normal(shape).astype(dtype)
    training = Matrices(Muon(RATE, 0.9, nesterov, DECAY, adjust_lr=kind), w=first)
    want, velocity = first.astype("float64"), np.zeros(shape)
    for _ in range(STEPS):
        g = rng.standard_normal(shape).astype(dtype)
        training.step(w=g)
        velocity = 0.9 * velocity + g
        aim = g + 0.9 * velocity if nesterov else velocity
        want = want - RATE * DECAY * want - RATE * factor(shape, kind) * orthogonal(aim)
        np.testing.assert_allclose(training.value("w"), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("shape", "kind"), [((8, 5), "original"), ((5, 8), "match_rms_adamw")])
def test_ten_steps_are_near_those_of_torch(shape, kind):
    if not hasattr(torch.optim, "Muon"):
        needs.skip("a PyTorch that has Muon")
    rng = np.random.default_rng(4)
    first = rng.standard_normal(shape).astype("float32")
    training = Matrices(Muon(RATE, weight_decay=DECAY, adjust_lr=kind), w=first)
    theirs = torch.nn.Parameter(torch.tensor(first.T.copy()))  # [outputs, inputs] there
    optimizer = torch.optim.Muon([theirs], lr=RATE, weight_decay=DECAY, adjust_lr_fn=kind)
    for _ in range(STEPS):
        g = rng.standard_normal(shape).astype("float32")
        training.step(w=g)
        theirs.grad = torch.tensor(g.T.copy())
        optimizer.step()
    moved = np.abs(first - training.value("w")).max()
    np.testing.assert_allclose(training.value("w"), theirs.detach().numpy().T, atol=0.03 * moved)


def test_what_is_no_matrix_goes_by_adamw():
    rng = np.random.default_rng(5)
    first = {"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(4), "f": rng.standard_normal((2, 3, 2, 2))}
    ours = Matrices(Muon(RATE, beta1=0.8, beta2=0.9, epsilon=1e-3, weight_decay=DECAY), **first)
    plain = Matrices(AdamW(RATE, 0.8, 0.9, 1e-3, DECAY), **first)
    for _ in range(STEPS):
        gradients = {n: rng.standard_normal(p.shape) for n, p in first.items()}
        ours.step(**gradients)
        plain.step(**gradients)
    for name in "bf":
        np.testing.assert_array_equal(ours.value(name), plain.value(name))
    assert not np.array_equal(ours.value("w"), plain.value("w"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ns_steps": 0}, "ns_steps must be in"),
        ({"adjust_lr": "other"}, "adjust_lr must be one of"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0"),
    ],
)
def test_numbers_out_of_range_are_refused(given, said):
    with pytest.raises(PeError, match=said):
        Muon(0.1, **given)
