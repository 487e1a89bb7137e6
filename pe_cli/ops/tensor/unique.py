"""unique_with_counts, unique_sorted: the different values of a tensor. They run on the host: only values tell how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.tensor.masked_rows import Arrays, Made


@op(
    "unique_with_counts",
    inputs="X",
    outputs="Out Index Count",
    attrs={"dtype": Attr("int32", "element type of Index and Count", ("int32", "int64"))},
    differentiable="",
    samples=[
        Sample({"X": lambda rng: np.array([2, 3, 3, 1, 5, 3])}, name="some twice"),
        Sample({"X": lambda rng: np.zeros(0, "int64")}, {"dtype": "int64"}, "nothing"),
    ],
)
def unique_with_counts(x: TensorType, *, dtype: str) -> tuple[TensorType, TensorType, TensorType]:
    """Find the different values of a vector, in the order in which they come first.

    Args:
        X: [values] any element type.

    Returns:
        Out: [different values] element type of X.
        Index: [values] place of each value of X in Out.
        Count: [different values] how often each comes.

    Raises:
        PeError: X is no vector.

    Source:
        fluid.layers.unique_with_counts.
    """
    if len(x.shape) != 1:
        raise PeError(f"unique_with_counts needs a vector, got {x}", hint="reshape it")
    return x.with_shape(-1), TensorType(x.shape, dtype), TensorType((-1,), dtype)


@unique_with_counts.host
def unique_with_counts_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """Sort, then put the values in the order of their first places."""
    del attrs
    values, first, index, counts = np.unique(inputs["X"][0], return_index=True, return_inverse=True, return_counts=True)
    # NumPy sorts by value: `order` lists its values by their first places, and `place` says where each one went.
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return {"Out": [values[order]], "Index": [place[index]], "Count": [counts[order]]}


@op(
    "unique_sorted",
    inputs="X",
    outputs="Out Index Inverse Count",
    attrs={
        "axis": Attr([], "the axis whose parts are compared; none for single elements"),
        "dtype": Attr("int64", "element type of Index, Inverse and Count", ("int32", "int64")),
    },
    differentiable="",
    samples=[
        Sample({"X": lambda rng: np.array([[2, 3], [3, 1], [2, 3]])}, name="elements"),
        Sample({"X": lambda rng: np.array([[2, 3], [3, 1], [2, 3]])}, {"axis": [0], "dtype": "int32"}, "rows"),
        Sample({"X": lambda rng: np.zeros(0, "int64")}, name="nothing"),
    ],
)
def unique_sorted(x: TensorType, *, axis: list[int], dtype: str) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """Find the different elements of a tensor, or the different parts along an axis, in order.

    Args:
        X: any shape but a scalar, any element type.

    Returns:
        Out: [different elements], or X's shape with as many parts along the axis as there are different ones; element type of X.
        Index: [different ones] where each comes first.
        Inverse: [elements], or [parts]: the place of each in Out.
        Count: [different ones] how often each comes.

    Raises:
        PeError: X is a scalar, or has no such axis.

    Source:
        paddle.unique.
    """
    if not x.shape or len(axis) > 1 or (axis and not 0 <= axis[0] < len(x.shape)):
        raise PeError(f"unique_sorted needs axes and none or one of them, got {x} and axis {axis}")
    size = x.shape[axis[0]] if axis else -1 if -1 in x.shape else product(x.shape)
    shape = [-1 if i == axis[0] else n for i, n in enumerate(x.shape)] if axis else [-1]
    few = TensorType((-1,), dtype)
    return x.with_shape(*shape), few, TensorType((size,), dtype), few


@unique_sorted.host
def unique_sorted_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """NumPy's."""
    axis = attrs["axis"][0] if attrs["axis"] else None
    values, first, inverse, counts = np.unique(inputs["X"][0], return_index=True, return_inverse=True, return_counts=True, axis=axis)
    return {"Out": [values], "Index": [first], "Inverse": [inverse.ravel()], "Count": [counts]}
