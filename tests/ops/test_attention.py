"""attention against torch, and against its definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op


def by_definition(q, k, v, heads, mask=0.0, causal=False, scale=None):
    """Return the output, head by head."""
    out = []
    for a, b, c in zip(*(np.split(x, heads, -1) for x in (q, k, v)), strict=True):
        out.append((a @ b.swapaxes(1, 2) * (scale or a.shape[-1] ** -0.5), c))
    scores = np.stack([s for s, _ in out], 1) + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[2:]), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.concatenate([weights[:, h] @ c for h, (_, c) in enumerate(out)], -1)


def inputs(rng, queries, keys, width=8, wide=8, batch=2):
    shapes = (batch, queries, width), (batch, keys, width), (batch, keys, wide)
    return [rng.standard_normal(shape) for shape in shapes]


CASES = [
    pytest.param(5, 5, {}, None, id="one head"),
    pytest.param(5, 9, {"num_heads": 2}, None, id="two heads, more keys"),
    pytest.param(150, 70, {"num_heads": 4}, None, id="several tiles"),
    pytest.param(150, 150, {"num_heads": 2, "causal": True}, None, id="causal, several tiles"),
    pytest.param(9, 5, {"causal": True, "scale": 0.3}, None, id="causal, fewer keys"),
    pytest.param(6, 7, {"num_heads": 2}, (2, 2, 6, 7), id="a mask"),
    pytest.param(6, 7, {"num_heads": 2}, (1, 1, 1, 7), id="one mask for all"),
    pytest.param(70, 70, {"num_heads": 2, "causal": True}, (1, 2, 70, 70), id="a mask for each head, causal"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("queries", "keys", "attrs", "masked"), CASES)
def test_values_follow_the_definition(rng, dtype, queries, keys, attrs, masked):
    q, k, v = inputs(rng, queries, keys, wide=4)
    mask = rng.standard_normal(masked) * 3 if masked else 0.0
    heads = attrs.get("num_heads", 1)
    expected = by_definition(q, k, v, heads, mask, attrs.get("causal", False), attrs.get("scale"))
    given = {"Q": q, "K": k, "V": v} | ({"Mask": mask} if masked else {})
    out = run_op("attention", {s: a.astype(dtype) for s, a in given.items()}, attrs)["Out"]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize(("queries", "keys", "attrs", "masked"), CASES)
def test_gradients_agree_with_torch(rng, queries, keys, attrs, masked):
    given = inputs(rng, queries, keys)
    heads = attrs.get("num_heads", 1)
    tensors = [torch.tensor(a, requires_grad=True) for a in given]
    split = [t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in tensors]
    mask = rng.standard_normal(masked) * 3 if masked else np.zeros((1, 1, queries, keys))
    hidden = np.where(np.tri(queries, keys), mask, -np.inf) if attrs.get("causal") else mask
    made = torch.nn.functional.scaled_dot_product_attention(*split, torch.tensor(hidden), scale=attrs.get("scale"))
    up = rng.standard_normal((2, queries, 8))
    made.transpose(1, 2).flatten(2).backward(torch.tensor(up))
    slots = dict(zip("QKV", given, strict=True)) | ({"Mask": mask} if masked else {})
    gradient = run_gradient("attention", slots, attrs, "Out", up)
    for slot, tensor in zip("QKV", tensors, strict=True):
        np.testing.assert_allclose(gradient[slot], tensor.grad.numpy(), rtol=1e-8, atol=1e-11, err_msg=slot)


def test_side_by_side_has_the_bits_of_apart(rng):
    q, k, v = inputs(rng, 70, 70)
    up = rng.standard_normal(q.shape)
    apart = run_gradient("attention", {"Q": q, "K": k, "V": v}, {"num_heads": 2}, "Out", up)
    joined = {"Q": np.concatenate([q, k, v], -1)}
    together = run_gradient("attention", joined, {"num_heads": 2}, "Out", up)["Q"]
    assert np.array_equal(together, np.concatenate([apart[s] for s in "QKV"], -1))
    assert np.array_equal(
        run_op("attention", joined, {"num_heads": 2})["Out"],
        run_op("attention", {"Q": q, "K": k, "V": v}, {"num_heads": 2})["Out"],
    )


def test_huge_scores_do_not_overflow():
    q = np.array([[[1e4], [-1e4]]], "float32")
    out = run_op("attention", {"Q": q, "K": q, "V": np.array([[[1.0], [2.0]]], "float32")})["Out"]
    np.testing.assert_array_equal(out, [[[1], [2]]])


def test_a_hidden_key_counts_for_nothing(rng):
    q, k, v = inputs(rng, 4, 5)
    mask = np.zeros((1, 1, 1, 5))
    mask[..., 4] = -np.inf
    hidden = run_op("attention", {"Q": q, "K": k, "V": v, "Mask": mask})["Out"]
    np.testing.assert_allclose(hidden, by_definition(q, k[:, :4], v[:, :4], 1), rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "attrs", "text"),
    [
        pytest.param({"Q": np.ones((2, 3, 8))}, {}, "multiple of 3", id="no room for three"),
        pytest.param({"Q": np.ones((2, 3, 9))}, {"num_heads": 2}, "multiple of 6", id="heads that do not divide"),
        pytest.param({"Q": np.ones((2, 3, 9)), "K": np.ones((2, 3, 9))}, {}, "both K and V", id="no values"),
        pytest.param({"Q": np.ones((2, 3, 9))}, {"scale": -1.0}, "at least 0, got -1", id="a negative scale"),
        pytest.param({"Q": np.ones((2, 3, 9)), "Mask": np.ones((2, 3))}, {}, r"Mask \[2, 1, 3, 3\]", id="a flat mask"),
        pytest.param(
            {"Q": np.ones((2, 3, 4)), "K": np.ones((2, 3, 5)), "V": np.ones((2, 3, 5))}, {}, "width", id="other widths"
        ),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(given, attrs, text):
    with pytest.raises(PeError, match=text):
        run_op("attention", given, attrs)
