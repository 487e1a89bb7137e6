"""Arrays of tensors. While the program alone says every place, an array is a list of variables; else it is one tensor of MOST rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import BRANCHES, CLOSED, OPEN, sizes_of
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.dynamic_rnn import levels_of
from pe_cli.paddle.fluid.layers.tensor import assign, fill_constant_batch_size_like
from pe_cli.program.ir import Operator, Variable
from pe_cli.program.outline import Outline
from pe_cli.program.region import regions_of

#: Ops on rows of an array -> those on a list of tensors.
LISTED = {"array_put": "list_put", "array_get": "list_get"}
#: Tensors of an array whose places only a step knows, where nobody says how many.
MOST = 256
#: A number of rows that no size in a program is.
_ROWS = 2_147_483_629


class TensorArray:
    """Variables by index, for `array_write` and `array_read`.

    Args:
        dtype: of the tensors.
        capacity: tensors at most where only a step knows a place; not in the original, whose arrays grow.
        name: of the array, for what is fetched by it.
        open_sizes: a tensor of sizes that only a step knows may be the first one, written in a loop; no gradient flows through such an
            array.

    Attributes:
        items: place -> variable, while the program alone says all places.
        rows: [capacity, ...], all tensors, from the first place on that only a step knows.
        length: int64 [1], one more than the last place that was written; with rows.
        listed: rows is a list of tensors of any sizes, as a loop that goes round on the host writes it.
    """

    def __init__(self, dtype: Any = "float32", capacity: int = MOST, *, open_sizes: bool = False, name: str = "") -> None:
        self.dtype, self.capacity, self.open_sizes = dtype, capacity, open_sizes
        self.name = name or default_main_program().unique("array.of")
        default_main_program().named_arrays[self.name] = self
        self.items: dict[int, Variable] = {}
        self.rows: Variable | None = None
        self.length: Variable | None = None
        self.listed = False
        self._settling: list[Operator] = []

    def settle(self, like: Variable | None) -> Variable:
        """Make one tensor of the array, before all loops that are being written; return it.

        Args:
            like: what is written next; None for a read.

        Raises:
            FluidValueError: nothing was written, or tensors of several types; a ValueError.
            NotThereYet: nothing was written before the loop, and the size of what is written is not known.
        """
        if self.rows is None:
            if CLOSED:
                raise NotThereYet("a while_loop makes an array of variables one tensor", hint="While")
            with raised_as(FluidValueError):
                # Before the loops that are open: memory of the array must exist before the first round.
                made = outside(lambda: self._made(like))
            self.rows, self.length = made
            default_main_program().arrays[self.rows.name] = self
        return self.rows

    def written(self) -> tuple[str, ...]:
        """Return the names of the array's tensors, in order.

        Raises:
            NotThereYet: only a step knows how many there are.
        """
        if self.rows is not None:
            raise NotThereYet(f"'{self.name}', which a loop writes, cannot be fetched", hint="fetch what tensor_array_to_tensor returns")
        return tuple(self.items[i].name for i in sorted(self.items))

    def list(self, loop: Outline) -> None:
        """Make a list of the array's tensors instead, for a loop that goes round on the host.

        Args:
            loop: what is collected, not cut yet.

        Raises:
            NotThereYet: something outside of the loop has read or written the array.
        """
        assert self.rows is not None
        # What `_made` appended is replaced by one op that makes a list: the loop turned out to run on the host.
        block, name = loop.block, self.rows.name
        first = block.ops.index(self._settling[0])
        made = {id(op) for op in self._settling}
        if any(name in (*op.input_names(), *op.output_names()) for op in block.ops[: loop.begin] if id(op) not in made):
            raise NotThereYet("two loops write an array, one of them with beam_search", hint="use an array for each")
        places = sorted(self.items)
        before = len(block.ops)
        attrs = {"places": places, "shape": list(self.rows.shape[1:]), "dtype": self.rows.dtype}
        given = {"X": [self.items[i].name for i in places]} if places else {}
        block.ops[:] = [op for op in block.ops if id(op) not in made]
        block.append_op("list_of", given, {"Out": name}, attrs)
        block.ops.insert(first, block.ops.pop())
        loop.moved_on(len(block.ops) - before, set())
        _list(block.ops[loop.begin :], name)
        self.listed = True

    def _made(self, like: Variable | None) -> tuple[Variable, Variable]:
        block = default_main_program().global_block()
        begin = len(block.ops)
        first = self.items[min(self.items)] if self.items else like
        if first is None:
            raise FluidValueError("nothing was written to the array", hint="write to it before a loop reads it")
        if self.items:
            # Any tensor of the array gives the rows their sizes, which may be known in a step alone.
            many = call("expand", call("unsqueeze", first, [0]), [self.capacity] + [1] * len(first.shape))
            rows = LayerHelper("array").one("fill_like", {"X": many}, {"value": 0.0})
        elif first.type.known:
            rows = call("fill_constant", [self.capacity, *first.shape], first.dtype, 0.0)
        elif (source := _rows_like(first)) is not None:
            shape = [self.capacity, -1, *first.shape[1:]]
            rows = fill_constant_batch_size_like(source[0], shape, first.dtype, 0.0, source[1], 1)
        elif self.open_sizes:
            self.listed = True
            attrs = {"places": [], "shape": list(first.shape), "dtype": first.dtype}
            rows = LayerHelper("array").one("list_of", {}, attrs)
        else:
            message = f"array_write: only a step knows the place, and the size of {first}"
            raise NotThereYet(message, hint="write a tensor of that size to the array before the loop")
        rows.stop_gradient = rows.dtype not in FLOATS
        for place, item in sorted(self.items.items()):
            # Memory is planned for `capacity` rows; a larger place could not be kept.
            if place >= self.capacity:
                raise FluidValueError(f"a tensor at {place}, and room for {self.capacity}", hint="create_array(dtype, capacity)")
            _put(rows, item, call("fill_constant", [1], "int64", float(place)))
        self._settling = block.ops[begin:]
        return rows, call("fill_constant", [1], "int64", float(max(self.items, default=-1) + 1))


def _rows_like(x: Variable) -> tuple[Variable, int] | None:
    """Return a variable from before all loops and branches that has as many rows as one of these has in every round, and its axis of rows.

    None where x has sequences, or another size that is not known, or where no such variable is found.
    """
    begin = min((outline.begin for outline in (*OPEN, *BRANCHES)), default=0)
    if x.shape[:1] != (-1,) or -1 in x.shape[1:] or not begin:
        return None
    block, needed, inside = x.block, {x.name}, list[Operator]()
    for op in reversed(block.ops[begin:]):
        if not needed.isdisjoint(op.output_names()):
            inside.insert(0, op)
            needed.update(op.input_names())
    made = {n for op in inside for n in op.output_names()}
    before = {n for op in block.ops[:begin] for n in op.output_names()}
    around = [block.vars[n] for n in needed if n in before or (n in block.vars and n not in made)]
    # Arrays have their tensors' rows behind their own.
    axes = {v.name: int(v.name in default_main_program().arrays) for v in around if not v.persistable}
    axes = {v.name: axes[v.name] for v in around if v.name in axes and _is_open_at(v, axes[v.name])}
    # All that has rows gets this many of them: what comes out with as many has the rows of one, and others would not fit beside it.
    types = {v.name: v.type.with_shape(*(_ROWS if i == axes.get(v.name) else n for i, n in enumerate(v.shape))) for v in around}
    try:
        for op in inside:
            inferred = block.infer(op, types.__getitem__)
            for slot, names in op.outputs.items():
                types |= dict(zip(names, inferred.get(slot, ()), strict=False))
    except (PeError, LookupError):
        return None
    if types[x.name].shape[:1] != (_ROWS,) or any(levels_of(block.vars[name]) for name in axes):
        return None
    return next(((block.vars[name], axis) for name, axis in axes.items()), None)


def _is_open_at(v: Variable, axis: int) -> bool:
    """Return whether the size of one axis alone is not known."""
    return [i for i, size in enumerate(v.shape) if size == -1] == [axis]


def _list(ops: Sequence[Operator], name: str) -> set[str]:
    """Let operators, also those of branches, read and write a list in place of an array.

    Args:
        ops: in order; changed.
        name: of the array where they begin; a branch gives it another name whenever it writes to it.

    Returns:
        All its names.
    """
    names = {name}
    for op in ops:
        if op.type in LISTED and not names.isdisjoint(op.inputs["Array"]):
            op.type = LISTED[op.type]
            names.update(op.outputs["Out"] if op.type == "list_put" else ())
        elif op.type == "assign" and not names.isdisjoint(op.inputs["X"]):
            op.type, op.inputs = "list_copy", {"Array": op.inputs["X"]}
            names.update(op.outputs["Out"])
        for region in regions_of(op).values():
            for argument, outer in zip(region.args, op.inputs.get("Captured", ()), strict=False):
                if outer in names:
                    inner = _list(region.program.top_ops, argument)
                    names.update(n for n, r in zip(op.outputs["Out"], region.results, strict=False) if r in inner)
    return names


def outside(made: Any) -> Any:
    """Return what a function makes with ops that belong before all loops and branches that are being written."""
    outlines = sorted([*OPEN, *BRANCHES], key=lambda outline: outline.begin)
    if not outlines:
        return made()
    block = outlines[0].block
    ops, names = len(block.ops), set(block.vars)
    found = outlines[0].outside(made)
    for other in outlines[1:]:
        other.moved_on(len(block.ops) - ops, set(block.vars) - names)
    return found


def _put(rows: Variable, x: Variable, place: Variable, *, listed: bool = False) -> None:
    LayerHelper("array").op("list_put" if listed else "array_put", {"Array": rows, "X": x, "Index": place}, {}, (), {"Out": rows})


def create_array(dtype: Any, capacity: int = MOST) -> TensorArray:
    """Return an empty array of tensors; see `TensorArray`."""
    return TensorArray(dtype, capacity, open_sizes=True, name=f"{LayerHelper('array').name}.out")


def _known(layer: str, i: Any) -> int | None:
    """Return a place, None where only a step knows it."""
    try:
        return int(sizes_of(layer, "i", i, single=True))
    except NotThereYet:
        return None


def _variable(i: Any) -> Variable:
    return i if isinstance(i, Variable) else call("fill_constant", [1], "int64", float(i))


def array_write(x: Variable, i: Any, array: TensorArray | None = None) -> TensorArray:
    """Put a copy of a tensor at a place of an array and return the array."""
    array = array or TensorArray(x.dtype, open_sizes=True, name=f"{LayerHelper('array_write').name}.out")
    place = _known("array_write", i)
    # A place that the program knows, outside of loops: the array stays a list of variables, and costs nothing.
    if place is not None and array.rows is None and not OPEN and not BRANCHES and not CLOSED:
        array.items[place] = call("assign", x)
        return array
    # Inside a loop, or at a place that only a step knows: the array becomes rows of one tensor from here on.
    rows, at = array.settle(x), _variable(i)
    assert array.length is not None
    with raised_as(FluidValueError):
        _put(rows, x, at, listed=array.listed)
    after = call("scale", at if at.dtype == "int64" else call("cast", at, "int64"), 1.0, 1.0)
    # A later write to an earlier place does not shorten the array.
    call("assign", call("elementwise_max", array.length, after), array.length)
    return array


def array_read(array: TensorArray, i: Any) -> Any:
    """Return the tensor at a place of an array.

    Raises:
        FluidValueError: there is none; a ValueError.
    """
    place = _known("array_read", i)
    if place is not None and array.rows is None:
        if place in array.items:
            return call("assign", array.items[place])
        if not OPEN:
            raise FluidValueError(f"nothing was written at {place} of the array")
    kind = "list_get" if array.listed else "array_get"
    return LayerHelper("array").one(kind, {"Array": array.settle(None), "Index": _variable(i)})


def begun_with(x: Variable) -> TensorArray:
    """Return an array whose first tensor is a copy of a variable, made before all loops that are being written."""
    array = TensorArray(x.dtype)
    array.items[0] = outside(lambda: call("assign", x))
    return array


def first_of(array: TensorArray, count: Variable) -> TensorArray:
    """Return the first tensors of an array that a While with beam_search has written; of another one all."""
    if not array.listed:
        return array
    found = TensorArray(array.dtype)
    found.rows, found.listed = LayerHelper("array").one("list_first", {"Array": array.rows, "Count": count}), True
    return found


def array_length(array: TensorArray) -> Any:
    """Return one more than the last place that was written, int64 [1]."""
    if array.length is not None:
        return call("assign", array.length)
    return call("fill_constant", [1], "int64", max(array.items, default=-1) + 1)


def tensor_array_to_tensor(input: TensorArray, axis: int = 1, name: str | None = None, use_stack: bool = False) -> tuple[Any, Any]:
    """Join the tensors of an array along an axis, a new one with use_stack; return their own sizes along it, [tensors] int32, too.

    Raises:
        FluidValueError: the tensors have no such axis; a ValueError.
    """
    if input.listed:
        with raised_as(FluidValueError):
            inputs, attrs = {"Array": input.rows}, {"axis": axis, "use_stack": use_stack}
            joined, sizes = LayerHelper("array").op("list_join", inputs, attrs, ("Out", "OutIndex"))
        return joined, sizes
    if input.rows is not None:
        return _joined(input, axis, use_stack)
    parts = [input.items[i] for i in sorted(input.items)]
    joined = call("stack", parts, axis) if use_stack else call("concat", parts, axis)
    return joined, assign(np.array([v.shape[axis] if axis < len(v.shape) else 1 for v in parts], "int32"))


def _joined(array: TensorArray, axis: int, use_stack: bool) -> tuple[Any, Any]:
    """Join the tensors of an array whose length only a step knows."""
    assert array.rows is not None
    helper = LayerHelper("array")
    rows = helper.one("first_rows", {"X": array.rows, "Count": array.length})
    rank = len(rows.shape)
    # A new axis may stand behind the last one; otherwise the rows' own axes count.
    axis %= rank if use_stack else rank - 1
    size = rows.shape[axis + 1] if axis + 1 < rank and not use_stack else 1
    if size < 1:  # a step knows it, as that of a batch
        part = call("slice", call("shape", array.rows), [0], [axis + 1], [axis + 2])
        sizes = call("expand", call("cast", part, "int32"), [array.capacity])
    else:
        sizes = call("fill_constant", [array.capacity], "int32", float(size))
    found = helper.one("first_rows", {"X": sizes, "Count": array.length})
    joined = call("transpose", rows, [*range(1, axis + 1), 0, *range(axis + 1, rank)]) if axis else rows
    if not use_stack:
        kept = [0] * axis
        joined = call("reshape", joined, [*kept, -1, *rows.shape[axis + 2 :]])
    return joined, found


__all__ = [
    "TensorArray", "array_length", "array_read", "array_write", "begun_with", "create_array", "first_of", "outside",
    "tensor_array_to_tensor",
]  # fmt: skip
