"""padded_where, padded_unique: places where a condition holds, and different values, in as many rows as there may be, in the step."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import NUMBERS, TensorType, product
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, PtrU8, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.sorting import sort_places


@kernel
def find_places(condition: PtrU8, strides: PtrI64, sizes: PtrI64, out: PtrI64, count: PtrI64, n: Int, axes: Int):
    """out = places where a condition holds, in order, then -1; count: how many."""
    found = 0
    for e in range(n):
        if condition[e]:
            for k in range(axes):
                out[found * axes + k] = e // strides[k] % sizes[k]
            found += 1
    count[0] = found
    for e in range(found * axes, n * axes):
        out[e] = -1


@op(
    "padded_where",
    inputs="Condition",
    outputs="Out Count",
    differentiable="",
    samples=[
        Sample({"Condition": lambda rng: rng.random((5, 1)) < 0.5}, name="a column"),
        Sample({"Condition": lambda rng: rng.random((3, 2, 4)) < 0.5}, name="three axes"),
        Sample({"Condition": lambda rng: rng.random((0, 2)) < 0.5}, name="an empty batch"),
    ],
)
def padded_where(condition: TensorType) -> tuple[TensorType, TensorType]:
    """Find the places where a condition holds, in order, a row for every element that there is.

    Args:
        Condition: any shape but a scalar, bool.

    Returns:
        Out: [elements, axes of Condition] int64: the places, and -1 behind the last one.
        Count: [1] int64: how many there are.

    Raises:
        PeError: Condition is a scalar, or not bool.

    Source:
        fluid.layers.where.
    """
    if not condition.shape or condition.dtype != "bool":
        raise PeError(f"where needs a bool tensor with axes, got {condition}", hint="compare two tensors, or cast it")
    rows = -1 if -1 in condition.shape else product(condition.shape)
    return TensorType((rows, len(condition.shape)), "int64"), TensorType((1,), "int64")


@padded_where.lower("cpu")
def padded_where_cpu(o: Lowering) -> None:
    """One pass."""
    shape = o.input("Condition").shape
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    facts = (Numbers(strides), Numbers(tuple(shape)))
    o.call(find_places, o.input("Condition"), *facts, o.output("Out"), o.output("Count"), math.prod(shape), len(shape))


@kernel
def find_values(x: Ptr, order: PtrI64, number: PtrI64, out: Ptr, index: PtrU, times: PtrU, count: PtrI64, n: Int):
    """out = different values of x in the order in which they come first, then 0; index = where each value is there; times: how often."""
    for p in range(n):
        order[p] = p
        number[p] = -1
    sort_places(x, 0, order, 0, n)
    first = 0
    for p in range(n):  # of equal values the first one comes first
        # A NaN differs from itself, so that each one is a value of its own.
        if p == 0 or x[order[p]] != x[order[p - 1]]:
            first = order[p]
        # The first place with the same value.
        number[order[p]] = first
    found = 0
    for p in range(n):
        if number[p] == p:
            out[found] = x[p]
            times[found] = 1
            index[p] = found
            found += 1
        else:
            index[p] = index[number[p]]
            times[index[p]] += 1
    count[0] = found
    for p in range(found, n):
        out[p] = T(0)
        times[p] = 0


@op(
    "padded_unique",
    inputs="X",
    outputs="Out Index Times Count",
    attrs={"dtype": Attr("int32", "element type of Index and Times", ("int32", "int64"))},
    differentiable="",
    samples=[
        Sample({"X": lambda rng: np.array([2, 3, 3, 1, 5, 3])}, name="some twice"),
        Sample({"X": lambda rng: np.array([2.5, -3, 2.5])}, {"dtype": "int64"}, "fractions"),
        Sample({"X": lambda rng: np.zeros(0, "int64")}, {"dtype": "int64"}, "nothing"),
    ],
)
def padded_unique(x: TensorType, *, dtype: str) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """Find the different values of a vector, in the order in which they come first, in as many places as the vector has.

    Args:
        X: [values] a number type.

    Returns:
        Out: type of X: the different values, and 0 behind the last one.
        Index: [values] the place of each value of X in Out.
        Times: [values] how often each of Out comes, 0 behind the last one.
        Count: [1] int64: how many different values there are.

    Raises:
        PeError: X is no vector of numbers.

    Source:
        fluid.layers.unique_with_counts.
    """
    if len(x.shape) != 1 or x.dtype not in NUMBERS:
        raise PeError(f"unique needs a vector of numbers, got {x}", hint="reshape or cast it")
    each = TensorType(x.shape, dtype)
    return x, each, each, TensorType((1,), "int64")


@padded_unique.lower("cpu")
def padded_unique_cpu(o: Lowering) -> None:
    """Sort places by value, then number the first of each."""
    x = o.input("X")
    order, number = (o.scratch(x.size, "int64") for _ in range(2))
    outs = (o.output(slot) for slot in ("Out", "Index", "Times", "Count"))
    o.call(find_values, x, order, number, *outs, x.size)


# Not dealt: where a value goes depends on all before it, so that one thread finds them in order.
also_on_cuda(padded_where, padded_unique)
