"""reduce_* against NumPy: any axes, NaN, nothing, digits of long sums, ties and zeros in gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.ops.support import run_gradient, run_op

NUMPY = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
AXES = [axes for n in range(1, 5) for axes in itertools.combinations(range(4), n)]


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("axes", AXES, ids=lambda axes: f"axes {axes}")
@pytest.mark.parametrize("kind", NUMPY)
def test_any_axes(kind, axes, keep, rng):
    x = rng.uniform(0.5, 1.5, (2, 3, 4, 5)) * rng.choice([-1, 1], (2, 3, 4, 5))
    got = run_op(f"reduce_{kind}", {"X": x}, {"dim": [a - 4 if a % 2 else a for a in axes], "keep_dim": keep})
    want = NUMPY[kind](x, axis=axes, keepdims=keep)
    assert got.shape == (want.shape or (1,))
    np.testing.assert_allclose(got, want.reshape(got.shape), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 5), (5, 1), (3, 1, 4), (257, 1), (700, 3), (701, 64), (9, 1025)])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("kind", NUMPY)
def test_odd_shapes_in_float32(kind, dim, shape, rng):
    x = rng.uniform(0.98, 1.02, shape).astype("float32")
    got = run_op(f"reduce_{kind}", {"X": x}, {"dim": [dim]})
    want = NUMPY[kind](x.astype("float64"), axis=dim)
    np.testing.assert_allclose(got, want.reshape(got.shape), rtol=1e-5)


@pytest.mark.parametrize("attrs", [{"reduce_all": True}, {"dim": []}], ids=["by reduce_all", "by an empty list"])
@pytest.mark.parametrize("kind", NUMPY)
def test_all_axes(kind, attrs, rng):
    x = rng.uniform(0.5, 1.5, (3, 7))
    got = run_op(f"reduce_{kind}", {"X": x}, attrs)
    assert got.shape == (1,)
    np.testing.assert_allclose(got[0], NUMPY[kind](x), rtol=1e-12)


@pytest.mark.parametrize(("kind", "want"), [("sum", 0.0), ("mean", np.nan), ("prod", 1.0)])
def test_nothing_to_reduce(kind, want):
    x = np.zeros((0, 3))
    np.testing.assert_array_equal(run_op(f"reduce_{kind}", {"X": x}, {"dim": [0]}), np.full(3, want))
    assert run_op(f"reduce_{kind}", {"X": x}, {"dim": [1]}).shape == (0,)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_extreme_of_nothing_is_refused(kind):
    with pytest.raises(PeError, match=rf"reduce_{kind} of nothing: X is \[0, 3\]"):
        run_op(f"reduce_{kind}", {"X": np.zeros((0, 3))}, {"dim": [0]})
    assert run_op(f"reduce_{kind}", {"X": np.zeros((0, 3))}, {"dim": [1]}).shape == (0,)


@pytest.mark.parametrize("dim", [0, 1], ids=["over rows", "along rows"])
@pytest.mark.parametrize("kind", NUMPY)
def test_nan_and_infinity_come_through(kind, dim):
    x = np.full((6, 40), 0.5)
    x[1, 3], x[2, 7], x[3, 9], x[4, 9] = np.nan, np.inf, np.inf, -np.inf
    x[5, 39] = np.nan
    x[0, 0] = np.nan
    with np.errstate(invalid="ignore"):
        want = NUMPY[kind](x, axis=dim)
    np.testing.assert_allclose(run_op(f"reduce_{kind}", {"X": x}, {"dim": [dim]}), want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
def test_integers_are_exact(kind, dtype):
    x = np.array([[2, -3, 5], [7, 11, -13]], dtype)
    if dtype == "int64" and kind == "sum":
        x[0, 0] = 2**60 + 1
    for dim in (0, 1):
        got = run_op(f"reduce_{kind}", {"X": x}, {"dim": [dim]})
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, NUMPY[kind](x, axis=dim))


@pytest.mark.parametrize("shape", [(1_000_000,), (100_000, 4), (4, 100_000), (3, 50_000, 7)])
def test_float32_sums_keep_their_digits(shape, rng):
    x = rng.standard_normal(shape).astype("float32") + np.float32(0.5)
    for dim in range(len(shape)):
        want = x.sum(dim, dtype="float64")
        np.testing.assert_allclose(
            run_op("reduce_sum", {"X": x}, {"dim": [dim]}), np.atleast_1d(want), rtol=2e-6, atol=1e-4
        )


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize(
    "attrs", [{"dim": [0]}, {"dim": [1, 2], "keep_dim": True}, {"dim": [1]}, {"reduce_all": True}], ids=str
)
def test_gradients_of_sums_are_constant(kind, attrs, rng):
    x = rng.standard_normal((2, 3, 4))
    out = run_op(f"reduce_{kind}", {"X": x}, attrs)
    up = rng.standard_normal(out.shape)
    axes = tuple(range(3)) if attrs.get("reduce_all") else tuple(attrs["dim"])
    kept = [1 if i in axes else s for i, s in enumerate(x.shape)]
    terms = np.prod([x.shape[i] for i in axes]) if kind == "mean" else 1
    want = np.broadcast_to(up.reshape(kept), x.shape) / terms
    np.testing.assert_allclose(run_gradient(f"reduce_{kind}", {"X": x}, attrs, upstream=up)["X"], want, rtol=1e-14)


@pytest.mark.parametrize(("kind", "want"), [("max", [[0, 1, 1], [1, 0, 0]]), ("min", [[1, 0, 0], [0, 1, 1]])])
def test_every_extreme_gets_the_gradient(kind, want):
    x = np.array([[1.0, 4.0, 4.0], [5.0, 2.0, 2.0]])
    assert run_gradient(f"reduce_{kind}", {"X": x}, {"dim": [1]})["X"].tolist() == want


@pytest.mark.parametrize(
    ("x", "want"),
    [
        pytest.param([2, 3, 4], [12, 8, 6], id="no zero"),
        pytest.param([2, 0, 4], [0, 8, 0], id="one zero"),
        pytest.param([0, 0, 4], [0, 0, 0], id="two zeros"),
        pytest.param([-0.0, 5, 1], [5, 0, 0], id="minus zero"),
    ],
)
def test_gradients_of_products_with_zeros(x, want):
    rows = np.array([x, x], "float64")
    np.testing.assert_allclose(run_gradient("reduce_prod", {"X": rows}, {"dim": [1]})["X"], [want, want], rtol=1e-14)
    np.testing.assert_allclose(
        run_gradient("reduce_prod", {"X": rows.T.copy()}, {"dim": [0]})["X"].T, [want, want], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("dim", "words"),
    [
        pytest.param([2], r"reduce_sum: X is \[2, 3\] and has no axis 2", id="beyond the last axis"),
        pytest.param([-3], r"has no axis -3", id="before the first axis"),
        pytest.param([1, -1], r"names axis 1 twice", id="one axis by two names"),
    ],
)
def test_axes_that_are_not_there(dim, words):
    with pytest.raises(PeError, match=words):
        run_op("reduce_sum", {"X": np.zeros((2, 3))}, {"dim": dim})


def test_mean_refuses_integers():
    with pytest.raises(PeError, match=r"reduce_mean takes float32 or float64, got int64\[3\]"):
        run_op("reduce_mean", {"X": np.arange(3)})
