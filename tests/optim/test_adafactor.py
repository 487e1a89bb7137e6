"""Adafactor against torch.optim.Adafactor."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.adafactor import Adafactor
from tests.needs import torch
from tests.optim.matrices import Matrices

SHAPES = {"w": (3, 5), "tall": (9, 2), "b": (7,), "f": (2, 3, 2, 4), "one": (1, 1)}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 3e-5)])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param({}, {}, id="defaults"),
        pytest.param({"learning_rate": 0.5, "weight_decay": 0.1}, {"lr": 0.5, "weight_decay": 0.1}, id="a decay"),
        pytest.param(
            {"beta2_decay": -0.5, "epsilon1": 1e-2, "epsilon2": 2.0, "clip": 1.2},
            {"beta2_decay": -0.5, "eps": (1e-2, 2.0), "d": 1.2},
            id="other numbers",
        ),
    ],
)
def test_ten_steps_are_those_of_torch(ours, theirs, dtype, tolerance):
    rng = np.random.default_rng(3)
    first = {n: rng.standard_normal(s).astype(dtype) for n, s in SHAPES.items()}
    training = Matrices(Adafactor(**ours), **first)
    parameters = {n: torch.nn.Parameter(torch.tensor(p)) for n, p in first.items()}
    optimizer = torch.optim.Adafactor(parameters.values(), **theirs)
    for _ in range(10):
        gradients = {n: (rng.standard_normal(s) * 3).astype(dtype) for n, s in SHAPES.items()}
        training.step(**gradients)
        for n, p in parameters.items():
            p.grad = torch.tensor(gradients[n])
        optimizer.step()
        for n, p in parameters.items():
            np.testing.assert_allclose(training.value(n), p.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=n)


def test_the_state_of_a_matrix_is_as_small_as_its_sides():
    training = Matrices(Adafactor(), w=np.ones((30, 20)), b=np.ones(20))
    sizes = {n: training.value(n).size for n in training.scope if n.startswith(("w_", "b_"))}
    assert sum(size for n, size in sizes.items() if n.startswith("w_")) == 30 + 20 + 1
    assert sum(size for n, size in sizes.items() if n.startswith("b_")) == 20 + 1


@pytest.mark.parametrize("given", [{"clip": 0.0}, {"beta2_decay": 0.1}, {"epsilon1": -1.0}, {"weight_decay": -1.0}])
def test_numbers_out_of_range_are_refused(given):
    with pytest.raises(PeError, match="Adafactor"):
        Adafactor(**given)
