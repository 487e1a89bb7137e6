"""What the tests of paddle.nn share: values and gradients of static variables beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pe_cli.paddle.fluid as fluid


def computed(build: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return build's result, and the gradients of the sum of its squares by every array of floats."""
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    given = [fluid.data(name, list(a.shape), a.dtype.name) for name, a in feeds.items()]
    floats = [v for v in given if v.dtype.startswith("float")]
    for v in floats:
        v.stop_gradient = False
    out = build(*given)
    slopes = fluid.gradients(fluid.layers.reduce_sum(fluid.layers.square(out)), floats)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    there = [v for v in slopes if v is not None]
    found = iter(executor.run(feed=feeds, fetch_list=[out, *there]))
    return [next(found), *(None if v is None else next(found) for v in slopes)]


def by_torch(torch: Any, build: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the same of PyTorch."""
    given = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    out = build(*given)
    (out**2).sum().backward()
    return [out.detach().numpy(), *(None if g.grad is None else g.grad.numpy() for g in given if g.requires_grad)]


def check(torch: Any, ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Raise unless both have the same values and gradients."""
    expected = by_torch(torch, theirs, *arrays)
    found = computed(ours, *arrays)
    for one, two in zip(found, expected, strict=True):
        if two is not None:
            assert one is not None
            np.testing.assert_allclose(one.reshape(two.shape), two, rtol=2e-5, atol=2e-6)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")
