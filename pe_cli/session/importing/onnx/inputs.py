"""What users say of a graph's inputs: sizes that the file leaves open, numbers that never change, and where the batch lies."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.io.tensors import data_error
from pe_cli.session.importing.define import ImportWish
from pe_cli.session.importing.onnx import file as onnx_file
from pe_cli.session.importing.onnx.emit import Emitter
from pe_cli.session.importing.onnx.values import BATCH, NeedsConstant, Size, Symbol, Value, known

#: What a size is called that users say to be the batch's.
_BATCH = "batch@pe"
#: What is said of a node that needs sizes which are not there.
_OPEN = re.compile(r"\bnot known\b|known only in a step")
#: Elements of an input that becomes a constant.
_MOST_ELEMENTS = 1 << 20


def as_wished(model: Any, wish: ImportWish) -> Any:
    """Return a model whose inputs have the sizes and numbers that a wish says; the same where it says none.

    Raises:
        PeError: USAGE; there is no such input, or it cannot be so.
    """
    if not wish.shapes and not wish.constants:
        return model
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    given = {one.name: one for one in onnx_file.fed(made)}
    for name in (*wish.shapes, *wish.constants):
        if name not in given:
            raise PeError(f"the file has no input '{name}'", hint=did_you_mean(name, list(given)) or f"it has {_listed(given.values())}")
    named = {name for one, sizes in wish.shapes.items() for name in _put_sizes(given[one], sizes)}
    if any(None in sizes for sizes in wish.shapes.values()):
        for name, one in given.items():
            if name not in wish.shapes:
                _put_batch(one, named)
        # Where the file says 1 of an output, it may be the batch that it was written for.
        for dim in (dim for one in made.graph.output for dim in one.type.tensor_type.shape.dim):
            if dim.dim_value == 1:
                dim.ClearField("value")
    for name, number in wish.constants.items():
        _put_number(made, given[name], number)
    return made


def _put_sizes(given: Any, sizes: Sequence[int | None]) -> set[str]:
    """Give an input sizes; None is that of the batch. Return what the file calls it."""
    named: set[str] = set()
    dims = given.type.tensor_type.shape.dim
    hint = f"it is {_listed([given])}"
    if len(dims) != len(sizes):
        raise PeError(f"--shape {given.name}: it has {len(dims)} axes in the file, and {len(sizes)} are said", hint=hint)
    for axis, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        fixed = dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
        if fixed is not None and size != fixed and not (size is None and fixed == 1):
            said = "N" if size is None else size
            raise PeError(f"--shape {given.name}: its axis {axis} is {fixed} in the file, and not {said}", hint=hint)
        if size is None:
            named |= {dim.dim_param} - {""}
            dim.dim_param = _BATCH
        else:
            dim.dim_value = size
    return named


def _put_batch(given: Any, named: Collection[str]) -> None:
    """Mark the batch of an input of which users say nothing: what is named so elsewhere, else a first axis that is open or 1."""
    dims = given.type.tensor_type.shape.dim
    own = next((dim for dim in dims if dim.dim_param in named), None)
    if own is None and len(dims) and (not dims[0].HasField("dim_value") or dims[0].dim_value in (-1, 1)):
        own = dims[0]
    if own is not None:
        own.dim_param = _BATCH


def _put_number(model: Any, given: Any, number: float) -> None:
    """Make an input a constant of one number."""
    import onnx

    kind = given.type.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
    if min(sizes, default=1) < 0 or np.prod(sizes, dtype=np.float64) > _MOST_ELEMENTS:
        text = f"--constant {given.name}: it is {_listed([given])}, and a constant needs sizes that are known"
        raise PeError(text, hint=f"--shape {given.name}=... says them")
    try:
        own = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        with np.errstate(all="ignore"):
            array = np.full(sizes, number).astype(own)
    except (KeyError, TypeError, ValueError):
        own = np.dtype(object)
    if own.kind == "O":  # texts, and what is no type
        raise PeError(f"--constant {given.name}: no number is of its type")
    if own.kind in "iub" and not np.array_equal(array, np.full(sizes, number)):
        raise PeError(f"--constant {given.name}: {number:g} is none of the numbers of its type, {own.name}")
    model.graph.input.remove(given)
    made = onnx.helper.make_node("Constant", [], [given.name], value=onnx.numpy_helper.from_array(array, given.name))
    model.graph.node.insert(0, made)


def batch_axes(model: Any) -> dict[str, int]:
    """Return where the batch lies in inputs: input -> axis; empty where nothing says it.

    It is the size that users have said to be the batch's. Else all inputs begin with it, or it is called as the first axis of the first
    input, and others have it further behind.
    """
    shapes = {given.name: [dim.dim_param for dim in given.type.tensor_type.shape.dim] for given in onnx_file.fed(model)}
    shapes = {name: shape for name, shape in shapes.items() if shape}
    said = {name: shape.index(_BATCH) for name, shape in shapes.items() if _BATCH in shape}
    if said:
        return said
    if onnx_file.batched(model):
        return dict.fromkeys(shapes, 0)
    wanted = next((shape[0] for shape in shapes.values()), "")
    once = bool(wanted) and all(shape.count(wanted) == 1 for shape in shapes.values())
    return {name: shape.index(wanted) for name, shape in shapes.items()} if once else {}


def is_said(model: Any) -> bool:
    """Tell whether users have said where the batch lies."""
    return any(dim.dim_param == _BATCH for given in onnx_file.fed(model) for dim in given.type.tensor_type.shape.dim)


def notes(model: Any, axes: Mapping[str, int]) -> list[str]:
    """Return what users are told of where the batch lies, where they have not said it."""
    return [] if not axes or any(axes.values()) or is_said(model) else onnx_file.batch_notes(model)


def declared(path: Path, model: Any, emitter: Emitter, axes: Mapping[str, int]) -> dict[str, Value]:
    """Declare the feeds of a graph, which begin with the batch where there is one; return its inputs.

    Raises:
        PeError: DATA; one is no tensor, of a type that no feed has, or larger than a value may be.
    """
    found: dict[str, Value] = {}
    for given in onnx_file.fed(model):
        kind = given.type.tensor_type
        if not given.type.HasField("tensor_type") or not kind.HasField("shape"):
            raise data_error(f"{path}: the input '{given.name}' is no tensor with a known number of axes")
        said, dtype = onnx_file.element_type(kind.elem_type)
        if not dtype:
            raise data_error(f"{path}: the input '{given.name}' is {said}, which no feed can be")
        if said != dtype and said not in ("float", "double"):
            emitter.note(f"the input '{given.name}' is {said} in the file and {dtype} here")
        batch, dims = axes.get(given.name), _sizes(given)
        if batch is not None:
            dims[batch] = BATCH
        if any(size == 0 for size in dims):
            raise NeedsConstant(given.name, "an input without elements")
        if len(dims) > onnx_file.MOST_AXES or math.prod(s for s in dims if isinstance(s, int)) > onnx_file.MOST_ELEMENTS:
            raise data_error(f"{path}: the input '{given.name}' says to be {known(tuple(dims[: onnx_file.MOST_AXES]))}")
        front, back = turned(batch or 0, len(dims)) if batch else (range(len(dims)), [])
        value = emitter.feed(given.name, [dims[axis] for axis in front], dtype, batch=batch is not None)
        if batch:
            emitter.note(f"the input '{given.name}' has the batch as its axis {batch} in the file, and as its first one here")
            value = emitter.layer("transpose", f"{value.variable}_as_in_file", {"x": value, "perm": back}, dims)
        found[given.name] = Value(dtype, variable=value.variable, dims=value.dims, said=said)
    return found


def _sizes(given: Any) -> list[Size]:
    """Return the sizes of an input; symbols for those that the file leaves open."""
    found: list[Size] = []
    for axis, dim in enumerate(given.type.tensor_type.shape.dim):
        known = dim.HasField("dim_value") and dim.dim_value >= 0
        found.append(dim.dim_value if known else Symbol(dim.dim_param or f"{given.name}:{axis}"))
    return found


def batch_first(emitter: Emitter, name: str, key: str | None, value: Value, last: bool) -> Value:
    """Return an output with the batch as its first axis, along which what devices have computed is joined.

    Args:
        emitter: of the model.
        name: of the output in the file.
        key: the name that is kept for its layer; None for none.
        value: a variable.
        last: nothing else reads it.
    """
    if BATCH not in value.dims[1:] or value.dims[0] == BATCH or value.dims.count(BATCH) > 1:
        return value
    axis = value.dims.index(BATCH)
    front, _ = turned(axis, len(value.dims))
    emitter.note(f"the output '{name}' has the batch as its axis {axis} in the file, and as its first one here")
    if value.variable == key and last and key is not None:
        value = emitter.move(value, f"{key}_as_in_file")
    return emitter.layer("transpose", key or "output", {"x": value, "perm": front}, [value.dims[one] for one in front], own=key is not None)


def remedy(model: Any, axes: Mapping[str, int], error: PeError) -> str | None:
    """Return what users may say of inputs so that a node is not in the way; None where nothing of inputs is.

    Args:
        model: of ONNX's own class.
        axes: input -> axis of the batch.
        error: why the node has no layer.
    """
    plain = next((given.name for given in onnx_file.fed(model) if not len(given.type.tensor_type.shape.dim)), None)
    if isinstance(error, NeedsConstant) and plain is not None:
        return f"--constant {plain}=NUMBER if '{plain}' is always the same"
    if not isinstance(error, NeedsConstant) and not _OPEN.search(error.message):
        return None
    for given in onnx_file.fed(model):
        at, sizes = axes.get(given.name, -1), _sizes(given)
        if any(isinstance(size, Symbol) for axis, size in enumerate(sizes) if axis != at):
            texts = ["N" if axis == at else "SIZE" if isinstance(size, Symbol) else str(size) for axis, size in enumerate(sizes)]
            return f"--shape {given.name}={','.join(texts)} says sizes that the file leaves open"
    return None


def _listed(given: Iterable[Any]) -> str:
    """Return inputs as users say their sizes, those that the file leaves open by their names."""
    texts = []
    for one in given:
        dims = one.type.tensor_type.shape.dim
        sizes = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param.replace(_BATCH, "N") or "?" for dim in dims]
        texts.append(f"{one.name}={','.join(sizes)}")
    return "; ".join(texts) or "none"


def turned(axis: int, rank: int) -> tuple[list[int], list[int]]:
    """Return the order of axes that brings one to the front, and the one that brings it back.

    >>> turned(1, 3)
    ([1, 0, 2], [1, 0, 2])
    >>> turned(2, 3)
    ([2, 0, 1], [1, 2, 0])
    """
    front = [axis, *(one for one in range(rank) if one != axis)]
    return front, [front.index(one) for one in range(rank)]
