"""merge_selected_rows against NumPy, and updates by rows against NumPy on whole tables."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import Spot, Work, device
from pe_cli.kernels.calls import Buffer
from pe_cli.ops.define import work_parts
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import find
from pe_cli.ops.update.selected_rows import merge_shard
from tests.ops.support import run_op

HEIGHT, WIDTH = 40, 5


def dense(rows, values, height=HEIGHT):
    """Return the table that rows stand for, each of which may be there once."""
    held = rows[rows >= 0]
    assert len(set(held.tolist())) == len(held)
    assert not values[rows < 0].any()
    out = np.zeros((height, values.shape[1]), values.dtype)
    out[held] = values[rows >= 0]
    return out


def summed(ids, values, padding=None):
    """Add up values row by row in the order of places, straight from the definition."""
    out = np.zeros((HEIGHT, values[0].shape[-1]), values[0].dtype)
    for k, (column, x) in enumerate(zip(ids, values, strict=True)):
        for row, value in zip(column.ravel(), x, strict=True):
            if padding is None or row != padding[k]:
                out[row] += value
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [[(7, 1)], [(300, 1)], [(4, 6, 1), (9, 1)], [(5,), (2, 3), (0, 1)], [(1, 1)]],
    ids=["few", "most rows twice", "two lookups", "an empty one among others", "one"],
)
def test_every_row_comes_once_with_the_sum_in_the_order_of_places(shapes, dtype, rng):
    ids = [rng.integers(0, HEIGHT, s) for s in shapes]
    values = [rng.standard_normal((i.size, WIDTH)).astype(dtype) for i in ids]
    found = run_op("merge_selected_rows", {"Ids": ids, "X": values}, {"height": HEIGHT})
    np.testing.assert_array_equal(dense(found["Rows"], found["Out"]), summed(ids, values))


def test_each_list_has_its_own_padding(rng):
    ids = [np.array([[3], [1], [3]]), np.array([[1], [3]])]
    values = [rng.standard_normal((3, 2)), rng.standard_normal((2, 2))]
    found = run_op("merge_selected_rows", {"Ids": ids, "X": values}, {"height": HEIGHT, "padding_idx": [3, 1]})
    np.testing.assert_array_equal(dense(found["Rows"], found["Out"]), summed(ids, values, [3, 1]))


def test_ids_outside_the_table_are_left_out():
    ids, values = np.array([[2], [-7], [40], [1 << 40], [2]]), np.ones((5, 3))
    found = run_op("merge_selected_rows", {"Ids": [ids], "X": [values]}, {"height": HEIGHT})
    assert found["Rows"].tolist() == [2, -1, -1, -1, -1]
    np.testing.assert_array_equal(found["Out"], [[2.0] * 3] + [[0.0] * 3] * 4)


@pytest.mark.parametrize("pattern", ["uniform", "one row", "powers of two", "neighbours"])
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_together_hold_every_row_once(shards, pattern, rng):
    n, height = 500, 1 << 40
    ids = {
        "uniform": rng.integers(0, height, n),
        "one row": np.full(n, 12345),
        "powers of two": 1 << rng.integers(0, 40, n),
        "neighbours": rng.integers(0, 200, n),
    }[pattern]
    values = rng.standard_normal((n, 3))
    types = {"ids": TensorType((n, 1), "int64"), "x": TensorType((n, 3), "float64")}
    types |= {"rows": TensorType((n,), "int64"), "out": TensorType((n, 3), "float64")}
    buffers = {name: Buffer(name, kind) for name, kind in types.items()}
    low = Lowering(find("merge_selected_rows"), {}, {}, {})
    for shard in range(shards):
        merge_shard(low, [buffers["ids"]], [buffers["x"]], [], height, buffers["rows"], buffers["out"], shard, shards)
    scope = run_calls(low, buffers, {"ids": ids.reshape(-1, 1), "x": values})
    rows, out = scope["rows"], scope["out"]
    assert sorted(rows[rows >= 0].tolist()) == np.unique(ids).tolist()
    for row, value in zip(rows, out, strict=True):
        expected = np.zeros(3)
        for each in values[ids == row]:
            expected += each
        np.testing.assert_array_equal(value, expected)


def run_calls(low, buffers, given):
    """Run a lowering's calls one after the other and return every buffer's value."""
    kinds = {b: b.type for b in (*buffers.values(), *low.scratch_buffers)}
    offsets, total = {}, 0
    for b, kind in kinds.items():
        offsets[b], total = total, total + (kind.nbytes + 63) // 64 * 64
    memory = device("cpu").allocate(0, total)
    for name, value in given.items():
        memory.write(offsets[buffers[name]], buffers[name].type, np.asarray(value))
    written = frozenset(b for name, b in buffers.items() if name not in given) | frozenset(low.scratch_buffers)
    step = device("cpu").compile([Work(0, low.calls, frozenset(), written=written)], lambda b: Spot(memory, offsets[b], 0), 1, None)
    assert step.run(0) is None
    return {name: memory.read(offsets[b], b.type) for name, b in buffers.items()}


def update(name, rows, values, state, attrs):
    """Run an update by rows and return what it leaves: slot -> table."""
    given = {"Param": state["Param"], "Grad": values, "LearningRate": np.array([0.1]), **state, "Rows": rows}
    return run_op(name, given, attrs)


def numpy_update(name, g, s, attrs, touched):
    """Return what an update leaves by its definition, on whole tables; touched rows only where the op says so."""
    p, rate = s["Param"].copy(), 0.1
    out = {k: v.copy() for k, v in s.items()}
    if name == "sgd":
        return {"Param": p - rate * g}
    if name == "momentum":
        v = attrs["mu"] * s["Velocity"] + g
        return {"Param": p - rate * (g + attrs["mu"] * v if attrs["use_nesterov"] else v), "Velocity": v}
    if name == "adagrad":
        h = s["Moment"] + g * g
        return {"Param": p - rate * g / (np.sqrt(h) + 1e-6), "Moment": h}
    m, v = 0.9 * s["Moment1"] + 0.1 * g, 0.999 * s["Moment2"] + 0.001 * g * g
    step = rate * np.sqrt(1 - s["Beta2Pow"]) / (1 - s["Beta1Pow"])
    moved = {"Param": p - step * m / (np.sqrt(v) + 1e-8), "Moment1": m, "Moment2": v}
    if attrs["lazy_mode"]:
        moved = {k: np.where(touched[:, None], new, out[k]) for k, new in moved.items()}
    return {**moved, "Beta1Pow": s["Beta1Pow"] * 0.9, "Beta2Pow": s["Beta2Pow"] * 0.999}


@pytest.mark.parametrize(
    ("name", "slots", "attrs"),
    [
        ("sgd", "", {}),
        ("momentum", "Velocity", {"mu": 0.8, "use_nesterov": False}),
        ("momentum", "Velocity", {"mu": 0.8, "use_nesterov": True}),
        ("adagrad", "Moment", {}),
        ("adam", "Moment1 Moment2", {"lazy_mode": False}),
        ("adam", "Moment1 Moment2", {"lazy_mode": True}),
    ],
    ids=["sgd", "momentum", "nesterov", "adagrad", "adam", "lazy adam"],
)
def test_updates_by_rows_agree_with_their_definition(name, slots, attrs, rng):
    state = {s: rng.uniform(0.1, 1.0, (HEIGHT, WIDTH)) for s in ["Param", *slots.split()]}
    if name == "adam":
        state |= {"Beta1Pow": np.array([0.9**3]), "Beta2Pow": np.array([0.999**3])}
    rows = np.array([7, -1, 0, 39, 12])
    values = rng.standard_normal((5, WIDTH)) * (rows >= 0)[:, None]
    g = dense(rows, values)
    expected = numpy_update(name, g, state, attrs, np.isin(np.arange(HEIGHT), rows))
    found = update(name, rows, values, state, attrs)
    found = found if isinstance(found, dict) else {"ParamOut": found}
    for slot, value in expected.items():
        np.testing.assert_allclose(found[f"{slot}Out"], value, rtol=1e-13, err_msg=slot)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("width", [1, 16, 200])
def test_momentum_gives_the_bits_of_a_dense_gradient_whatever_the_width_and_the_threads(width, nesterov, rng, monkeypatch):
    monkeypatch.setattr(work_parts, "ENOUGH_BYTES", 8)
    height, attrs = 700, {"mu": 0.9, "use_nesterov": nesterov}
    state = {s: rng.standard_normal((height, width)).astype("float32") for s in ("Param", "Velocity")}
    given = state | {"LearningRate": np.full(1, 0.1, "float32")}
    rows = np.concatenate([rng.permutation(height)[:90], [-1, -1]])
    values = (rng.standard_normal((92, width)) * (rows >= 0)[:, None]).astype("float32")
    whole = np.zeros((height, width), "float32")
    whole[rows[:90]] = values[:90]
    expected = run_op("momentum", given | {"Grad": whole}, attrs)
    for threads in (1, 3):
        found = run_op("momentum", given | {"Grad": values, "Rows": rows}, attrs, threads=threads)
        for slot, value in expected.items():
            np.testing.assert_array_equal(found[slot], value, err_msg=slot)


@pytest.mark.parametrize("width", [1, 3, 16, 100, 200])
def test_adam_gives_the_bits_of_a_dense_gradient_whatever_the_width_and_the_threads(width, rng, monkeypatch):
    monkeypatch.setattr(work_parts, "ENOUGH_BYTES", 8)
    height = 700
    state = {"Param": rng.standard_normal((height, width)), "Moment1": rng.standard_normal((height, width))}
    state["Moment2"] = rng.uniform(0.1, 1.0, (height, width))
    for moment in ("Moment1", "Moment2"):
        state[moment][100:500] = 0  # rows that never had a gradient
    rows = np.concatenate([rng.permutation(height)[:90], [-1, -1]])
    values = rng.standard_normal((92, width)) * (rows >= 0)[:, None]
    given = {s: a.astype("float32") for s, a in state.items()} | {"LearningRate": np.ones(1, "float32") * 0.1}
    given |= {"Beta1Pow": np.full(1, 0.9, "float32"), "Beta2Pow": np.full(1, 0.999, "float32")}
    whole = np.zeros((height, width))
    whole[rows[:90]] = values[:90]
    expected = run_op("adam", given | {"Grad": whole.astype("float32")})
    for threads in (1, 3):
        found = run_op("adam", given | {"Grad": values.astype("float32"), "Rows": rows}, threads=threads)
        for slot, value in expected.items():
            np.testing.assert_array_equal(found[slot], value, err_msg=slot)


@pytest.mark.parametrize("name", ["l1_decay", "l2_decay"])
def test_only_touched_rows_decay(name, rng):
    param, rows = rng.standard_normal((6, 3)), np.array([4, 1, -1])
    values = rng.standard_normal((3, 3)) * (rows >= 0)[:, None]
    found = run_op(name, {"Grad": values, "Param": param, "Rows": rows}, {"coeff": 0.5})
    pull = param if name == "l2_decay" else np.sign(param)
    expected = values + 0.5 * np.stack([pull[4], pull[1], np.zeros(3)])
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("op", "given", "attrs", "text"),
    [
        pytest.param(
            "merge_selected_rows", {"Ids": [np.zeros((2, 1), np.int64)], "X": [np.ones((2, 3))] * 2}, {}, "1 lists of ids, 2",
            id="a list too many",
        ),
        pytest.param(
            "merge_selected_rows", {"Ids": [np.zeros((2, 1))], "X": [np.ones((2, 3))]}, {}, "needs Ids int64", id="floats"
        ),
        pytest.param(
            "sgd",
            {"Param": np.ones((4, 3)), "Grad": np.ones((2, 2)), "LearningRate": np.ones(1), "Rows": np.zeros(2, np.int64)},
            {}, "Grad is", id="another width",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, given, attrs, text):
    with pytest.raises(PeError, match=text):
        run_op(op, given, attrs)
