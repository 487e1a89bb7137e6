"""A DynamicRNN over sequences of sequences as the original has it: a `while` in whose rounds an inner sequence of each is at hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.block_writer import GROUPS, Writer, skip, write_ops
from pe_cli.io.fluid.dynamic_rnn_writers import Rounds, table_of
from pe_cli.io.fluid.operator_writer import Written
from pe_cli.program.ir import Operator


@dataclass
class _Nested(Rounds):
    """What is computed with the inner sequences of all rounds at once here.

    Attributes:
        ops: that do, in order.
        ends: operators that put the outer sequences around results again.
    """

    ops: list[Operator] = field(default_factory=list)
    ends: list[Operator] = field(default_factory=list)

    def run(self, made: Written, op: Operator) -> None:
        """Append the loop and its first result."""
        self.begin(made)
        inner = Written(made.block, made.whole, made, names=dict(made.names), arrays=made.arrays, tables=made.tables)
        made.whole.blocks.append(inner)
        for name in dict.fromkeys(n for each in self.ops for n in each.output_names()):
            made.vars.pop(made.name(name), None)
            inner.declare(made.block.var(name))
        body = []
        for each in self.ops:
            out = each.outputs["Out"][0] if each.outputs.get("Out") else ""
            if each.type == "nest_sequences":
                self.steps_of(made, out, each.inputs["X"][0])
                inner.emit("read_from_array", {"X": [self.arrays[out]], "I": [self.counter]}, {"Out": [out]})
            elif _is_static(each, self.of[0]):
                self._static(made, inner, each.inputs["X"][0], out)
            else:
                body.append(each)
        write_ops(inner, body, [end.inputs["X"][0] for end in self.ends])
        for end in self.ends:
            self.collect(made, inner, end.outputs["Out"][0], end.inputs["X"][0])
        self.close(made, inner)
        self.result(made, op)

    def result(self, made: Written, op: Operator) -> None:
        """Append what makes sequences of one result."""
        out = op.outputs["Out"][0]
        self.collected(made, out, out)

    def _static(self, made: Written, inner: Written, name: str, out: str) -> None:
        v = made.block.var(name)
        ordered = made.beside(f"{name}.ordered", v.dtype, tuple(v.shape))
        made.emit("reorder_lod_tensor_by_rank", {"X": [name], "RankTable": [table_of(made, *self.of)]}, {"Out": [ordered]})
        self.shrink(made, inner, ordered, out)


def _is_static(op: Operator, of: str) -> bool:
    return op.type == "sequence_expand" and op.inputs["Y"] == [of] and op.attrs["ref_level"] == 0


def _nested(made: Written, ops: Sequence[Operator], wanted: Collection[str]) -> Mapping[int, Writer]:
    """Return operators between inner sequences and results that have the outer ones around them again."""
    found: dict[int, Writer] = {}
    for of in dict.fromkeys(op.inputs["Y"][0] for op in ops if op.type == "nest_sequences" and op.inputs.get("Y")):
        ends = [op for op in ops if op.type == "nest_sequences" and op.inputs.get("Y") == [of]]
        inside = _between(ops, of, ends)
        made_inside = {n for op in inside for n in op.output_names()}
        written = {id(op) for op in (*inside, *ends)}
        others = [op for op in ops if id(op) not in written]
        alone = made_inside.isdisjoint({*wanted, *(n for op in others for n in op.input_names())})
        # One loop stands before its first result: all of it has to be there by then.
        last = max((i for i, op in enumerate(ops) if any(op is one for one in inside)), default=-1)
        if inside and alone and last < next(i for i, op in enumerate(ops) if op is ends[0]):
            nested = _Nested((of, 0), ops=inside, ends=ends)
            found |= {id(op): skip for op in inside} | {id(op): nested.result for op in ends} | {id(ends[0]): nested.run}
    return found


def _between(ops: Sequence[Operator], of: str, ends: Sequence[Operator]) -> list[Operator]:
    """Return the operators that work on inner sequences and that results need."""
    reached: set[str] = set()
    for op in ops:
        begins = (op.type == "nest_sequences" and not op.inputs.get("Y")) or _is_static(op, of)
        if begins or (op.type != "nest_sequences" and not reached.isdisjoint(op.input_names())):
            reached.update(op.output_names())
    needed, found = {n for op in ends for n in op.inputs["X"]}, list[Operator]()
    for op in reversed(ops):
        if all(op is not end for end in ends) and not (needed & reached).isdisjoint(op.output_names()):
            found.insert(0, op)
            if op.type != "nest_sequences":
                needed.update(op.input_names())
    return found


GROUPS.append(_nested)
