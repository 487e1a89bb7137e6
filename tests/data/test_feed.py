"""Feeds: types are checked before data is read, values when they arrive."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.data.feed import Feed, check_feed

AT = Span("run.yaml", 9, 3)


def convert(feed, values, target):
    values = np.asarray(values)
    source = TensorType(values.shape[1:], values.dtype.name)
    return check_feed("in", feed, {"x": source}, target).apply(values, np.arange(10, 10 + len(values)))


def u8(*rows):
    return np.array(rows, np.uint8)


@pytest.mark.parametrize(
    ("feed", "values", "target", "expected"),
    [
        pytest.param({}, u8([1, 2]), TensorType((2,)), [[1, 2]], id="uint8 becomes float32"),
        pytest.param({"scale": 0.5}, u8([1, 255]), TensorType((2,)), [[0.5, 127.5]], id="a scale"),
        pytest.param({"scale": 2, "shift": -1}, u8([1, 255]), TensorType((2,)), [[1, 509]], id="scale, then shift"),
        pytest.param({"scale": 0.5}, np.array([[3]]), TensorType((1,)), [[1.5]], id="int64 to scaled float32"),
        pytest.param({"shift": 0.25}, np.array([[1.5]]), TensorType((1,), "float64"), [[1.75]], id="float64"),
        pytest.param({}, np.array([3, 4]), TensorType((1,), "int64"), [[3], [4]], id="labels [n] become [n, 1]"),
        pytest.param({}, np.array([[3], [4]]), TensorType((), "int64"), [3, 4], id="labels [n, 1] become [n]"),
        pytest.param({"shift": -1}, np.array([[3]]), TensorType((1,), "int64"), [[2]], id="labels that start at 1"),
        pytest.param({}, u8([[1, 2], [3, 4]]), TensorType((1, 2, 2)), [[[[1, 2], [3, 4]]]], id="an axis of channels"),
        pytest.param({}, u8([[1, 2], [3, 4]]), TensorType((4,)), [[1, 2, 3, 4]], id="an image is flattened"),
        pytest.param({}, u8([1, 2, 3, 4]), TensorType((2, 2)), [[[1, 2], [3, 4]]], id="a row is folded"),
        pytest.param(
            {"reshape": (2, -1)}, u8([[1], [2], [3], [4]]), TensorType((2, 2)), [[[1, 2], [3, 4]]], id="reshape"
        ),
        pytest.param({"one_hot": 3}, np.array([2, 0]), TensorType((3,)), [[0, 0, 1], [1, 0, 0]], id="one-hot of [n]"),
        pytest.param(
            {"one_hot": 3}, np.array([[2], [0]]), TensorType((3,)), [[0, 0, 1], [1, 0, 0]], id="one-hot of [n, 1]"
        ),
        pytest.param({"one_hot": 2}, u8([1, 0]), TensorType((2, 2)), [[[0, 1], [1, 0]]], id="one-hot of a sequence"),
        pytest.param({"one_hot": 2, "shift": -1}, u8([2]), TensorType((2,)), [[0, 1]], id="one-hot after the shift"),
        pytest.param({"one_hot": 2}, u8([1]), TensorType((2,), "int64"), [[0, 1]], id="one-hot of integers"),
        pytest.param(
            {"dtype": "int64"}, np.array([[2.0]]), TensorType((1,), "int64"), [[2]], id="floats that are whole"
        ),
        pytest.param(
            {"dtype": "int64", "one_hot": 2}, np.array([[1.0]]), TensorType((2,)), [[0, 1]], id="one-hot of floats"
        ),
        pytest.param({"dtype": "bool"}, u8([0, 7]), TensorType((2,), "bool"), [[False, True]], id="not zero is true"),
        pytest.param({}, np.array([[True]]), TensorType((1,), "int64"), [[1]], id="bool becomes 1"),
        pytest.param({}, u8([1, 2, 3]), TensorType((-1,)), [[1, 2, 3]], id="a size that the model does not know"),
        pytest.param({}, u8([1, 2, 3]), TensorType((-1, 1)), [[[1], [2], [3]]], id="an unknown size and an axis of 1"),
    ],
)
def test_values(feed, values, target, expected):
    out = convert(Feed("x", **feed), values, target)
    assert out.dtype == target.numpy
    assert out.flags.c_contiguous
    assert out.tolist() == expected


def test_a_scale_rounds_as_float32_arithmetic_does():
    out = convert(Feed("x", scale=1 / 255), u8(*([v] for v in range(256))), TensorType((1,)))
    assert np.array_equal(out[:, 0], np.arange(256, dtype=np.float32) * np.float32(1 / 255))


@pytest.mark.parametrize(
    ("feed", "source", "target", "message", "hint"),
    [
        pytest.param({}, TensorType((784,)), TensorType((10,)), "the shapes differ", "declare", id="other sizes"),
        pytest.param(
            {},
            TensorType((32, 32, 3), "uint8"),
            TensorType((3, 32, 32)),
            r"feed 'in' is float32\[3, 32, 32\], but field 'x' is uint8\[32, 32, 3\]: the shapes differ",
            "put a layer {type: transpose, perm: [0, 3, 1, 2]} behind it",
            id="channels last are not silently channels first",
        ),
        pytest.param(
            {}, TensorType((), "int64"), TensorType((10,)), "differ", "set one_hot: 10", id="labels for classes"
        ),
        pytest.param(
            {"one_hot": 5}, TensorType((), "int64"), TensorType((10,)), r"with one_hot \[5\]", "", id="one-hot size"
        ),
        pytest.param(
            {"reshape": (3, 3)}, TensorType((8,)), TensorType((3, 3)), "cannot hold", "product", id="reshape size"
        ),
        pytest.param(
            {"reshape": (-1, -1)}, TensorType((8,)), TensorType((3, 3)), "cannot hold", "product", id="two -1"
        ),
        pytest.param(
            {"reshape": (3, -1)}, TensorType((8,)), TensorType((3, 3)), "cannot hold", "product", id="-1 of thirds"
        ),
        pytest.param(
            {"reshape": (2, 4)}, TensorType((8,)), TensorType((4, 2)), r"with reshape \[2, 4\]", "", id="reshape, then"
        ),
        pytest.param(
            {}, TensorType((1,)), TensorType((1,), "int64"), "only when asked", "dtype: int64", id="float to int"
        ),
        pytest.param(
            {}, TensorType((1,), "int64"), TensorType((1,), "bool"), "when asked", "dtype: bool", id="int to bool"
        ),
        pytest.param(
            {"one_hot": 2}, TensorType((1,)), TensorType((2,)), "needs class indices", "dtype: int64", id="one-hot"
        ),
        pytest.param(
            {"one_hot": 2, "scale": 0.5}, TensorType((1,), "int64"), TensorType((2,)), "scale 0.5", "", id="half"
        ),
        pytest.param(
            {"scale": 0.5}, TensorType((1,), "int64"), TensorType((1,), "int64"), "scale 0.5", "", id="half labels"
        ),
        pytest.param(
            {"one_hot": 0}, TensorType((1,), "int64"), TensorType((2,)), "at least 1 class, got 0", "", id="no class"
        ),
        pytest.param(
            {"scale": float("nan")}, TensorType((1,)), TensorType((1,)), "scale must be a finite", "", id="nan"
        ),
        pytest.param(
            {"shift": 1e39}, TensorType((1,)), TensorType((1,)), "shift must be a finite", "", id="a huge shift"
        ),
        pytest.param(
            {"dtype": "float"}, TensorType((1,)), TensorType((1,)), "unknown dtype 'float'", "float", id="dtype"
        ),
    ],
)
def test_types_that_do_not_fit(feed, source, target, message, hint):
    with pytest.raises(PeError, match=message) as caught:
        check_feed("in", Feed("x", at=AT, **feed), {"x": source}, target)
    assert caught.value.code is ExitCode.DATA
    assert caught.value.at == AT
    assert hint in (caught.value.hint or "")


def test_unknown_field():
    with pytest.raises(PeError, match="feed 'in': the data has no field 'imgae'") as caught:
        check_feed("in", Feed("imgae"), {"image": TensorType((1,))}, TensorType((1,)))
    assert caught.value.hint == "did you mean 'image'?"


@pytest.mark.parametrize(
    ("feed", "values", "target", "message"),
    [
        pytest.param(
            {"one_hot": 3}, np.array([2, 3]), TensorType((3,)), r"sample 11 .* has 3, .* \[0, 3\)", id="class 3 of 3"
        ),
        pytest.param(
            {"one_hot": 3}, np.array([[-1]]), TensorType((3,)), "sample 10 of field 'x' has -1", id="class -1"
        ),
        pytest.param(
            {"dtype": "int64"}, np.array([[1.0], [2.5]]), TensorType((1,), "int64"), "sample 11 .* 2.5", id="2.5"
        ),
        pytest.param(
            {"dtype": "int64"}, np.array([[np.nan]]), TensorType((1,), "int64"), "has nan, .* no int64", id="nan"
        ),
        pytest.param({"dtype": "int64"}, np.array([[2.0**63]]), TensorType((1,), "int64"), "9.22", id="2**63"),
        pytest.param(
            {}, np.array([[2**31]]), TensorType((1,), "int32"), "has 2147483648, which is no int32", id="int32"
        ),
        pytest.param({}, np.array([[3], [256]]), TensorType((1,), "uint8"), "sample 11 .* has 256", id="256 as a byte"),
        pytest.param({}, np.array([[1e39]]), TensorType((1,)), "too large for float32", id="1e39 as float32"),
        pytest.param(
            {"scale": 1e38}, np.array([[99.0]]), TensorType((1,)), "too large for float32", id="scaled too much"
        ),
    ],
)
def test_values_that_do_not_fit(feed, values, target, message):
    with pytest.raises(PeError, match=message) as caught:
        convert(Feed("x", at=AT, **feed), values, target)
    assert caught.value.code is ExitCode.DATA
    assert caught.value.at == AT
