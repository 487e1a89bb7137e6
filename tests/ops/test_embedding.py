"""lookup_table and lookup_table_v2 against NumPy's indexing."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels.cpu.non_temporal import FAR
from pe_cli.ops.define.registry import Sample, find
from tests.ops.support import directional_error, run_gradient, run_op

BOTH = pytest.mark.parametrize("name", ["lookup_table", "lookup_table_v2"])


def shaped(name, ids):
    ids = np.asarray(ids, np.int64)
    return ids[..., None] if name == "lookup_table" else ids


@BOTH
@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 2, 2), (0,)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_come_out_by_number(name, shape, dtype, rng):
    w, ids = rng.standard_normal((7, 5)).astype(dtype), rng.integers(0, 7, shape)
    np.testing.assert_array_equal(run_op(name, {"W": w, "Ids": shaped(name, ids)}), w[ids])


@pytest.mark.parametrize("width", [16, 20], ids="{} numbers".format)
def test_outputs_larger_than_the_caches(width, rng):
    w, ids = rng.standard_normal((50, width)).astype("f4"), rng.integers(0, 50, FAR // (4 * width) + 3)
    want = w[ids]
    want[ids == 7] = 0
    np.testing.assert_array_equal(run_op("lookup_table_v2", {"W": w, "Ids": ids}, {"padding_idx": 7}), want)


@BOTH
def test_gradients_of_repeated_ids_add_up(name, rng):
    w, ids, up = rng.standard_normal((7, 5)), rng.integers(0, 7, (4, 6)), rng.standard_normal((4, 6, 5))
    expected = np.zeros((7, 5))
    np.add.at(expected, ids, up)
    found = run_gradient(name, {"W": w, "Ids": shaped(name, ids)}, None, "Out", up)["W"]
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_rows_and_no_bit_changes(threads, rng):
    w, ids = rng.standard_normal((5000, 48)).astype("f4"), rng.integers(0, 5000, (64, 101))
    up = rng.standard_normal((64, 101, 48)).astype("f4")
    given = {"W": w, "Ids": ids}
    want = w[ids]
    want[ids == 7] = 0
    np.testing.assert_array_equal(run_op("lookup_table_v2", given, {"padding_idx": 7}, threads=threads), want)
    alone, shared = (
        run_gradient("lookup_table_v2", given, {"padding_idx": 7}, "Out", up, threads=n)["W"] for n in (1, threads)
    )
    np.testing.assert_array_equal(shared, alone)
    np.add.at(exact := np.zeros((5000, 48)), ids[ids != 7], up[ids != 7])
    np.testing.assert_allclose(shared, exact, atol=1e-5)


def test_of_wrong_ids_the_first_is_named_whichever_thread_finds_one():
    ids = np.ones((4000, 1), np.int64)
    ids[[900, 3100], 0] = 5, -2
    for _ in range(20):
        with pytest.raises(PeError, match=r"value 5 at row 900 is out of range \[0, 4\)"):
            run_op("lookup_table", {"W": np.ones((4, 64)), "Ids": ids}, threads=2)


@BOTH
def test_padding_reads_as_zero_and_gets_no_gradient(name, rng):
    w, ids = rng.standard_normal((4, 3)), [1, 2, 1]
    given = {"W": w, "Ids": shaped(name, ids)}
    np.testing.assert_array_equal(run_op(name, given, {"padding_idx": 1}), [np.zeros(3), w[2], np.zeros(3)])
    found = run_gradient(name, given, {"padding_idx": 1})["W"]
    np.testing.assert_array_equal(found, [[0] * 3, [0] * 3, [1] * 3, [0] * 3])


@BOTH
@pytest.mark.parametrize("padding", [-1, 1])
def test_row_sparse_gradients_are_those_of_central_differences(name, padding, rng):
    inputs = {"W": (7, 5), "Ids": lambda rng: shaped(name, rng.integers(0, 7, (4, 6)))}
    sample = Sample(inputs, {"is_sparse": True, "padding_idx": padding})
    assert directional_error(find(name), sample) < 1e-6
    w, ids, up = rng.standard_normal((7, 5)), shaped(name, rng.integers(0, 7, (4, 6))), rng.standard_normal((4, 6, 5))
    found, dense = (
        run_gradient(name, {"W": w, "Ids": ids}, {"is_sparse": sparse, "padding_idx": padding}, "Out", up)
        for sparse in (True, False)
    )
    np.testing.assert_array_equal(found["W"], dense["W"])


@BOTH
@pytest.mark.parametrize("value", [4, -1])
@pytest.mark.parametrize("attrs", [{}, {"padding_idx": 1}], ids=["no padding", "padding"])
def test_an_id_out_of_range_is_named_with_row_and_limit(name, value, attrs):
    with pytest.raises(PeError, match=rf"{name}: value {value} at row 2 is out of range \[0, 4\)") as raised:
        run_op(name, {"W": np.ones((4, 3)), "Ids": shaped(name, [0, 3, value])}, attrs)
    assert raised.value.code is ExitCode.DATA


@pytest.mark.parametrize(
    ("ids", "attrs", "text"),
    [
        pytest.param(np.zeros((2, 1), np.int64), {"is_distributed": True}, "parameter servers", id="distributed"),
        pytest.param(np.zeros((2, 3), np.int64), {}, r"Ids \[\.\.\., 1\]", id="no last axis of one"),
        pytest.param(np.zeros((2, 1)), {}, "cast them to int64", id="floats"),
        pytest.param(np.zeros((2, 1), np.int64), {"padding_idx": 4}, "got 4", id="padding outside the table"),
    ],
)
def test_what_cannot_be_done_is_refused(ids, attrs, text):
    with pytest.raises(PeError, match=text):
        run_op("lookup_table", {"W": np.ones((4, 3)), "Ids": ids}, attrs)
