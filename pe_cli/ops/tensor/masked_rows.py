"""Rows that a mask selects: ops whose output sizes depend on values. They run on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import GradRequest, OpDesc, Sample, op

Arrays = Mapping[str, Sequence[np.ndarray[Any, Any]]]
Made = dict[str, list[np.ndarray[Any, Any]]]


def _mask(rng: np.random.Generator) -> Any:
    return rng.random((5, 1)) < 0.5


def _chosen(rng: np.random.Generator) -> Any:
    return np.array([[True], [False], [True], [True], [False]])


@op(
    "where_index",
    inputs="Condition",
    differentiable="",
    samples=[Sample({"Condition": _mask}, name="a column"), Sample({"Condition": lambda rng: rng.random((3, 4)) < 0.5})],
)
def where_index(condition: TensorType) -> TensorType:
    """Find the places where a condition holds, in order.

    Args:
        Condition: any shape but a scalar, bool.

    Returns:
        Out: [places, axes of Condition] int64.

    Raises:
        PeError: Condition is a scalar, or not bool.

    Source:
        fluid.layers.where.
    """
    if not condition.shape or condition.dtype != "bool":
        raise PeError(f"where_index needs a bool tensor with axes, got {condition}", hint="cast it")
    return TensorType((-1, len(condition.shape)), "int64")


@where_index.host
def where_index_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """One look at every element."""
    del attrs
    return {"Out": [np.argwhere(inputs["Condition"][0])]}


def _rows_of(name: str, mask: TensorType, rows: int) -> None:
    if mask.dtype != "bool" or mask.shape not in ((mask.shape[0], 1), (mask.shape[0],)):
        raise PeError(f"{name} needs a bool Mask [rows, 1], got {mask}", hint="compare two columns")
    if -1 not in (mask.shape[0], rows) and mask.shape[0] != rows:
        raise PeError(f"{name}: Mask {mask} is for {mask.shape[0]} rows, X has {rows}")


@op(
    "split_rows",
    inputs="X Mask",
    outputs="OutTrue OutFalse",
    differentiable="X",
    samples=[Sample({"X": (5, 3), "Mask": _mask}, name="five rows"), Sample({"X": (5,), "Mask": _mask}, name="numbers")],
)
def split_rows(x: TensorType, mask: TensorType) -> tuple[TensorType, TensorType]:
    """Part rows by a mask, each part in order.

    Args:
        X: [rows, ...] any element type.
        Mask: [rows, 1] bool.

    Returns:
        OutTrue, OutFalse: [rows where Mask holds, ...], [the others, ...] element type of X.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.IfElse, whose op split_lod_tensor this is without levels of sequences.
    """
    if not x.shape:
        raise PeError(f"split_rows needs rows, got X {x}")
    _rows_of("split_rows", mask, x.shape[0])
    made = x.with_shape(-1, *x.shape[1:])
    return made, made


@split_rows.host
def split_rows_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """Two copies."""
    del attrs
    x, mask = inputs["X"][0], inputs["Mask"][0].ravel()
    return {"OutTrue": [x[mask]], "OutFalse": [x[~mask]]}


@split_rows.make_grad
def split_rows_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient of a part is a row of X's where the mask says so; one that nothing needs is 0."""
    (x,), (mask,) = request.op.inputs["X"], request.op.inputs["Mask"]
    parts, made = {}, []
    for slot in ("True", "False"):
        (out,) = request.op.outputs[f"Out{slot}"]
        parts[f"In{slot}"] = [request.grads.get(out, f"{out}@GRAD@ZERO")]
        if out not in request.grads:
            made.append(OpDesc("fill_like", {"X": [out]}, {"Out": parts[f"In{slot}"]}, {"value": 0.0}))
    return [*made, OpDesc("merge_rows", {**parts, "Mask": [mask]}, {"Out": [request.wanted[x]]})]


@op(
    "merge_rows",
    inputs="InTrue InFalse Mask",
    differentiable="InTrue InFalse",
    samples=[
        Sample({"InTrue": (3, 2), "InFalse": (2, 2), "Mask": _chosen}, name="five rows"),
        Sample({"InTrue": (3,), "InFalse": (2,), "Mask": _chosen}, name="numbers"),
    ],
)
def merge_rows(yes: TensorType, no: TensorType, mask: TensorType) -> TensorType:
    """Put the rows of two tensors in the order of a mask.

    Args:
        InTrue: [rows where Mask holds, ...] any element type.
        InFalse: [the others, ...] element type of InTrue.
        Mask: [rows, 1] bool.

    Returns:
        Out: [rows, ...].

    Raises:
        PeError: types that do not fit; while running, as many rows as Mask has not.

    Source:
        fluid.layers.IfElse, whose op merge_lod_tensor this is without levels of sequences.
    """
    _rows_of("merge_rows", mask, -1)
    if not yes.shape or yes.dtype != no.dtype or yes.shape[1:] != no.shape[1:]:
        raise PeError(f"merge_rows needs rows of one type, got InTrue {yes} and InFalse {no}")
    return yes.with_shape(mask.shape[0], *yes.shape[1:])


@merge_rows.host
def merge_rows_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """One copy.

    Raises:
        PeError: the parts have not as many rows as the mask says.
    """
    del attrs
    yes, no, mask = inputs["InTrue"][0], inputs["InFalse"][0], inputs["Mask"][0].ravel()
    if (len(yes), len(no)) != (mask.sum(), (~mask).sum()):
        message = f"merge_rows: Mask holds in {mask.sum()} of {len(mask)} rows, got {len(yes)} and {len(no)}"
        raise PeError(message, hint="compute one row for every row of ie.input")
    # Every row is written: the mask and its opposite miss none.
    out = np.empty((len(mask), *yes.shape[1:]), yes.dtype)
    out[mask], out[~mask] = yes, no
    return {"Out": [out]}


@merge_rows.make_grad
def merge_rows_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient's rows, parted again."""
    names = [request.op.inputs[slot][0] for slot in ("InTrue", "InFalse")]
    # The op that parts rows has two results; one that nothing wants gets a name that nothing reads.
    outs = [request.wanted.get(n, f"{n}@GRAD@UNUSED") for n in names]
    (out,) = request.op.outputs["Out"]
    inputs = {"X": [request.grads[out]], "Mask": list(request.op.inputs["Mask"])}
    return [OpDesc("split_rows", inputs, {"OutTrue": [outs[0]], "OutFalse": [outs[1]]})]
