"""first_rows: keeps the rows of the rounds that a loop has done. It runs on the host, as only a value tells how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.onnx import GRADIENT, not_in_onnx
from pe_cli.ops.define.registry import GradRequest, OpDesc, Sample, op
from pe_cli.ops.tensor.masked_rows import Arrays, Made


def _check(name: str, x: TensorType, count: TensorType) -> None:
    if not x.shape:
        raise PeError(f"{name} needs rows, got {x}")
    if count.dtype not in ("int32", "int64") or count.size != 1:
        raise PeError(f"{name} needs a Count of one whole number, got {count}")


@op(
    "first_rows",
    inputs="X Count",
    differentiable="X",
    samples=[
        Sample({"X": (5, 3), "Count": fixed([2])}, name="two of five"),
        Sample({"X": (4,), "Count": fixed([4])}, name="all"),
        Sample({"X": (3, 0), "Count": fixed([0])}, name="none"),
    ],
)
def first_rows(x: TensorType, count: TensorType) -> TensorType:
    """Take the first rows.

    Out = X[:Count]

    Args:
        X: [rows, ...] any element type.
        Count: [1] int32 or int64.

    Returns:
        Out: [Count, ...] element type of X.

    Raises:
        PeError: types that do not fit; while running, Count is negative or more than there are.

    Source:
        fluid's tensor_array_to_tensor op, for the rows that a loop has collected.
    """
    _check("first_rows", x, count)
    return x.with_shape(-1, *x.shape[1:])


@first_rows.host
def first_rows_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """One copy.

    Raises:
        PeError: there are not as many rows.
    """
    del attrs
    x, count = inputs["X"][0], int(inputs["Count"][0].ravel()[0])
    if not 0 <= count <= len(x):
        raise PeError(f"first_rows: Count is {count}, X has {len(x)} rows")
    return {"Out": [x[:count]]}


@first_rows.make_grad
def first_rows_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient's rows, and zeros behind them."""
    (x,), (out,) = request.op.inputs["X"], request.op.outputs["Out"]
    return [OpDesc("rows_like", {"X": [request.grads[out]], "Like": [x]}, {"Out": [request.wanted[x]]})]


@op(
    "rows_like",
    inputs="X Like",
    differentiable="",
    samples=[Sample({"X": (2, 3), "Like": (5, 3)}, name="two of five"), Sample({"X": (0, 2), "Like": (1, 2)}, name="none")],
)
def rows_like(x: TensorType, like: TensorType) -> TensorType:
    """Put zeros behind rows until there are as many as another tensor has.

    Out = [X, 0, ...]

    Args:
        X: [rows, ...] any element type.
        Like: [more rows, ...] element type of X; only its sizes count.

    Returns:
        Out: type of Like.

    Raises:
        PeError: types that do not fit; while running, Like has fewer rows.

    Source:
        The gradient of first_rows.
    """
    if x.dtype != like.dtype or len(x.shape) != len(like.shape) or not x.shape:
        raise PeError(f"rows_like needs X and Like of one element type and as many axes, got {x} and {like}")
    return like


@rows_like.host
def rows_like_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """One copy.

    Raises:
        PeError: there are fewer rows.
    """
    del attrs
    x, like = inputs["X"][0], inputs["Like"][0]
    if len(x) > len(like) or x.shape[1:] != like.shape[1:]:
        raise PeError(f"rows_like: X is {list(x.shape)}, Like {list(like.shape)}")
    out = np.zeros_like(like)
    out[: len(x)] = x
    return {"Out": [out]}
not_in_onnx(GRADIENT, "rows_like")
