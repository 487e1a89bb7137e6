"""mul and matmul against NumPy, and what they say about shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.inference import infer_types
from pe_cli.ops.math.matrix_product import broadcast
from pe_cli.ops.math.mul import matmul, mul
from tests.needs import torch
from tests.ops.support import run_gradient, run_op


def arrays(rng, *shapes, dtype="float64"):
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def inferred(op, x, y, **attrs):
    types = {"X": [TensorType(x)], "Y": [TensorType(y)]}
    return infer_types(op, types, op.check_attrs(attrs))["Out"][0].shape


@pytest.mark.parametrize(
    ("x", "y", "attrs", "out"),
    [
        pytest.param([[1, 2], [3, 4]], [[5, 6], [7, 8]], {}, [[19, 22], [43, 50]], id="two by two, by hand"),
        pytest.param([[[1, 2], [3, 4]]], np.eye(4), {}, [[1, 2, 3, 4]], id="trailing axes of x become the inner axis"),
        pytest.param(
            np.ones((2, 1, 3)), np.ones((1, 3, 2)), {"x_num_col_dims": 1, "y_num_col_dims": 2}, np.full((2, 2), 3),
            id="leading axes of y become the inner axis",
        ),
        pytest.param(
            np.arange(4).reshape(2, 2, 1), [[2.0]], {"x_num_col_dims": 2}, [[[0], [2]], [[4], [6]]],
            id="leading axes of x come back",
        ),
    ],
)  # fmt: skip
def test_mul_values(x, y, attrs, out):
    got = run_op("mul", {"X": np.asarray(x, "float64"), "Y": np.asarray(y, "float64")}, attrs)
    np.testing.assert_array_equal(got, np.asarray(out, "float64"))


@pytest.mark.parametrize(
    ("x", "y", "einsum"),
    [
        pytest.param((3, 4), (4, 5), "mk,kn->mn", id="matrices"),
        pytest.param((7, 3, 4), (4, 5), "bmk,kn->bmn", id="a batch times one matrix"),
        pytest.param((3, 4), (7, 4, 5), "mk,bkn->bmn", id="one matrix times a batch"),
        pytest.param((2, 1, 3, 4), (6, 4, 5), "abmk,ckn->acmn", id="batch axes that are broadcast"),
        pytest.param((4,), (4,), "k,k->", id="two vectors give one number"),
        pytest.param((2, 3, 4), (4,), "bmk,k->bm", id="matrices times a vector"),
        pytest.param((4,), (2, 4, 3), "k,bkn->bn", id="a vector times matrices"),
        pytest.param((65, 130), (130, 67), "mk,kn->mn", id="sizes beyond one block"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matmul_follows_einsum(rng, x, y, einsum, dtype):
    a, b = arrays(rng, x, y, dtype=dtype)
    want = np.einsum(einsum.replace("abmk,ckn->acmn", "aimk,ckn->acmn"), a, b, dtype="float64")
    got = run_op("matmul", {"X": a, "Y": b})
    assert got.shape == (want.shape or (1,))
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-4)


@pytest.mark.parametrize("flip_x", [False, True], ids=["x as stored", "x transposed"])
@pytest.mark.parametrize("flip_y", [False, True], ids=["y as stored", "y transposed"])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one matrix", "three matrices"])
def test_transposes_and_alpha_scale_value_and_gradients(rng, flip_x, flip_y, batch):
    x, y = arrays(rng, (*batch, 5, 4), (*batch, 4, 6))
    g = rng.standard_normal((*batch, 5, 6))
    stored = {"X": np.ascontiguousarray(x.swapaxes(-1, -2)) if flip_x else x}
    stored["Y"] = np.ascontiguousarray(y.swapaxes(-1, -2)) if flip_y else y
    attrs = {"transpose_X": flip_x, "transpose_Y": flip_y, "alpha": -0.5}
    np.testing.assert_allclose(run_op("matmul", stored, attrs), -0.5 * (x @ y), rtol=1e-12)
    got = run_gradient("matmul", stored, attrs, upstream=g)
    dx, dy = -0.5 * g @ y.swapaxes(-1, -2), -0.5 * x.swapaxes(-1, -2) @ g
    np.testing.assert_allclose(got["X"], dx.swapaxes(-1, -2) if flip_x else dx, rtol=1e-11)
    np.testing.assert_allclose(got["Y"], dy.swapaxes(-1, -2) if flip_y else dy, rtol=1e-11)


def test_gradients_of_a_broadcast_factor_are_summed_over_the_batch(rng):
    x, y, g = arrays(rng, (3, 4), (7, 4, 5), (7, 3, 5))
    got = run_gradient("matmul", {"X": x, "Y": y}, upstream=g)
    np.testing.assert_allclose(got["X"], np.einsum("bmn,bkn->mk", g, y), rtol=1e-11)
    np.testing.assert_allclose(got["Y"], np.einsum("mk,bmn->bkn", x, g), rtol=1e-11)


def test_gradients_agree_with_torch(rng):
    x, y, g = arrays(rng, (2, 1, 3, 4), (6, 4, 5), (2, 6, 3, 5))
    a, b = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    (a @ b).backward(torch.tensor(g))
    got = run_gradient("matmul", {"X": x, "Y": y}, upstream=g)
    np.testing.assert_allclose(got["X"], a.grad.numpy(), rtol=1e-11)
    np.testing.assert_allclose(got["Y"], b.grad.numpy(), rtol=1e-11)


@pytest.mark.parametrize("op", ["mul", "matmul"])
def test_an_empty_batch_gives_nothing_and_a_zero_gradient(rng, op):
    y = rng.standard_normal((4, 5))
    assert run_op(op, {"X": np.empty((0, 4)), "Y": y}).shape == (0, 5)
    got = run_gradient(op, {"X": np.empty((0, 4)), "Y": y}, upstream=np.empty((0, 5)))
    np.testing.assert_array_equal(got["Y"], np.zeros((4, 5)))


def test_an_empty_inner_axis_gives_zeros():
    np.testing.assert_array_equal(run_op("matmul", {"X": np.empty((2, 0)), "Y": np.empty((0, 3))}), np.zeros((2, 3)))


@pytest.mark.parametrize("op", ["mul", "matmul"])
def test_nan_comes_out_in_its_row_only(op):
    x = np.ones((3, 4), "float32")
    x[1, 2] = np.nan
    got = run_op(op, {"X": x, "Y": np.zeros((4, 5), "float32")})
    np.testing.assert_array_equal(np.isnan(got), [[False] * 5, [True] * 5, [False] * 5])


@pytest.mark.parametrize(
    ("op", "x", "y", "attrs", "out"),
    [
        pytest.param(mul, (-1, 3, 4), (12, 5), {}, (-1, 5), id="mul keeps an unknown batch"),
        pytest.param(matmul, (-1, 3, 4), (-1, 4, 5), {}, (-1, 3, 5), id="matmul keeps an unknown batch"),
        pytest.param(matmul, (-1, 3, 4), (7, 4, 5), {}, (7, 3, 5), id="a known batch size wins"),
        pytest.param(matmul, (-1, 4), (3, 4), {"transpose_Y": True}, (-1, 3), id="transposed y"),
        pytest.param(matmul, (3,), (4,), {"transpose_X": True, "transpose_Y": True}, (3, 4), id="an outer product"),
    ],
)
def test_inference(op, x, y, attrs, out):
    assert inferred(op, x, y, **attrs) == out


@pytest.mark.parametrize(
    ("op", "x", "y", "attrs", "message"),
    [
        pytest.param(mul, (-1, 4), (5, 3), {}, "4 != 5", id="mul with other inner sizes"),
        pytest.param(mul, (4,), (4, 3), {}, "x_num_col_dims is 1", id="mul of a vector"),
        pytest.param(matmul, (-1, 128), (64, 10), {}, "128 != 64", id="matmul with other inner sizes"),
        pytest.param(matmul, (2, 3, 4), (3, 4, 5), {}, r"\[2, 3\] differ", id="batches that cannot be broadcast"),
        pytest.param(matmul, (), (3,), {}, "at least one axis", id="a scalar"),
    ],
)
def test_shapes_that_do_not_fit_are_errors(op, x, y, attrs, message):
    with pytest.raises(PeError, match=message):
        inferred(op, x, y, **attrs)


def test_different_dtypes_are_an_error():
    types = {"X": [TensorType((2, 3))], "Y": [TensorType((3, 4), "float64")]}
    with pytest.raises(PeError, match="cast one of them"):
        infer_types(matmul, types, matmul.check_attrs({}))


def test_broadcast_follows_numpy():
    assert broadcast((2, 1), (3,)) == np.broadcast_shapes((2, 1), (3,))


@pytest.mark.parametrize(
    ("op", "x", "y", "flops"),
    [
        pytest.param(mul, (3, 4), (4, 5), 120, id="mul counts a multiplication and an addition per term"),
        pytest.param(matmul, (2, 3, 4), (4, 5), 240, id="matmul counts every matrix"),
    ],
)
def test_flops(op, x, y, flops):
    assert op.flops()(TensorType(x), TensorType(y), **op.check_attrs({})) == flops
