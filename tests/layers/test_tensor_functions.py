"""Layers that are made of others: products, norms and arrangements, values and gradients against PyTorch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.layers.support import evaluate, programs, run
from tests.layers.support import layers as L
from tests.needs import torch

CUBE, MATRIX = (2, 3, 4), (3, 4)
#: Name -> the layer, PyTorch's function, and shapes of what both take.
CASES = {
    "bmm": (L.bmm, lambda x, y: x @ y, (CUBE, (2, 4, 5))),
    **{f"einsum {t}": (lambda t=t, **a: L.einsum(t, [*a.values()]), lambda t=t, **a: torch.einsum(t, *a.values()), shapes)
       for t, *shapes in (
           ("bij,bkj->bik", CUBE, (2, 5, 4)), ("ij, jk", (3, 3), MATRIX), ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
           ("bi,bj->bij", MATRIX, (3, 2)), ("ij->ji", MATRIX), ("ijk->k", CUBE), ("bi,bi->bi", MATRIX, MATRIX),
          ("bi,bi->b", MATRIX, MATRIX),
           ("abcd,cdef->abef", (2, 3, 2, 5), (2, 5, 2, 3)), ("bij,jk->bik", (4, 3, 4), (4, 2)), ("ij,kl->il", MATRIX, (3, 2)),
           ("bc,bcd->db", CUBE[:2], CUBE), ("ij->ij", MATRIX), ("...ij->...ji", CUBE), ("...ij,...jk", CUBE, (2, 4, 3)),
           ("bi...,b...->b...i", CUBE, (2, 4)), ("bii->bi", (2, 3, 3)), ("biij,bj->b", (2, 3, 3, 2), (2, 2)), ("biii->b", (2, 3, 3, 3)),
       )},
    "einsum of everything": (
        lambda x, y: L.einsum("i,i,jk->", [x, x, y]), lambda x, y: torch.einsum("i,i,jk->", x, x, y)[None], ((3,), MATRIX),
    ),
    "dot of vectors": (L.dot, lambda x, y: torch.dot(x, y)[None], ((4,), (4,))),
    "dot of rows": (L.dot, lambda x, y: (x * y).sum(1, keepdim=True), (MATRIX, MATRIX)),
    "mv": (lambda x: L.mv(x, L.fill_constant([4], "float64", 2.0)), lambda x: torch.mv(x, torch.full((4,), 2.0, dtype=x.dtype)), (MATRIX,)),
    "addmm": (
        lambda x, y: L.addmm(x, y, L.fill_constant([4, 4], "float64", 2.0), 0.5, 3.0),
        lambda x, y: torch.addmm(x, y, torch.full((4, 4), 2.0, dtype=x.dtype), beta=0.5, alpha=3.0),
        (MATRIX, MATRIX),
    ),
    "kron": (
        lambda x: L.kron(x, L.fill_constant([1, 3], "float64", 2.0)),
        lambda x: torch.kron(x, torch.full((1, 3), 2.0, dtype=x.dtype)),
        (MATRIX,),
    ),
    "cross along an axis": (lambda x, y: L.cross(x, y, 1), lambda x, y: torch.linalg.cross(x, y, dim=1), (CUBE, CUBE)),
    "cross along the first axis of size 3": (L.cross, lambda x, y: torch.linalg.cross(x, y, dim=1), (CUBE, CUBE)),
    "dist": (lambda x, y: L.dist(x, y, 3.0), lambda x, y: torch.dist(x, y, 3)[None], (CUBE, CUBE)),
    "logsumexp of all": (L.logsumexp, lambda x: torch.logsumexp(x, (0, 1, 2))[None], (CUBE,)),
    "logsumexp of two axes": (lambda x: L.logsumexp(x, [1, 2], True), lambda x: torch.logsumexp(x, (1, 2), True), (CUBE,)),
    "logsumexp of large numbers": (lambda x: L.logsumexp(L.scale(x, 1e4), -1), lambda x: torch.logsumexp(x * 1e4, -1), (CUBE,)),
    "var": (lambda x: L.var(x, [1, 2]), lambda x: torch.var(x, (1, 2)), (CUBE,)),
    "biased var of all": (lambda x: L.var(x, unbiased=False), lambda x: torch.var(x, unbiased=False)[None], (CUBE,)),
    "std": (lambda x: L.std(x, -1, True, True), lambda x: torch.std(x, -1, keepdim=True), (CUBE,)),
    "median of an odd number": (lambda x: L.median(x, 1), lambda x: torch.quantile(x, 0.5, 1), (CUBE,)),
    "median of an even number": (lambda x: L.median(x, -1, True), lambda x: torch.quantile(x, 0.5, -1, True), (CUBE,)),
    "tile with more axes": (lambda x: L.tile(x, [5, 1, 3, 1]), lambda x: x.tile((5, 1, 3, 1)), (CUBE,)),
    "tile of the last axis": (lambda x: L.tile(x, [2]), lambda x: x.tile((2,)), (CUBE,)),
    "broadcast_to": (lambda x: L.broadcast_to(x, [5, -1, 3, 4]), lambda x: x.expand(5, -1, 3, 4), ((2, 1, 4),)),
    "roll of one axis": (lambda x: L.roll(x, -1, 1), lambda x: x.roll(-1, 1), (CUBE,)),
    "roll of two axes": (lambda x: L.roll(x, [1, 6], [1, -1]), lambda x: x.roll((1, 6), (1, -1)), (CUBE,)),
    "roll by nothing": (lambda x: L.roll(x, 4, 2), lambda x: x, (CUBE,)),
    **{f"norm {p:g}": (lambda x, p=p: L.norm(x, p, [1, 2]), lambda x, p=p: torch.linalg.vector_norm(x, p, (1, 2)), (CUBE,))
       for p in (0.5, 1.0, 2.0, 3.0, np.inf, -np.inf)},
    **{f"diag_embed {k}": (lambda x, k=k: L.diag_embed(x, k), lambda x, k=k: torch.diag_embed(x, k), (CUBE,)) for k in (-2, -1, 0, 1, 2)},
    "diag_embed of other axes": (lambda x: L.diag_embed(x, 1, 0, 2), lambda x: torch.diag_embed(x, 1, 0, 2), (CUBE,)),
    "diag_embed with columns first": (lambda x: L.diag_embed(x, 0, -1, 1), lambda x: torch.diag_embed(x, 0, -1, 1), (CUBE,)),
    **{f"trace {k}": (lambda x, k=k: L.trace(x, k, 1, 2), lambda x, k=k: torch.diagonal(x, k, 1, 2).sum(-1), (CUBE,))
       for k in (-2, -1, 0, 1, 3)},
    "trace with columns first": (lambda x: L.trace(x, 1, 2, 1), lambda x: torch.diagonal(x, 1, 2, 1).sum(-1), (CUBE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_pytorchs(name, rng):
    build, theirs, shapes = CASES[name]
    names = ["x", "y"][: len(shapes)]
    inputs = {n: rng.standard_normal(s) for n, s in zip(names, shapes, strict=True)}
    learned = tuple(n for n in names if len(inputs[n].shape) > 1)
    value, found = evaluate(build, inputs, learned)
    tensors = {n: torch.tensor(a, requires_grad=True) for n, a in inputs.items()}
    exact = theirs(**tensors)
    np.testing.assert_allclose(value, exact.detach().numpy(), rtol=1e-10, atol=1e-12)
    weight = np.arange(1.0, 1 + value.size).reshape(value.shape) if value.shape[0] == len(inputs["x"]) else np.ones(value.shape)
    (exact * torch.tensor(weight)).sum().backward()
    for n in learned:
        np.testing.assert_allclose(found[n], tensors[n].grad.numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_index_select(axis, rng):
    x, index = rng.standard_normal((3, 4, 5)), np.array([2, 0, 2])
    value, found = evaluate(lambda x, index: L.index_select(x, L.reshape(index, [3]), axis), {"x": x, "index": index}, ("x",))
    assert np.array_equal(value, x.take(index, axis))
    weight = np.arange(1.0, 1 + value.size).reshape(value.shape) if axis else np.ones(value.shape)
    exact = torch.tensor(x, requires_grad=True)
    (torch.index_select(exact, axis, torch.tensor(index)) * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(found["x"], exact.grad.numpy())


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_index_sample(dtype, rng):
    x, index = rng.standard_normal((2, 4)), np.array([[2, 0, 2], [3, 1, 1]], dtype)
    value, found = evaluate(lambda x, index: L.index_sample(x, index), {"x": x, "index": index}, ("x",))
    assert np.array_equal(value, np.take_along_axis(x, index.astype("int64"), 1))
    assert np.array_equal(found["x"], [[2, 0, 1 + 3, 0], [0, 5 + 6, 0, 4]])


def test_meshgrid():
    with programs() as (main, startup):
        made = L.meshgrid([L.cumsum(L.ones([3], "float32"), 0), L.ones([2], "float32"), L.ones([1], "float32")])
        found = run(main, startup, {}, made)
    for value, exact in zip(found, np.meshgrid([1, 2, 3], [1, 1], [1], indexing="ij"), strict=True):
        assert np.array_equal(value, exact)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("x", [np.array([[0, np.inf, -np.inf, np.nan, 3e38]], "float32"), np.arange(3)], ids=["numbers", "whole numbers"])
def test_what_numbers_are(name, x):
    with programs() as (main, startup):
        made = getattr(L, name)(L.data("x", list(x.shape[1:]), dtype=str(x.dtype)))
        (found,) = run(main, startup, {"x": x}, [made])
    assert np.array_equal(found, getattr(np, name)(x))


def test_norm_0_counts(rng):
    value, _ = evaluate(lambda x: L.norm(x, 0.0, 1), {"x": np.array([[0.0, 2, -3], [0, 0, 1]])}, ())
    assert np.array_equal(value, [2, 1])


def test_vectors_of_zeros_have_a_length_and_a_gradient():
    x = np.array([[3.0, -4], [0, 0], [0, np.inf]])
    value, found = evaluate(lambda x: L.norm(x, 2.0, 1), {"x": x}, ("x",))
    assert np.array_equal(value, [5, 0, np.inf])
    np.testing.assert_allclose(found["x"][:2], np.array([[0.6, -0.8], [0, 0]]) * [[1], [2]])


def test_what_is_beside_a_diagonal_does_not_count():
    x = np.where(np.eye(3) > 0, np.arange(3.0), np.inf) * np.ones((2, 1, 1))
    value, found = evaluate(lambda x: L.einsum("bii->bi", [x]), {"x": x}, ("x",))
    assert np.array_equal(value, [[0, 1, 2]] * 2)
    assert np.array_equal(found["x"], [weight * np.eye(3) for weight in ([1, 2, 3], [4, 5, 6])])


def test_variance_of_one_element_is_nan():
    value, _ = evaluate(lambda x: L.var(x, 1), {"x": np.ones((2, 1))}, ())
    assert np.isnan(value).all()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda x: L.bmm(x, x), "x should be"),
        (lambda x: L.dot(L.unsqueeze(x, [1]), L.unsqueeze(x, [1])), "x should be"),
        (lambda x: L.cross(x, x, 1), "axis of size 3"),
        (lambda x: L.kron(x, x), "known sizes"),
        (lambda x: L.einsum("bi,bi", [x]), "is for 2 operands, got 1"),
        (lambda x: L.einsum("bij->i", [x]), "is for 3 axes, got x"),
        (lambda x: L.einsum("ii->i", [x]), "size of the diagonal i of .* is not known"),
        (lambda x: L.einsum("..i->i", [x]), "something else than letters"),
        (lambda x: L.einsum("...bci->i", [x]), "is for 3 axes, got x"),
        (lambda x: L.einsum("bi->bk", [x]), "must be letters of the operands"),
        (lambda x: L.einsum("bi,ik->bk", [x, L.fill_constant([3, 2], "float32", 1.0)]), "axis i is of size 4, and of 3"),
        (lambda x: L.einsum("bi,cj->bcij", [x, x]), "more than one of the sizes"),
        (L.var, "not known"),
        (L.median, "known size"),
        (lambda x: L.median(x, 2), "no axis 2"),
        (lambda x: L.tile(x, [0, 1]), "times of at least 1"),
        (lambda x: L.broadcast_to(x, [-1, 8]), "cannot make"),
        (lambda x: L.broadcast_to(x, [4]), "cannot make"),
        (lambda x: L.roll(x, 1), "not known"),
        (lambda x: L.roll(x, 1, 0), "not known"),
        (lambda x: L.roll(x, [1, 2], 1), "one shift per axis"),
        (lambda x: L.index_select(x, x, 2), "no axis 2"),
        (lambda x: L.meshgrid([x]), "vectors of known size"),
        (lambda x: L.diag_embed(x, 0, 1, 1), "two axes"),
        (lambda x: L.trace(x, 0, 0, 1), "has no element"),
        (lambda x: L.trace(x, 0, 1, 1), "no matrix"),
    ],
)
def test_what_does_not_fit_is_said(build, says):
    with programs(), pytest.raises(PeError, match=says):
        build(L.data("x", [4], dtype="float32"))
