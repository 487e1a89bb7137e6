"""Blocks of a file: what writes the operators of one, and of the regions of loops and branches as further blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pe_cli.io.fluid.fused_writers import Fused
from pe_cli.io.fluid.operator_writer import WRITERS, NotWritten, Written, forms
from pe_cli.io.fluid.program_desc import BlockNumber, VarDesc
from pe_cli.program.ir import Operator, Variable
from pe_cli.program.region import Region, given, regions_of

#: What writes one operator.
Writer = Callable[[Written, Operator], None]
#: What finds operators of a block that are written together: number of an operator -> what writes it.
GROUPS: list[Callable[[Written, Sequence[Operator], Collection[str]], Mapping[int, Writer]]] = []
#: Operators that read arrays of tensors as such.
TAKE_ARRAYS = {"array_put", "array_get", "list_put", "list_get", "list_copy", "list_first", "list_join"}
_GIVE_ARRAYS = {"array_put", "list_put", "list_copy", "list_first", "list_of"}


def skip(made: Written, op: Operator) -> None:
    """Write nothing: another operator of the group says what this one does."""
    for name in op.output_names():
        made.vars.pop(made.name(name), None)


def arrays_of(ops: Iterable[Operator]) -> set[str]:
    """Return the names that operators use as arrays of tensors."""
    found: set[str] = set()
    for op in ops:
        if op.type in TAKE_ARRAYS:
            found.update(op.inputs["Array"])
        if op.type in _GIVE_ARRAYS or op.type == "while":
            found.update(op.outputs.get("Out", ()))
        for region in regions_of(op).values():
            inner, outer = arrays_of(region.block.ops), given(op, region)
            found.update(outer[arg] for arg in region.args if arg in inner)
            results = op.outputs.get("Final", ()) if op.type != "cond" else op.outputs.get("Out", ())
            found.update(name for name, result in zip(results, region.results, strict=False) if result in inner)
    return found


def write_ops(made: Written, ops: Sequence[Operator], wanted: Collection[str]) -> None:
    """Append operators; what cannot be written is counted in `made.whole.lost`.

    Args:
        made: gets them.
        ops: of the block, in order.
        wanted: names that are read from outside.
    """
    made.wanted = wanted
    written: dict[int, Writer] = {}
    for find in GROUPS:
        written |= find(made, [op for op in ops if id(op) not in written], wanted)
    fused = Fused(ops, wanted)
    for op in ops:
        try:
            if id(op) in written:
                written[id(op)](made, op)
            elif not fused.write(made, op):
                _append(made, op)
        except NotWritten as error:
            made.whole.lost[error.message] += 1


def _append(made: Written, op: Operator) -> None:
    write = WRITERS.get(op.type)
    if write is None and op.type not in forms():
        raise NotWritten(op.type)
    if op.type not in TAKES and any(name in made.arrays for name in (*op.input_names(), *op.output_names())):
        raise NotWritten(f"{op.type} of an array of tensors")
    if write is not None:
        write(made, op)
    else:
        made.same(op)


#: Operators whose writers know what to do with arrays of tensors.
TAKES: set[str] = set(TAKE_ARRAYS)


def takes_arrays(*types: str) -> Callable[[Writer], Writer]:
    """Say that the writer of these types knows what to do with arrays of tensors; a decorator."""
    TAKES.update(types)
    return lambda fn: fn


# --- regions --------------------------------------------------------------------------------------------------------


def enter(made: Written, region: Region, names: Mapping[str, str], *, same_block: bool = False) -> Written:
    """Return what the operators of a region are written to.

    Args:
        made: the block around.
        region: of an operator of it.
        names: argument -> name in the file.
        same_block: they are written to the block itself, and not to one of their own.
    """
    inner = Written(region.block, made.whole, made.outer if same_block else made, names=dict(names))
    if same_block:
        inner.ops, inner.vars, inner.tables = made.ops, made.vars, made.tables
    else:
        inner.tables = dict(made.tables)
        made.whole.blocks.append(inner)
    inner.arrays = arrays_of(region.block.ops)
    for v in region.block.vars.values():
        # A name of the block around would be that variable.
        if v.name not in names and made.sees(v.name):
            inner.names[v.name] = made.fresh(v.name)
    return inner


def write_region(inner: Written, region: Region, targets: Sequence[tuple[str, str, str | None]]) -> None:
    """Append the operators of a region, and what lets variables of the blocks around have its results.

    Args:
        inner: from `enter`.
        region: the same.
        targets: result, name in the file of the variable that gets it, and argument that stands for the value of that until then.
    """
    block, rest = region.block, []
    results = [result for result, _, _ in targets]
    for result, name, arg in targets:
        if results.count(result) == 1 and _in_place(block.ops, result, arg):
            inner.names[result] = name
        else:
            rest.append((result, name))
    placed = {result for result, _, _ in targets} - {result for result, _ in rest}
    for v in block.vars.values():
        if v.name not in region.args and v.name not in placed and v.name not in inner.arrays:
            inner.declare(v)
    write_ops(inner, block.ops, region.results)
    for result, name in rest:
        inner.emit("assign", {"X": [result]}, {"Out": [name]})


#: Operators that may write the variable that they read.
_SAFE = {
    "assign", "greater_equal", "greater_than", "increment", "less_equal", "less_than", "logical_and", "logical_not", "logical_or", "scale",
}  # fmt: skip


def _in_place(ops: Sequence[Operator], result: str, arg: str | None) -> bool:
    """Return whether the operator that makes a result can write it over the value of an argument."""
    number, maker = next(((i, op) for i, op in enumerate(ops) if result in op.output_names()), (-1, None))
    if maker is None or arg is None:
        return maker is not None
    own = arg in maker.input_names() and maker.type not in _SAFE and not _hands_on(maker, arg, result)
    return not own and all(arg not in op.input_names() for op in ops[number + 1 :])


def _hands_on(op: Operator, arg: str, result: str) -> bool:
    """Return whether an argument is a state of a loop, and a result what becomes of it."""
    inits, finals = op.inputs.get("Init", []), op.outputs.get("Final", [])
    return op.input_names().count(arg) == 1 and (arg, result) in zip(inits, finals, strict=False)


def number_of(made: Written, inner: Written) -> BlockNumber:
    """Return the number of a block of the file."""
    return BlockNumber(next(i for i, block in enumerate(made.whole.blocks) if block is inner))


def same_kind(made: Written, name: str, like: Variable) -> str:
    """Return a name for a variable of the type of another one."""
    found = made.fresh(name)
    made.vars[found] = VarDesc(found, shape=tuple(like.shape) or (1,), dtype=like.dtype, lod_level=like.lod_level)
    return found
