"""Sequences of values whose lengths are known: they are no values of the model, and what reads one of their items reads that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Size, Unimportable, Value, known

#: Items of a sequence.
MOST_ITEMS = 1_000


@form("SequenceConstruct")
def construct(node: Node) -> Value:
    return _sequence([node.value(i) for i in range(len(node.values))])


@form("SequenceEmpty")
def empty(node: Node) -> Value:
    node.attr("dtype")
    return _sequence([])


@form("SequenceLength")
def length(node: Node) -> Value:
    return Value("int64", constant=np.asarray(len(_items(node))))


@form("SequenceAt")
def item(node: Node) -> Value:
    items = _items(node)
    return items[_place(node, 1, len(items), 0)]


@form("SequenceInsert")
def insert(node: Node) -> Value:
    items = list(_items(node))
    items.insert(_place(node, 2, len(items), 1) if node.has(2) else len(items), node.value(1))
    return _sequence(items)


@form("SequenceErase")
def erase(node: Node) -> Value:
    items = list(_items(node))
    del items[_place(node, 1, len(items), 0) if node.has(1) else -1]
    return _sequence(items)


@form("SplitToSequence")
def split(node: Node) -> Value:
    """Return parts of a value along an axis, or places along it where nothing says how large they are.

    Raises:
        Unimportable: the size of the axis is not known, or the sizes of parts do not add up to it.
    """
    axis = node.axis(0)
    size, keeps = node.shape(0)[axis], bool(node.attr("keepdims", 1))
    if not isinstance(size, int):
        raise Unimportable("it cuts an axis whose size is not known")
    sizes, drops = _sizes(node, size), not keeps and not node.has(1)
    x = node.value(0) if node.value(0).settled is not None else node.var(0)
    parts, start = [], 0
    for i, each in enumerate(sizes):
        dims = [each if a == axis else one for a, one in enumerate(x.shape)]
        if x.constant is not None:
            part = np.take(x.constant, range(start, start + each), axis)
            parts.append(Value(x.dtype, constant=part.squeeze(axis) if drops else part))
        else:
            made = node.mid("slice", f"part_{i}", input=x, axes=[axis], starts=[start], ends=[start + each], dims=dims)
            parts.append(node.reshaped(made, [*dims[:axis], *dims[axis + 1 :]], f"row_{i}") if drops else made)
        start += each
    return _sequence(parts)


def _sizes(node: Node, size: int) -> list[int]:
    """Return the sizes of parts: each its own, all the same but for the last one, or 1."""
    if not node.has(1):
        sizes = [1] * size
    else:
        given = node.const(1, "the sizes of parts")
        sizes = [int(one) for one in given.reshape(-1)]
        if given.ndim == 0:
            sizes = [min(sizes[0], size - at) for at in range(0, size, max(1, sizes[0]))]
    if min(sizes, default=0) < 1 or sum(sizes) != size:
        raise Unimportable(f"it cuts {size} into {sizes[:20]}")
    return sizes


@form("ConcatFromSequence")
def join(node: Node) -> Value:
    """Set the items of a sequence one behind the other, along an axis of theirs or a new one.

    Raises:
        Unimportable: there are none, or they have several numbers of axes.
    """
    items = _items(node)
    if not items:
        raise Unimportable("it joins no values")
    adds = int(bool(node.attr("new_axis", 0)))
    rank, axis = items[0].rank + adds, int(node.attr("axis", 0))
    if not -rank <= axis < rank or any(one.rank != items[0].rank for one in items):
        raise Unimportable(f"axis {axis} is none of {rank} axes, or values have several numbers of axes")
    axis %= rank
    constants = [one.settled for one in items if one.settled is not None]
    if len(constants) == len(items):
        made = np.stack(constants, axis) if adds else np.concatenate(constants, axis)
        return Value(items[0].dtype, constant=made)
    if not adds:
        return node.by("Concat", items, "joined", axis=axis)
    rows = [_with_axis(node, node.emitter.variable(one, f"{node.key}_{i}"), axis, i) for i, one in enumerate(items)]
    return node.by("Concat", rows, "stacked", axis=axis)


def _with_axis(node: Node, value: Value, axis: int, number: int) -> Value:
    shape: Sequence[Size] = value.shape
    return node.reshaped(value, [*shape[:axis], 1, *shape[axis:]], f"row_{number}")


def _items(node: Node) -> Sequence[Value]:
    """Return the items of the first input.

    Raises:
        Unimportable: it is no sequence.
    """
    found = node.value(0).items
    if found is None:
        raise Unimportable(f"it reads a sequence, and is given {list(known(node.shape(0)))}")
    return found


def _place(node: Node, index: int, count: int, behind: int) -> int:
    """Return which item an input names, counted from the first; with `behind`, one after the last, too."""
    place = int(node.const(index, "the number of an item").reshape(-1)[0])
    if not -count <= place < count + behind:
        raise Unimportable(f"it names item {place} of {count}")
    return place + count if place < 0 else place


def _sequence(items: Sequence[Value]) -> Value:
    if len(items) > MOST_ITEMS:
        raise Unimportable(f"it has {len(items):,} items, and a sequence has {MOST_ITEMS:,} at most")
    if any(one.items is not None for one in items):
        raise Unimportable("it is a sequence of sequences")
    return Value("sequence", items=tuple(items))
