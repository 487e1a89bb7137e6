"""Shape ops against NumPy, for every element type, and their inference with an unknown batch."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import BFLOAT16, DTYPES, Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import find
from pe_cli.program.ir import Program
from tests.ops.support import run_gradient, run_op

RNG = np.random.default_rng(5)

#: Element types that NumPy has.
NUMPY = [name for name in DTYPES if name != BFLOAT16]


def values(shape, dtype="float32"):
    made = RNG.standard_normal(shape) * 40
    return (made > 0) if dtype == "bool" else np.abs(made).astype(dtype)


X = values((3, 5, 7))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        pytest.param("reshape", {"shape": [0, -1]}, lambda x: x.reshape(3, 35), id="reshape joins axes"),
        pytest.param("flatten", {"axis": 2}, lambda x: x.reshape(15, 7), id="flatten makes a matrix"),
        pytest.param("unsqueeze", {"axes": [1, 4]}, lambda x: x[:, None, :, :, None], id="unsqueeze inserts axes"),
        pytest.param("transpose", {"axis": [2, 0, 1]}, lambda x: x.transpose(2, 0, 1), id="transpose turns axes"),
        pytest.param("transpose", {"axis": [0, 2, 1]}, lambda x: x.transpose(0, 2, 1), id="transpose turns matrices"),
        pytest.param("transpose", {"axis": [1, 0, 2]}, lambda x: x.transpose(1, 0, 2), id="transpose moves rows"),
        pytest.param("reverse", {"axis": [0, -1]}, lambda x: x[::-1, :, ::-1], id="reverse runs backwards"),
        pytest.param("expand", {"expand_times": [2, 1, 3]}, lambda x: np.tile(x, (2, 1, 3)), id="expand tiles"),
        pytest.param(
            "pad",
            {"paddings": [1, 0, 0, 2, 3, 1], "pad_value": 1.0},
            lambda x: np.pad(x, ((1, 0), (0, 2), (3, 1)), constant_values=1),
            id="pad surrounds",
        ),
    ],
)
def test_values_for_every_element_type(op, attrs, expected, dtype):
    x = values((3, 5, 7), dtype)
    got = run_op(op, {"X": x}, attrs)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, expected(x))


@pytest.mark.parametrize("axis", [[1, 0], [0, 1]])
@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (300, 2), (33, 65), (64, 64), (100, 17)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_matrices_of_all_shapes_transpose(shape, axis, dtype):
    x = values(shape, dtype)
    np.testing.assert_array_equal(run_op("transpose", {"X": x}, {"axis": axis}), x.transpose(axis))


@pytest.mark.parametrize("axis", [[0, 2, 3, 1], [0, 3, 1, 2], [3, 2, 1, 0], [1, 3, 0, 2], [0, 2, 1, 3]])
def test_four_axes_transpose_forth_and_back(axis):
    x = values((3, 9, 10, 17))
    out = run_op("transpose", {"X": x}, {"axis": axis})
    np.testing.assert_array_equal(out, x.transpose(axis))
    upstream = values(out.shape)
    back = run_gradient("transpose", {"X": x}, {"axis": axis}, upstream=upstream)["X"]
    np.testing.assert_array_equal(back, upstream.transpose(np.argsort(axis)))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_and_split_are_inverse(axis, dtype):
    x = values((6, 4, 5), dtype)
    sizes = {0: [1, 3, 2], 1: [2, 2], -1: [4, 1]}[axis]
    parts = run_op("split", {"X": x}, {"sections": sizes, "axis": axis}, {"Out": len(sizes)})
    for got, want in zip(parts, np.split(x, np.cumsum(sizes)[:-1], axis), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(run_op("concat", {"X": parts}, {"axis": axis}), x)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_stack_and_unstack_are_inverse(axis):
    xs = [values((4, 3)) for _ in range(5)]
    stacked = run_op("stack", {"X": xs}, {"axis": axis})
    np.testing.assert_array_equal(stacked, np.stack(xs, axis))
    parts = run_op("unstack", {"X": stacked}, {"axis": axis}, {"Y": 5})
    for got, want in zip(parts, xs, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        pytest.param({"axes": [0], "starts": [1], "ends": [2]}, X[1:2], id="one row"),
        pytest.param({"axes": [1], "starts": [-3], "ends": [-1]}, X[:, -3:-1], id="from the end"),
        pytest.param({"axes": [1, 2], "starts": [0, -100], "ends": [100, 4]}, X[:, :, :4], id="clamped"),
        pytest.param({"axes": [-1], "starts": [6], "ends": [7]}, X[:, :, 6:], id="the last axis by a negative number"),
    ],
)
def test_slice_cuts_as_python_does(cut, expected):
    np.testing.assert_array_equal(run_op("slice", {"Input": X}, cut), expected)


def test_gather_takes_rows_of_every_element_type():
    index = np.array([2, 0, 2, 1], np.int64)
    for dtype in NUMPY:
        x = values((3, 4), dtype)
        np.testing.assert_array_equal(run_op("gather", {"X": x, "Index": index}), x[index])


def test_the_gradient_of_a_row_taken_twice_is_a_sum():
    index = np.array([2, 0, 2], np.int32)
    upstream = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    back = run_gradient("gather", {"X": np.zeros((4, 2)), "Index": index}, upstream=upstream)["X"]
    np.testing.assert_array_equal(back, [[3, 4], [0, 0], [6, 8], [0, 0]])


@pytest.mark.parametrize("bad", [-1, 3])
def test_gather_names_the_row_that_is_out_of_range(bad):
    with pytest.raises(PeError, match=rf"value {bad} at row 1 is out of range \[0, 3\)"):
        run_op("gather", {"X": X, "Index": np.array([0, bad])})


def test_the_gradient_of_many_copies_keeps_its_digits():
    ones = np.full((1, 100_000), 0.1, np.float32)
    back = run_gradient("expand", {"X": np.zeros((1, 1), np.float32)}, {"expand_times": [1, 100_000]}, upstream=ones)[
        "X"
    ]
    np.testing.assert_allclose(back, 1e4, rtol=2e-6)
    rows = np.full((100_000, 2), 0.1, np.float32)
    back = run_gradient("expand", {"X": np.zeros((1, 2), np.float32)}, {"expand_times": [100_000, 1]}, upstream=rows)[
        "X"
    ]
    np.testing.assert_allclose(back, [[1e4, 1e4]], rtol=2e-6)


def test_shape_returns_the_sizes():
    np.testing.assert_array_equal(run_op("shape", {"Input": X}), np.array(X.shape, np.int32))


def test_assign_value_keeps_every_bit():
    numbers = [0.1, -0.0, 1e300, np.inf, 5e-324]
    got = run_op("assign_value", {}, {"shape": [5], "dtype": "float64", "values": numbers})
    assert got.tobytes() == np.array(numbers).tobytes()
    got = run_op("assign_value", {}, {"shape": [2], "dtype": "int64", "values": [2**62 + 1, -7]})
    assert got.tolist() == [2**62 + 1, -7]


# --- inference --------------------------------------------------------------------------------------------------------


def infer(op, *shapes, **attrs):
    definition = find(op)
    args = [[TensorType(s) for s in shape] if isinstance(shape, list) else TensorType(shape) for shape in shapes]
    out = definition.infer(*args, **definition.check_attrs(attrs))
    return [t.shape for t in out[0]] if isinstance(out, tuple) else out.shape


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "expected"),
    [
        pytest.param("reshape", [(-1, 3, 4)], {"shape": [-1, 12]}, (-1, 12), id="reshape: the batch is worked out"),
        pytest.param("reshape", [(-1, 3, 4)], {"shape": [0, -1]}, (-1, 12), id="reshape: the batch is kept"),
        pytest.param("reshape", [(-1, 6, 4)], {"shape": [-1, 3, 4]}, (-1, 3, 4), id="reshape: the batch grows"),
        pytest.param(
            "reshape", [(0, 6)], {"shape": [0, -1, 2]}, (0, 3, 2), id="reshape: an empty batch leaves the rest"
        ),
        pytest.param("flatten", [(-1, 3, 4)], {}, (-1, 12), id="flatten keeps the batch"),
        pytest.param("squeeze", [(-1, 1)], {"axes": [1]}, (-1,), id="squeeze keeps the batch"),
        pytest.param("unsqueeze", [(-1, 3)], {"axes": [-1]}, (-1, 3, 1), id="unsqueeze from the end"),
        pytest.param("transpose", [(-1, 3, 4)], {"axis": [1, 0, 2]}, (3, -1, 4), id="transpose moves the batch"),
        pytest.param("concat", [[(-1, 3), (-1, 4)]], {"axis": 1}, (-1, 7), id="concat of columns"),
        pytest.param("concat", [[(-1, 3), (2, 3)]], {}, (-1, 3), id="concat along the batch"),
        pytest.param("concat", [[(-1, 3), (2, 4)]], {"axis": 1}, (2, 7), id="concat learns the batch"),
        pytest.param("split", [(-1, 6)], {"num": 3, "axis": 1}, [(-1, 2)] * 3, id="split of columns"),
        pytest.param("split", [(-1, 6)], {"sections": [1, -1]}, [(1, 6), (-1, 6)], id="split of the batch"),
        pytest.param("stack", [[(-1, 3), (-1, 3)]], {"axis": 1}, (-1, 2, 3), id="stack"),
        pytest.param("unstack", [(-1, 2)], {"axis": 1}, [(-1,), (-1,)], id="unstack of columns"),
        pytest.param("slice", [(-1, 6)], {"axes": [0], "starts": [0], "ends": [2]}, (-1, 6), id="slice of the batch"),
        pytest.param("expand", [(-1, 2)], {"expand_times": [2, 3]}, (-1, 6), id="expand"),
        pytest.param("pad", [(-1, 2)], {"paddings": [0, 1, 1, 1]}, (-1, 4), id="pad"),
    ],
)
def test_an_unknown_batch_passes(op, shapes, attrs, expected):
    assert infer(op, *shapes, **attrs) == expected


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("reshape", [(2, 3)], {"shape": [4, -1]}, "6 elements do not divide by 4"),
        ("reshape", [(2, 3)], {"shape": [5]}, "6 elements do not fill 5"),
        ("reshape", [(2, 3)], {"shape": [-1, -1]}, "one -1"),
        ("reshape", [(6,)], {"shape": [2, 0]}, "keeps axis 1"),
        ("squeeze", [(2, 3)], {"axes": [1]}, "has size 3, not 1"),
        ("squeeze", [(-1, 1)], {}, "a batch of 1 would lose its axis"),
        ("flatten", [(2, 3)], {"axis": 3}, "axis 3 is out of range"),
        ("transpose", [(2, 3)], {"axis": [0, 0]}, "permutation"),
        ("concat", [[(2, 3), (3, 3)]], {"axis": 1}, "2 != 3"),
        ("concat", [[(2, 3)]], {"axis": 2}, "axis 2 is out of range"),
        ("split", [(2, 5)], {"num": 2, "axis": 1}, "does not divide into 2"),
        ("split", [(2, 5)], {"sections": [2, 2], "axis": 1}, "do not fill an axis of size 5"),
        ("stack", [[(2,), (3,)]], {}, "2 != 3"),
        ("unstack", [(-1, 2)], {}, "size is not known"),
        ("slice", [(5,)], {"axes": [0], "starts": [3], "ends": [3]}, "keeps nothing"),
        ("slice", [(5,)], {"axes": [0], "starts": [3], "ends": []}, "as many starts and ends"),
        ("expand", [(5,)], {"expand_times": [0]}, "at least 1"),
        ("pad", [(5,)], {"paddings": [1]}, "needs 2 paddings"),
        ("reverse", [(5,)], {"axis": [1]}, "axis 1 is out of range"),
    ],
)
def test_what_does_not_fit_is_an_error_with_the_values(op, shapes, attrs, message):
    with pytest.raises(PeError, match=message):
        infer(op, *shapes, **attrs)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_reshaped_feed_survives_what_comes_later():
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, 4)), is_data=True)
    block.append_op("reshape", {"X": "x"}, {"Out": "a"}, {"shape": [0, 2, 2]})
    block.append_op("transpose", {"X": "a"}, {"Out": "b"}, {"axis": [0, 2, 1]})
    block.append_op("reshape", {"X": "b"}, {"Out": "c"}, {"shape": [-1]})
    executor = Executor(program, Scope([Place("cpu", 0)]))
    for rows in (3, 1, 2):
        x = values((rows, 4))
        got = executor.run({"x": x}, ["x", "a", "c"]).values[0]
        np.testing.assert_array_equal(got["x"], x)
        np.testing.assert_array_equal(got["a"], x.reshape(rows, 2, 2))
        np.testing.assert_array_equal(got["c"], x.reshape(rows, 2, 2).transpose(0, 2, 1).ravel())
