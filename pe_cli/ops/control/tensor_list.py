"""Lists of tensors of any sizes, with their sequences: the arrays of a loop whose rounds the host starts. They run there, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, Many
from pe_cli.ops.define.onnx import LISTS, not_in_onnx
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Lists

#: Tensors of a list at most.
MOST = 1 << 20


def _fits(name: str, array: TensorType, x: TensorType) -> None:
    inner = array.shape[1:]
    same = len(x.shape) == len(inner) and all(-1 in p or p[0] == p[1] for p in zip(x.shape, inner, strict=True))
    if x.dtype != array.dtype or not same:
        raise PeError(f"{name}: a list of {array.with_shape(*inner)} cannot hold {x}", hint="write tensors of one type")


def _place(run: HostRun) -> int:
    return int(run.one("Index").ravel()[0])


def _items(run: HostRun, slot: str = "Array") -> tuple[Leveled | None, ...]:
    (found,) = run.values[slot]
    assert isinstance(found, Many)
    return found.items


@op(
    "list_of",
    traits=[Lists()],
    inputs="X*",
    differentiable="",
    attrs={
        "places": Attr([0], "place of each tensor"),
        "shape": Attr([1], "sizes of a tensor, -1 for one that may change"),
        "dtype": Attr("float32", "element type"),
    },
)
def list_of(x: list[TensorType], *, places: list[int], shape: list[int], dtype: str) -> TensorType:
    """Begin a list of tensors.

    Args:
        X: tensors of one type but for sizes of -1.
        places, shape, dtype: see the attributes.

    Returns:
        Out: [-1, ...]; a list, which only list_put, list_get and beam_search_decode read.

    Raises:
        PeError: a tensor of another type, or not as many places as tensors.

    Source:
        fluid's LoDTensorArray.
    """
    array = TensorType((-1, *shape), dtype)
    if len(places) != len(x):
        raise PeError(f"list_of: {len(x)} tensors and {len(places)} places")
    for each in x:
        _fits("list_of", array, each)
    return array


@list_of.host_run
def list_of_host(run: HostRun) -> dict[str, list[Any]]:
    """Put each at its place."""
    found: list[Leveled | None] = [None] * (max(run.attrs["places"], default=-1) + 1)
    for place, item in zip(run.attrs["places"], run.values.get("X", ()), strict=True):
        found[place] = item
    return {"Out": [Many(tuple(found))]}


@op("list_put", traits=[Lists()], inputs="Array X Index", differentiable="")
def list_put(array: TensorType, x: TensorType, index: TensorType) -> TensorType:
    """Write a tensor at a place of a list, with its sequences; the list grows.

    Args:
        Array: a list.
        X: a tensor that fits.
        Index: [1] int32 or int64, from 0.

    Returns:
        Out: the list after that.

    Raises:
        PeError: X does not fit; while running, a place below 0 or far away.

    Source:
        fluid's write_to_array op.
    """
    del index
    _fits("list_put", array, x)
    return array


@list_put.host_run
def list_put_host(run: HostRun) -> dict[str, list[Any]]:
    """A new list with the tensor.

    Raises:
        PeError: the place is out of range.
    """
    at, items = _place(run), _items(run)
    # The list grows to its place: a number gone wrong must not fill the memory.
    if not 0 <= at < MOST:
        raise PeError(f"array_write: a tensor at {at}", hint=f"places are 0 to {MOST - 1}", code=ExitCode.DATA)
    # A new list, as the given one may be read elsewhere: by a branch that writes nothing, say.
    grown = [*items, *[None] * (at + 1 - len(items))]
    (x,) = run.values["X"]
    # A copy of the tensor: the list outlives the round, whose memory the next round writes again.
    grown[at] = Leveled(np.array(x.array), x.lod)
    return {"Out": [Many(tuple(grown))]}


@op("list_get", traits=[Lists()], inputs="Array Index", differentiable="")
def list_get(array: TensorType, index: TensorType) -> TensorType:
    """Read the tensor at a place of a list, with its sequences.

    Args:
        Array: a list.
        Index: [1] int32 or int64, from 0.

    Returns:
        Out: the tensor.

    Raises:
        PeError: while running, nothing was written there.

    Source:
        fluid's read_from_array op.
    """
    del index
    return array.with_shape(*array.shape[1:])


@list_get.host_run
def list_get_host(run: HostRun) -> dict[str, list[Any]]:
    """What was written there.

    Raises:
        PeError: nothing was.
    """
    at, items = _place(run), _items(run)
    found = items[at] if 0 <= at < len(items) else None
    if found is None:
        raise PeError(f"array_read: nothing was written at {at} of the array, which has {len(items)} places", code=ExitCode.DATA)
    return {"Out": [found]}


@op("list_copy", traits=[Lists()], inputs="Array", differentiable="")
def list_copy(array: TensorType) -> TensorType:
    """Hand a list on as it is.

    Args:
        Array: a list.

    Returns:
        Out: the list.

    Source:
        own: what a branch gives that writes nothing to a list.
    """
    return array


@list_copy.host_run
def list_copy_host(run: HostRun) -> dict[str, list[Any]]:
    """The same list."""
    return {"Out": [Many(_items(run))]}


@op("list_first", traits=[Lists()], inputs="Array Count", differentiable="")
def list_first(array: TensorType, count: TensorType) -> TensorType:
    """Leave out what is behind the first tensors of a list.

    Args:
        Array: a list.
        Count: [1] int32 or int64: how many stay.

    Returns:
        Out: a list.

    Source:
        own: the steps of a search that was stopped before its last one.
    """
    del count
    return array


@list_first.host_run
def list_first_host(run: HostRun) -> dict[str, list[Any]]:
    """A shorter list."""
    return {"Out": [Many(_items(run)[: int(run.one("Count").ravel()[0])])]}


@op(
    "list_join",
    traits=[Lists()],
    inputs="Array",
    outputs="Out OutIndex",
    differentiable="",
    attrs={"axis": Attr(0, "axis along which tensors are joined, or the new one"), "use_stack": Attr(False, "along a new axis")},
)
def list_join(array: TensorType, *, axis: int, use_stack: bool) -> tuple[TensorType, TensorType]:
    """Join the tensors of a list along an axis.

    Args:
        Array: a list.
        axis, use_stack: see the attributes.

    Returns:
        Out: one tensor. OutIndex: [tensors] int32; the size of each along the axis, 1 along a new one.

    Raises:
        PeError: the tensors have no such axis; while running, a place without a tensor, or tensors of sizes that do not fit.

    Source:
        fluid's tensor_array_to_tensor op.
    """
    sizes = list(array.shape[1:])
    most = len(sizes) + use_stack
    if not -most <= axis < most:
        raise PeError(f"list_join: axis {axis} of tensors of {sizes}")
    axis %= most
    if use_stack:
        sizes.insert(axis, -1)
    else:
        sizes[axis] = -1
    return array.with_shape(*sizes), TensorType((-1,), "int32")


@list_join.host_run
def list_join_host(run: HostRun) -> dict[str, list[Any]]:
    """All tensors, in order.

    Raises:
        PeError: a place is empty, or sizes do not fit.
    """
    items, axis = _items(run), run.attrs["axis"]
    lost = next((i for i, item in enumerate(items) if item is None), None if items else 0)
    if lost is not None:
        raise PeError(f"tensor_array_to_tensor: nothing was written at {lost} of the array", code=ExitCode.DATA)
    arrays = [item.array for item in items if item is not None]
    join = np.stack if run.attrs["use_stack"] else np.concatenate
    try:
        joined = join(arrays, axis)
    except ValueError:
        sizes = [list(a.shape) for a in arrays[:8]]
        raise PeError(f"tensor_array_to_tensor: tensors of {sizes} along axis {axis}", code=ExitCode.DATA) from None
    counts = [1 if run.attrs["use_stack"] else a.shape[axis] for a in arrays]
    return {"Out": [Leveled(joined)], "OutIndex": [Leveled(np.array(counts, "int32"))]}


not_in_onnx(LISTS, "list_copy", "list_first", "list_get", "list_join", "list_of", "list_put")
