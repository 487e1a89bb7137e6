"""Loops of the original: `while`, `recurrent` (a StaticRNN), and the `while` that a DynamicRNN is."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.control.loops import Scan
from pe_cli.paddle.fluid.constant_sizes import OPEN
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.control_flow import While
from pe_cli.paddle.fluid.layers.dynamic_rnn import (
    DynamicRNN,
    RankTable,
    lod_rank_table,
    max_sequence_len,
    reorder_lod_tensor_by_rank,
)
from pe_cli.paddle.fluid.layers.tensor_arrays import TensorArray
from pe_cli.paddle.fluid.original_blocks.arrays import read_from_array
from pe_cli.paddle.fluid.original_blocks.reading import READERS, Inner, name_of, reads_block
from pe_cli.program.ir import Variable


@dataclass(frozen=True)
class Steps:
    """The steps of sequences, the longest sequence first: what a DynamicRNN goes through."""

    of: Variable
    table: RankTable


@dataclass(frozen=True)
class Collected:
    """What a DynamicRNN has collected, as sequences in the order that they have outside."""

    rows: Variable


@reads_block("while")
def _while(o: Inner) -> None:
    index = o.sub_block()
    ops = o.blocks.descs[index].ops
    if any(op.type == "read_from_array" and isinstance(o.blocks.arrays.get(op.inputs["X"][0]), Steps) for op in ops):
        _Dynamic(o, index).run()
        return
    loop = While(o.one("Condition"))
    with o.blocks.inside(), loop.block():
        o.blocks.read(index)


@reads_block("recurrent")
def _recurrent(o: Inner) -> None:
    blocks, attrs = o.blocks, o.op.attrs
    inputs, starts = o.names("inputs"), o.names("initial_states")
    before, after = ([str(n) for n in attrs.get(name, [])] for name in ("ex_states", "states"))
    if not inputs or not len(before) == len(after) == len(starts):
        raise PeError(f"it has {len(inputs)} inputs and {len(starts)} states, which are {len(before)} and {len(after)} names inside")
    desc = blocks.descs[o.index].ops[o.number]
    loop = Scan(o.block)
    OPEN.append(loop.outline)
    try:
        with blocks.inside():
            for name, x in zip(desc.inputs["inputs"], inputs, strict=True):
                blocks.names[name] = loop.input(o.block.var(x)).name
            held = [loop.state(o.block.var(name)) for name in starts]
            blocks.names.update(zip(before, (v.name for v in held), strict=True))
            blocks.read(o.sub_block())
            for state, name in zip(held, after, strict=True):
                loop.update(state, blocks.now(name))
            for name in desc.outputs["outputs"]:
                loop.output(blocks.now(name))
    finally:
        OPEN.pop()
    outs, _ = loop.close(backwards=o.attr("reverse", False))
    for name, v in zip(desc.outputs["outputs"], outs, strict=True):
        o.block.rename_var(v.name, name, o.begin)


@reads_block("rnn_memory_helper")
def _helper(o: Inner) -> None:
    desc = o.blocks.descs[o.index].ops[o.number]
    o.blocks.names[desc.outputs["Out"][0]] = o.one("X").name


# --- DynamicRNN -----------------------------------------------------------------------------------------------------


def _table(o: Inner) -> RankTable:
    name = o.raw("RankTable")
    if name not in o.blocks.tables:
        raise PeError(f"'{name}' is no table of a lod_rank_table")
    found: RankTable = o.blocks.tables[name]
    return found


@reads_block("lod_rank_table")
def _rank_table(o: Inner) -> None:
    o.blocks.tables[o.raw("Out", outputs=True)] = lod_rank_table(o.one("X"), int(o.attr("level", 0)))


@reads_block("max_sequence_len")
def _longest(o: Inner) -> None:
    o.give("Out", max_sequence_len(_table(o)))


@reads_block("lod_tensor_to_array")
def _to_array(o: Inner) -> None:
    o.blocks.arrays[o.raw("Out", outputs=True)] = Steps(o.one("X"), _table(o))


@reads_block("reorder_lod_tensor_by_rank")
def _reorder(o: Inner) -> None:
    o.give("Out", reorder_lod_tensor_by_rank(o.one("X"), _table(o)))


@reads_block("array_to_lod_tensor")
def _to_tensor(o: Inner) -> None:
    found = o.blocks.arrays.get(o.raw("X"))
    if not isinstance(found, Collected):
        raise PeError(f"'{o.raw('X')}' is no array that a DynamicRNN has collected")
    name_of(o.blocks, o.raw("Out", outputs=True), found.rows)


def _read_any(o: Inner) -> None:
    """Read a tensor of an array; of the steps of sequences the first one, by which a DynamicRNN makes its memories."""
    found = o.blocks.arrays.get(o.raw("X"))
    if not isinstance(found, Steps):
        read_from_array(o)
        return
    ordered = reorder_lod_tensor_by_rank(found.of, found.table)
    padded, _ = call("sequence_pad", ordered, call("fill_constant", [1], found.of.dtype, 0.0))
    o.give("Out", call("squeeze", call("slice", padded, [1], [0], [1]), [1]))


READERS["read_from_array"] = _read_any


class _Dynamic:
    """A `while` that goes through the steps of sequences, as a DynamicRNN writes it."""

    def __init__(self, o: Inner, index: int) -> None:
        self.blocks, self.index = o.blocks, index
        self.rnn = DynamicRNN()
        self.condition = o.blocks.descs[o.index].ops[o.number].inputs["Condition"][0]
        ops = o.blocks.descs[index].ops
        steps = [op for op in ops if op.type == "read_from_array" and isinstance(o.blocks.arrays.get(op.inputs["X"][0]), Steps)]
        self.counter = steps[0].inputs["I"][0]
        #: Number of the operator that counts on: arrays that are written before it are collected, those behind are memories.
        self.turn = next((i for i, op in enumerate(ops) if op.type == "increment" and op.outputs["Out"] == [self.counter]), -1)
        self.memories: dict[str, Variable] = {}
        self.collected: list[str] = []

    def run(self) -> None:
        """Append it."""
        with self.blocks.inside(), self.rnn.block():
            self.blocks.read(self.index, self._other)
        found: Any = self.rnn() if self.collected else []
        rows = found if isinstance(found, list) else [found]
        self.blocks.arrays.update(zip(self.collected, map(Collected, rows), strict=True))

    def _other(self, o: Inner) -> bool:
        desc = self.blocks.descs[o.index].ops[o.number]
        kind = desc.type
        if kind == "read_from_array":
            self._step(o, o.raw("X"), desc.outputs["Out"][0])
        elif kind == "shrink_rnn_memory":
            self.blocks.names[desc.outputs["Out"][0]] = self._going(o.one("X")).name
        elif kind == "write_to_array":
            self._write(o, desc.outputs["Out"][0])
        elif o.number == self.turn or (kind == "less_than" and desc.outputs["Out"] == [self.condition]):
            pass  # the loop counts its rounds by itself
        elif self.counter in (n for names in desc.inputs.values() for n in names):
            raise PeError("it reads the number of the round of a DynamicRNN", hint="count in a memory of the DynamicRNN")
        else:
            return False
        return True

    def _going(self, x: Variable) -> Variable:
        """Return what is left of a variable in a round: all of it, as rows of sequences that have ended are left out in the end."""
        if not self.rnn.nested:
            return x
        # Inner sequences of all rounds are at hand at once, in the order outside.
        maker = next((op for op in reversed(x.block.ops) if x.name in op.output_names()), None)
        ordered = maker is not None and maker.type == "reorder_by_rank"
        return self.rnn.static_input(x.block.var(maker.inputs["X"][0]) if maker is not None and ordered else x)

    def _step(self, o: Inner, array: str, out: str) -> None:
        found = self.blocks.arrays.get(array)
        if isinstance(found, Steps):
            self.blocks.names[out] = self.rnn.step_input(found.of, found.table.level).name
        elif isinstance(found, TensorArray) and list(found.items) == [0]:
            memory = self.memories[array] = self.rnn.memory(init=found.items[0])
            self.blocks.names[out] = memory.name
        else:
            raise PeError(f"a DynamicRNN reads the array '{array}', which is none of its own")

    def _write(self, o: Inner, array: str) -> None:
        if o.number < self.turn:
            self.collected.append(array)
            self.rnn.output(o.one("X"))
        elif array in self.memories:
            self.rnn.update_memory(self.memories[array], o.one("X"))
        else:
            raise PeError(f"a DynamicRNN writes the array '{array}', which is none of its own")
