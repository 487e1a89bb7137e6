"""Ops over sequences against NumPy from their definitions, and lstm against PyTorch on packed sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.define.lod import offsets_of, ranges
from pe_cli.ops.sequence.recurrent import row_order, sorted_sequences, step_begins
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

LENGTHS = [3, 0, 5, 1, 2]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
ROWS = int(OFFSETS[-1])


def parts(x):
    return [x[a:b] for a, b in itertools.pairwise(OFFSETS)]


POOLS = {
    "SUM": lambda p: p.sum(0), "AVERAGE": lambda p: p.mean(0), "SQRT": lambda p: p.sum(0) / np.sqrt(len(p)),
    "MAX": lambda p: p.max(0), "MIN": lambda p: p.min(0), "FIRST": lambda p: p[0], "LAST": lambda p: p[-1],
}  # fmt: skip


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pools(kind, dtype, rng):
    x = rng.standard_normal((ROWS, 2, 3)).astype(dtype)
    out = run_op("sequence_pool", {"X": x, "Offsets": OFFSETS}, {"pooltype": kind, "pad_value": 9.0})
    found = out["Out"] if isinstance(out, dict) else out
    expected = [POOLS[kind](p) if len(p) else np.full((2, 3), 9.0) for p in parts(x)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_nan_is_the_largest_and_the_smallest():
    x = np.array([[1.0], [np.nan], [3.0]])
    for kind in ("MAX", "MIN"):
        assert np.isnan(run_op("sequence_pool", {"X": x, "Offsets": np.array([0, 3])}, {"pooltype": kind})["Out"]).all()


def test_softmax_of_huge_numbers(rng):
    x = rng.standard_normal((ROWS, 1)) * 1000
    out = run_op("sequence_softmax", {"X": x, "Offsets": OFFSETS})
    for p, q in zip(parts(out), parts(x), strict=True):
        shifted = np.exp(q - q.max(initial=-np.inf)) if len(q) else q
        np.testing.assert_allclose(p, shifted / shifted.sum() if len(q) else q, rtol=1e-12)


def test_pad_and_unpad_are_inverse(rng):
    x = rng.standard_normal((ROWS, 2))
    longest = np.zeros(5, np.int64)
    out = run_op("sequence_pad", {"X": x, "PadValue": np.array([7.0]), "Offsets": OFFSETS, "Longest": longest})
    assert out["Length"].tolist() == LENGTHS
    for block, p in zip(out["Out"], parts(x), strict=True):
        assert np.array_equal(block[: len(p)], p)
        assert (block[len(p) :] == 7).all()
    rows = np.zeros(ROWS, np.int64)
    assert np.array_equal(run_op("sequence_unpad", {"X": out["Out"], "Offsets": OFFSETS, "Rows": rows}), x)


def test_a_sequence_longer_than_the_block_is_named():
    with pytest.raises(PeError, match="sequence 2 has 5 rows, more than 4"):
        run_op(
            "sequence_pad",
            {"X": np.zeros((ROWS, 1)), "PadValue": np.zeros(1), "Offsets": OFFSETS},
            {"padded_length": 4},
        )


def test_context_is_cut_at_the_ends_of_a_sequence(rng):
    x = rng.standard_normal((ROWS, 2))
    out = run_op("sequence_context", {"X": x, "Offsets": OFFSETS}, {"start": -1, "length": 3})
    for p, q in zip(parts(out), parts(x), strict=True):
        if len(q):
            zeros = np.zeros((1, 2))
            expected = np.hstack([np.vstack([zeros, q[:-1]]), q, np.vstack([q[1:], zeros])])
            np.testing.assert_array_equal(p, expected)


def test_the_edit_distance_of_words():
    words = [("kitten", "sitting"), ("flaw", "lawn"), ("a", "a")]
    left, right = ([np.frombuffer(w[i].encode(), np.uint8).astype(np.int64) for w in words] for i in (0, 1))
    feeds = {
        "Hyps": np.concatenate(left)[:, None], "HypsOffsets": offsets_of([len(w) for w in left]),
        "Refs": np.concatenate(right)[:, None], "RefsOffsets": offsets_of([len(w) for w in right]),
    }  # fmt: skip
    out = run_op("edit_distance", feeds, {"normalized": False})
    assert out["Out"].ravel().tolist() == [3, 2, 0]
    assert out["SequenceNum"].tolist() == [3]


def test_all_tags_of_a_chain_together_have_probability_one(rng):
    """The cost is -ln p, so that over all tags of a short sequence exp(-cost) adds up to 1."""
    x, w = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    total = 0.0
    for tags in itertools.product(range(2), repeat=3):
        feeds = {"Emission": x, "Transition": w, "Label": np.array(tags)[:, None], "Offsets": np.array([0, 3])}
        total += float(np.exp(-run_op("linear_chain_crf", feeds)["LogLikelihood"][0, 0]))
    assert total == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param({"Emission": np.ones((1, 3, 2))}, r"needs Emission \[rows, tags\] with sequences", id="three axes"),
        pytest.param(
            {"Length": np.array([[3]])}, r"needs Emission \[sequences, time, tags\] with Length", id="two axes with Length"
        ),
        pytest.param({"Transition": np.ones((3, 2))}, r"should be float64\[4, 2\]", id="no rows for begin and end"),
        pytest.param({"Label": np.zeros((3, 1), "int32")}, "Label is int32", id="tags of another type"),
        pytest.param({"Label": np.zeros((2, 1), "int64")}, "Label is int64", id="too few tags"),
        pytest.param(
            {"Emission": np.ones((2, 3, 2)), "Label": np.zeros((2, 3, 1), "int64"), "Length": np.ones((3, 1), "int64")},
            "Length is int64", id="a length too many",
        ),
        pytest.param(
            {"Emission": np.ones((2, 3, 2)), "Label": np.zeros((2, 3, 1), "int64"), "Length": np.ones((2, 1), "int32")},
            "Length is int32", id="lengths of another type",
        ),
    ],
)  # fmt: skip
def test_what_a_chain_refuses(changed, message):
    given = {"Emission": np.ones((3, 2)), "Transition": np.ones((4, 2)), "Label": np.zeros((3, 1), "int64")}
    more = {} if "Length" in changed else {"Offsets": np.array([0, 3])}
    with pytest.raises(PeError, match=message):
        run_op("linear_chain_crf", {**given, **more, **changed})


def test_the_best_tags_are_those_of_the_least_cost(rng):
    x, w = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    feeds = {"Emission": x, "Transition": w, "Offsets": np.array([0, 4])}
    cost = {
        tags: run_op("linear_chain_crf", {**feeds, "Label": np.array(tags)[:, None]})["LogLikelihood"][0, 0]
        for tags in itertools.product(range(3), repeat=4)
    }
    assert tuple(run_op("crf_decoding", feeds).ravel()) == min(cost, key=cost.__getitem__)


# --- made before a step -----------------------------------------------------------------------------------------------


def test_ranges():
    assert ranges([5, 0, 2], [2, 0, 3]).tolist() == [5, 6, 2, 3, 4]
    assert ranges([], []).tolist() == []


def test_rows_are_done_step_by_step_the_longest_sequence_first():
    assert sorted_sequences(OFFSETS).tolist() == [2, 0, 4, 3]
    assert step_begins(OFFSETS).tolist() == [0, 4, 7, 9, 10, 11]
    assert row_order(OFFSETS, is_reverse=False).tolist() == [3, 0, 9, 8, 4, 1, 10, 5, 2, 6, 7]
    assert row_order(OFFSETS, is_reverse=True).tolist() == [7, 2, 10, 8, 6, 1, 9, 5, 0, 4, 3]
    empty = np.array([0])
    assert [f(empty).tolist() for f in (sorted_sequences, step_begins)] == [[], [0]]


# --- recurrent --------------------------------------------------------------------------------------------------------


def order_of(is_reverse: bool = False) -> dict[str, np.ndarray]:
    order = row_order(OFFSETS, is_reverse=is_reverse)
    return {"Order": order, "Begins": step_begins(OFFSETS), "Sorted": sorted_sequences(OFFSETS)}


def test_lstm_is_that_of_pytorch_on_packed_sequences(rng):
    width, d = 4, 6
    module = torch.nn.LSTM(width, d, dtype=torch.float64)
    x = torch.tensor(rng.standard_normal((ROWS, width)))
    full = [p for p in torch.split(x, LENGTHS) if len(p)]  # PyTorch packs no empty ones
    packed = torch.nn.utils.rnn.pack_sequence(full, enforce_sorted=False)
    out, _ = torch.nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)
    hidden = torch.cat([out[i, : len(p)] for i, p in enumerate(full)])
    upstream = torch.tensor(rng.standard_normal((ROWS, d)))
    hidden.backward(upstream)

    def gates(a):  # PyTorch: input, forget, candidate, output
        i, f, c, o = np.split(np.asarray(a), 4)
        return np.concatenate([c, i, f, o])

    state = {k: v.detach().numpy() for k, v in module.named_parameters()}
    inputs = {
        "Input": x.numpy() @ gates(state["weight_ih_l0"]).T,
        "Weight": gates(state["weight_hh_l0"]).T,
        "Bias": gates(state["bias_ih_l0"] + state["bias_hh_l0"])[None],
        **order_of(),
    }
    attrs = {"use_peepholes": False}
    np.testing.assert_allclose(run_op("lstm", inputs, attrs)["Hidden"], hidden.detach().numpy(), rtol=1e-10)
    found = run_gradient("lstm", inputs, attrs, "Hidden", upstream.numpy())
    np.testing.assert_allclose(found["Weight"], gates(module.weight_hh_l0.grad).T, rtol=1e-9)
    np.testing.assert_allclose(found["Bias"][0], gates(module.bias_ih_l0.grad), rtol=1e-9)
    np.testing.assert_allclose(found["Input"].T @ x.numpy(), gates(module.weight_ih_l0.grad), rtol=1e-9)


@pytest.mark.parametrize("origin", [False, True])
@pytest.mark.parametrize("is_reverse", [False, True])
def test_gru_step_by_step(origin, is_reverse, rng):
    d = 3
    x, w, b = rng.standard_normal((ROWS, 3 * d)), rng.standard_normal((d, 3 * d)), rng.standard_normal((1, 3 * d))
    first = rng.standard_normal((len(LENGTHS), d))
    both, candidate = w.ravel()[: 2 * d * d].reshape(d, 2 * d), w.ravel()[2 * d * d :].reshape(d, d)
    expected = np.empty((ROWS, d))
    for s, (begin, end) in enumerate(itertools.pairwise(OFFSETS)):
        h = first[s]
        for r in range(end - 1, begin - 1, -1) if is_reverse else range(begin, end):
            v = x[r] + b[0]
            u, reset = np.split(1 / (1 + np.exp(-(v[: 2 * d] + h @ both))), 2)
            c = np.tanh(v[2 * d :] + (reset * h) @ candidate)
            h = u * h + (1 - u) * c if origin else (1 - u) * h + u * c
            expected[r] = h
    inputs = {"Input": x, "Weight": w, "Bias": b, "H0": first, **order_of(is_reverse)}
    out = run_op("gru", inputs, {"origin_mode": origin, "is_reverse": is_reverse})
    np.testing.assert_allclose(out["Hidden"], expected, rtol=1e-12)


@pytest.mark.parametrize("slot", ["H0", "C0"])
def test_first_states_are_one_a_sequence(slot):
    inputs = {"Input": np.zeros((ROWS, 8)), "Weight": np.zeros((2, 8)), "Bias": np.zeros((1, 14)), slot: np.zeros((4, 2))}
    with pytest.raises(PeError, match=f"{slot} is .* but there are 5 sequences"):
        run_op("lstm", {**inputs, **order_of(), "Offsets": OFFSETS})


def test_a_mask_has_at_least_one_step():
    lengths = {"X": np.array([1, 0])}
    np.testing.assert_array_equal(run_op("sequence_mask", lengths, {"maxlen": 1, "out_dtype": "float32"}), [[1], [0]])
    for size in (0, -2):
        with pytest.raises(PeError, match=f"a maxlen of -1 or at least 1, got .*, {size}"):
            run_op("sequence_mask", lengths, {"maxlen": size, "out_dtype": "float32"})
