"""padded_lstm against torch, and against its definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

BATCH, STEPS, INPUTS, UNITS = 5, 7, 3, 6
SLOTS = ("WeightIh", "WeightHh", "BiasIh", "BiasHh")


def arrays(rng, batch=BATCH, steps=STEPS, inputs=INPUTS, units=UNITS):
    shapes = {
        "Input": (batch, steps, inputs),
        "WeightIh": (inputs, 4 * units),
        "WeightHh": (units, 4 * units),
        "BiasIh": (4 * units,),
        "BiasHh": (4 * units,),
        "InitH": (batch, units),
        "InitC": (batch, units),
    }
    return {slot: rng.standard_normal(shape) * 0.5 for slot, shape in shapes.items()}


def by_definition(given, lengths, reverse):
    """Return the outputs and last states, step by step and sample by sample."""

    def s(v):
        return 1 / (1 + np.exp(-v))

    x = given["Input"]
    out = np.zeros((*x.shape[:2], given["InitH"].shape[1]))
    last = [], []
    for b, length in enumerate(lengths):
        h, c = given["InitH"][b], given["InitC"][b]
        for t in range(length)[::-1] if reverse else range(length):
            z = x[b, t] @ given["WeightIh"] + given["BiasIh"] + h @ given["WeightHh"] + given["BiasHh"]
            i, f, g, o = np.split(z, 4)
            c = s(f) * c + s(i) * np.tanh(g)
            h = s(o) * np.tanh(c)
            out[b, t] = h
        last[0].append(h)
        last[1].append(c)
    return out, np.array(last[0]), np.array(last[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "lengths", [pytest.param([STEPS] * BATCH, id="all steps"), pytest.param([3, 7, 0, 1, 5], id="padded")]
)
def test_values_follow_the_definition(rng, dtype, reverse, lengths):
    given = arrays(rng)
    expected = by_definition(given, lengths, reverse)
    narrow = {slot: a.astype(dtype) for slot, a in given.items()}
    found = run_op("padded_lstm", {**narrow, "Lengths": np.array(lengths)}, {"is_reverse": reverse})
    for slot, value in zip(("Out", "LastH", "LastC"), expected, strict=True):
        np.testing.assert_allclose(found[slot], value, rtol=1e-5, atol=1e-6 if dtype == "float32" else 1e-12)


def test_time_major_is_the_same_in_another_order(rng):
    given = arrays(rng)
    one = run_op("padded_lstm", given)
    two = run_op("padded_lstm", {**given, "Input": given["Input"].swapaxes(0, 1).copy()}, {"time_major": True})
    assert np.array_equal(one["Out"], two["Out"].swapaxes(0, 1))
    assert np.array_equal(one["LastC"], two["LastC"])


@pytest.mark.parametrize("out", ["Out", "LastH", "LastC"])
@pytest.mark.parametrize(("batch", "units"), [
    pytest.param(5, 6, id="one group"),
    pytest.param(5, 16, id="one group of whole vectors"),
    pytest.param(70, 16, id="four groups, chunks of steps"),
])  # fmt: skip
def test_gradients_agree_with_torch(rng, out, batch, units):
    given = arrays(rng, batch, 19, INPUTS, units)
    tensors = {slot: torch.tensor(a, requires_grad=True) for slot, a in given.items()}
    weights = [tensors[s].T if "Weight" in s else tensors[s] for s in SLOTS]
    states = tensors["InitH"][None], tensors["InitC"][None]
    found = torch.lstm(tensors["Input"], states, weights, True, 1, 0.0, True, False, True)
    value = dict(zip(("Out", "LastH", "LastC"), (found[0], found[1][0], found[2][0]), strict=True))[out]
    up = rng.standard_normal(value.shape)
    value.backward(torch.tensor(up))
    gradient = run_gradient("padded_lstm", given, {}, out, up)
    for slot, tensor in tensors.items():
        np.testing.assert_allclose(gradient[slot], tensor.grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=slot)


@pytest.mark.parametrize("reverse", [False, True])
def test_padding_gets_no_gradient_and_changes_nothing(rng, reverse):
    given = {**arrays(rng), "Lengths": np.array([3, 7, 0, 1, 5])}
    up = rng.standard_normal((BATCH, STEPS, UNITS))
    over = np.arange(STEPS) >= given["Lengths"][:, None]
    one = run_gradient("padded_lstm", given, {"is_reverse": reverse}, "Out", up)
    assert not one["Input"][over].any()
    other = {**given, "Input": np.where(over[..., None], 1e3, given["Input"])}
    two = run_gradient("padded_lstm", other, {"is_reverse": reverse}, "Out", np.where(over[..., None], 1e3, up))
    for slot, value in one.items():
        assert np.array_equal(value, two[slot]), slot


def test_nan_stays_in_its_sample(rng):
    given = {slot: a.astype("float32") for slot, a in arrays(rng).items()}
    given["Input"][1, 3, 0] = np.nan
    out = run_op("padded_lstm", given)["Out"]
    assert np.isnan(out[1, 3:]).all()
    assert np.isfinite(out[1, :3]).all()
    assert np.isfinite(np.delete(out, 1, 0)).all()


@pytest.mark.parametrize("length", [-1, STEPS + 1])
def test_a_wrong_length_is_an_error_with_its_row(rng, length):
    with pytest.raises(PeError, match=rf"value {length} at row 2 .* \[0, 8\)"):
        run_op("padded_lstm", {**arrays(rng), "Lengths": np.array([1, 2, length, 3, 4])})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"Input": np.ones((2, 3))}, r"Input \[batch, time, inputs\]", id="a matrix"),
        pytest.param({"WeightHh": np.ones((6, 20))}, r"WeightHh \[units, 4 units\]", id="three and a third gates"),
        pytest.param({"WeightIh": np.ones((4, 24))}, r"WeightIh float64\[3, 24\]", id="another width"),
        pytest.param({"InitC": np.ones((5, 7))}, r"InitC float64\[5, 6\]", id="a wide state"),
        pytest.param({"BiasIh": np.ones(24, "float32")}, "BiasIh", id="another type"),
        pytest.param({"Lengths": np.ones(4, "int64")}, r"Lengths int64\[5\]", id="too few lengths"),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(rng, change, text):
    with pytest.raises(PeError, match=text):
        run_op("padded_lstm", {**arrays(rng), **change})


@pytest.mark.parametrize(("batch", "steps"), [(64, 40), (33, 5), (70, 1)], ids=["three chunks", "one", "one step"])
@pytest.mark.parametrize("reverse", [False, True])
def test_however_many_threads_share_the_last_chunk_no_bit_changes(rng, batch, steps, reverse):
    given = {slot: a.astype("float32") for slot, a in arrays(rng, batch=batch, steps=steps, inputs=5, units=20).items()}
    given["Lengths"] = rng.integers(0, steps + 1, batch)
    attrs = {"is_reverse": reverse}
    alone = run_gradient("padded_lstm", given, attrs, threads=1)
    for threads in (2, 3, 4, 9):
        for _ in range(3):
            found = run_gradient("padded_lstm", given, attrs, threads=threads)
            assert found.keys() == alone.keys()
            for slot in alone:
                np.testing.assert_array_equal(found[slot], alone[slot], err_msg=f"{slot}, {threads} threads")
