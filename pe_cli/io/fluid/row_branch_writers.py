"""Branches over rows as the original has them: parts of rows, a `conditional_block` for those of each, and what joins them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pe_cli.io.fluid.block_writer import GROUPS, Writer, number_of, write_ops
from pe_cli.io.fluid.operator_writer import Written, writes
from pe_cli.io.fluid.program_desc import STEP_SCOPES
from pe_cli.program.ir import Operator


@writes("split_rows")
def _split(made: Written, op: Operator) -> None:
    made.emit("split_lod_tensor", op.inputs, op.outputs, {"level": 0})


@writes("merge_rows")
def _merge(made: Written, op: Operator) -> None:
    mask = op.inputs["Mask"]
    made.emit("merge_lod_tensor", {"X": mask, **op.inputs}, op.outputs, {"level": 0})


def _parts(made: Written, ops: Sequence[Operator], wanted: Collection[str]) -> Mapping[int, Writer]:
    """Return operators that work on rows of one part, which may have none: each part is a block of its own."""
    found: dict[int, Writer] = {}
    for mask in dict.fromkeys(op.inputs["Mask"][0] for op in ops if op.type == "split_rows"):
        merges = [op for op in ops if op.type == "merge_rows" and op.inputs["Mask"] == [mask] and id(op) not in found]
        sides = [_side(ops, mask, slot) for slot in ("OutTrue", "OutFalse")]
        shared = {id(op) for op in sides[0]} & {id(op) for op in sides[1]}
        if not merges or shared or any(id(op) in found for side in sides for op in side):
            continue
        read = {*wanted, *(n for op in merges for n in op.input_names())}
        found |= {id(op): _nothing for side in sides for op in side}
        found[id(merges[0])] = _blocks([side for side in sides if side], mask, read)
    return found


def _side(ops: Sequence[Operator], mask: str, slot: str) -> list[Operator]:
    """Return the operators between the rows of one part and what joins both."""
    reached, found = set[str](), list[Operator]()
    for op in ops:
        if op.type in {"split_rows", "merge_rows"} and op.inputs["Mask"] == [mask]:
            reached.update(op.outputs.get(slot, ()))
        elif not reached.isdisjoint(op.input_names()):
            found.append(op)
            reached.update(op.output_names())
    return found


def _nothing(made: Written, op: Operator) -> None:
    """Write nothing: the operator is written in a block of its own."""


def _blocks(sides: Sequence[Sequence[Operator]], mask: str, read: Collection[str]) -> Writer:
    """Return what writes the blocks of both parts before the first operator that joins them."""

    def write(made: Written, op: Operator) -> None:
        for side in sides:
            _block(made, side, mask, read)
        _merge(made, op)

    return write


def _block(made: Written, side: Sequence[Operator], mask: str, read: Collection[str]) -> None:
    inner = Written(made.block, made.whole, made, names=dict(made.names), arrays=made.arrays, tables=made.tables)
    made.whole.blocks.append(inner)
    for name in dict.fromkeys(n for op in side for n in op.output_names()):
        v = made.block.var(name)
        if name not in read and not v.persistable:
            made.vars.pop(made.name(name), None)
            inner.declare(v)
    write_ops(inner, side, read)
    outs = inner.writes()
    scope = made.beside(f"{outs[0]}.scope" if outs else "rows.scope", kind=STEP_SCOPES)
    attrs = {"sub_block": number_of(made, inner), "is_scalar_condition": False, "skip_eager_deletion_vars": []}
    made.emit("conditional_block", {"Cond": [mask], "Input": inner.reads()}, {"Out": outs, "Scope": [scope]}, attrs)


GROUPS.append(_parts)
