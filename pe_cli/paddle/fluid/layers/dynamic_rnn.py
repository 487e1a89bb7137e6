"""DynamicRNN, which repeats a block for every row of sequences, and tensors in the order of sequences' lengths."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.graph.lod_resolution import resolve
from pe_cli.layers.control.loops import Scan
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import OPEN
from pe_cli.paddle.fluid.framework import as_dtype, default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.original_counts import RANKED
from pe_cli.paddle.fluid.layers.tensor import fill_constant_batch_size_like
from pe_cli.paddle.fluid.naming import apart, rename, temporary, use
from pe_cli.program.ir import Variable
from pe_cli.program.prune import prune


@dataclass(frozen=True)
class RankTable:
    """The sequences of a variable by length, the longest first.

    Args:
        of: variable with sequences.
        level: which level of them, 0 the outermost.
    """

    of: Variable
    level: int


def lod_rank_table(x: Variable, level: int = 0) -> RankTable:
    """Return the sequences of a level by length, the longest first, equal ones in order.

    Raises:
        FluidTypeError: x is no variable; a TypeError.
    """
    if not isinstance(x, Variable):
        raise FluidTypeError(f"lod_rank_table takes a variable with sequences, got {x!r:.60}")
    use({"lod_rank_table": 2})
    return RankTable(x, level)


def reorder_lod_tensor_by_rank(x: Variable, rank_table: RankTable) -> Any:
    """Put sequences, or rows where there are none, in the order of a rank table.

    Raises:
        FluidTypeError: rank_table is none; a TypeError.
    """
    return _reordered(x, rank_table)


def _reordered(x: Variable, table: RankTable, *, inverse: bool = False) -> Any:
    if not isinstance(table, RankTable):
        raise FluidTypeError(f"a rank table comes from lod_rank_table, got {table!r:.60}")
    inputs = {"X": x, "RankTable": table.of}
    with raised_as(FluidValueError):
        return LayerHelper("reorder").one("reorder_by_rank", inputs, {"level": table.level, "inverse": inverse})


def max_sequence_len(rank_table: RankTable) -> Any:
    """Return the length of the longest sequence, int64 [1].

    Raises:
        FluidValueError: the rank table is not of level 0; a ValueError.
    """
    if rank_table.level:
        raise FluidValueError(f"max_sequence_len: of level {rank_table.level}", hint="of level 0")
    # The values do not count, and a row may be empty of them: one column is enough to see the lengths.
    column = call("slice", call("reshape", rank_table.of, [0, -1]), [1], [0], [1])
    zero = call("fill_constant", [1], column.dtype, 0.0)
    _, lengths = call("sequence_pad", column, zero)
    return call("reduce_max", lengths)


def levels_of(x: Variable) -> int:
    """Return how many levels of sequences a variable has, as far as the feeds that it is made of declare theirs."""
    if x.lod_level:
        return x.lod_level
    try:
        return len(resolve(prune(x.block.program, [x.name])).lods.get(x.name, ()))
    except PeError:  # what is wrong is told where the program runs
        return 0


def _nest(x: Variable, around: Variable | None) -> Variable:
    """Return a variable with the outermost level of sequences of another one around it; without its own where there is none."""
    with raised_as(FluidValueError):
        return LayerHelper("array_to_lod_tensor" if around is not None else "nest").one("nest_sequences", {"X": x, "Y": around}, {})


class DynamicRNN:
    """Repeats the layers of its block for every row of sequences of different lengths: `with rnn.block()`.

    Sequences are in the order of their lengths inside, the longest first. Every round has a row of all of them: rows of zeros behind the
    end of a sequence, whose outputs are left out. The original takes ended sequences out of the batch instead.

    Where sequences consist of sequences and nothing is kept from round to round, no round waits for another: the block runs once, with
    the inner sequences of all rounds as its batch.

    Args:
        name: without effect.
    """

    def __init__(self, name: str | None = None) -> None:
        self._loop: Scan | None = None
        self._table: RankTable | None = None
        self._lengths: Variable | None = None
        self._each: Variable | None = None
        self._found: list[Any] | None = None
        #: Sequences of sequences that are gone through, and what is collected of them.
        self._nested: Variable | None = None
        self._made: list[Variable] = []
        self._memories = 0
        use({"dynamic_rnn": 1, "while": 1})

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Build one round inside.

        Raises:
            FluidValueError: there is a block already, or nothing is stepped through; a ValueError.
        """
        if self._loop is not None:
            raise FluidValueError("a DynamicRNN has one block")
        self._loop = Scan(default_main_program().global_block())
        OPEN.append(self._loop.outline)
        try:
            yield
        finally:
            OPEN.pop()
        use({"_generated_var": 1})
        if self._nested is not None:
            with raised_as(FluidValueError):
                self._found = [_nest(out, self._nested) for out in self._made]
            return
        if self._table is None:
            raise FluidValueError("a DynamicRNN needs a step_input")
        with raised_as(FluidValueError):
            outs, _ = self._loop.close()
        # Gradients flow through loops from here on; the collected rows are unpadded into sequences again.
        with apart("dynamic_rnn"):
            self._found = [self._rows(out) for out in outs]
        for out in self._found:
            rename(out.block, out, temporary(LayerHelper("array_to_lod_tensor").name))

    def _rows(self, out: Variable) -> Any:
        """Return what was collected as sequences, in the order that they have outside."""
        assert self._table is not None
        assert self._lengths is not None
        flat = call("sequence_unpad", call("transpose", out, [1, 0, *range(2, len(out.shape))]), self._lengths)
        return _reordered(flat, self._table, inverse=True)

    @property
    def _now(self) -> Scan:
        if self._loop is None or self._found is not None:
            raise FluidValueError("a DynamicRNN is written inside its block", hint="with rnn.block(): ...")
        return self._loop

    @property
    def nested(self) -> bool:
        """Whether it goes through sequences of sequences."""
        return self._nested is not None

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """Return one row of every sequence, the longest sequence first.

        Args:
            x: [rows, ...] with sequences of one level, or of two: then a round has a sequence of each.
            level: which level of sequences to go through.

        Raises:
            FluidValueError: x has more levels, or another number of them than the first one; a ValueError.
        """
        loop = self._now
        levels = levels_of(x)
        begun = self._nested is not None or self._table is not None
        if level or levels > 2 or (begun and (levels > 1) != (self._nested is not None)):
            hint = "sequences of one level, or of two in all step_inputs, and level=0"
            raise FluidValueError(f"DynamicRNN: step_input of level {level} of '{x.name}', which has {levels}", hint=hint)
        use({"dynamic_rnn_input_array": 1, "array_read": 1, **({} if begun else RANKED)})
        if levels > 1:
            self._nested = self._nested or x
            return _nest(x, None)
        # The first step_input decides the order; others must have as many sequences and take the same.
        table = self._table or RankTable(x, level)

        def padded() -> Any:
            zero = call("fill_constant", [1], x.dtype, 0.0)
            return call("sequence_pad", _reordered(x, table), zero)

        # What the loop reads is made before the loop, outside of the block that is being written.
        with apart("dynamic_rnn"):
            block, lengths = loop.outline.outside(lambda: tuple(padded()))
            rows = loop.outline.outside(lambda: call("transpose", block, [1, 0, *range(2, len(block.shape))]))
        if self._table is None:
            self._table, self._lengths, self._each = table, lengths, rows
        return loop.input(rows)

    def static_input(self, x: Variable) -> Variable:
        """Return a variable that is the same in every round, in the order of the sequences of step_input.

        Raises:
            FluidValueError: there is no step_input before it; a ValueError.
        """
        loop = self._now
        if self._nested is not None:
            with raised_as(FluidValueError):
                # Inner sequences are the batch here: x is repeated for each of those in the same outer one.
                repeated: Variable = call("sequence_expand", x, self._nested, 0)
            return repeated
        if self._table is None:
            raise FluidValueError("DynamicRNN: static_input before step_input", hint="call step_input first")
        table = self._table
        use({"dynamic_rnn_static_input_reordered": 1, "shrink_memory": 1})
        with apart("dynamic_rnn"):
            made: Variable = loop.outline.outside(lambda: reorder_lod_tensor_by_rank(x, table))
        return made

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """Return a variable that keeps a value from round to round.

        Args:
            init: [sequences, ...] before the first round, the longest sequence first.
            shape: of a row, where there is no init.
            value: of all elements, where there is no init.
            need_reorder: init is in the order that sequences have outside.
            dtype: where there is no init.

        Raises:
            FluidValueError: neither init nor shape, or no step_input before it; a ValueError.
            NotThereYet: sequences of sequences are gone through.
        """
        loop = self._now
        if self._nested is not None:
            hint = "lod_reset makes sequences of one level"
            raise NotThereYet("DynamicRNN: a memory while it goes through sequences of sequences", hint=hint)
        if self._table is None or self._each is None:
            raise FluidValueError("DynamicRNN: memory before step_input", hint="call step_input first")
        table, each = self._table, self._each
        use({"dynamic_rnn_mem_array": 1, "array_read": 1, "shrink_memory": 1, "zero_idx": int(not self._memories)})
        self._memories += 1
        if init is not None:
            use({"dynamic_rnn_mem_init_reordered": int(need_reorder)})
            with apart("dynamic_rnn"):
                start = loop.outline.outside(lambda: reorder_lod_tensor_by_rank(init, table)) if need_reorder else init
            return loop.state(start)
        if shape is None:
            raise FluidValueError("a memory needs init or shape")
        sizes, kind = [-1, *shape], as_dtype(dtype)
        # As many rows as the loop has sequences, which a step knows.
        use({"mem_init": 1, "in0": 1})
        with apart("dynamic_rnn"):
            made = loop.outline.outside(lambda: fill_constant_batch_size_like(each, sizes, kind, float(value), 1, 0))
        return loop.state(made)

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Say what a memory holds in the next round.

        Raises:
            FluidValueError: it is no memory of this one; a ValueError.
        """
        use({"array_write": 1})
        with raised_as(FluidValueError):
            self._now.update(ex_mem, new_mem)

    def output(self, *outputs: Variable) -> None:
        """Collect variables of every round."""
        use({"array_write": len(outputs)})
        for o in outputs:
            if self._nested is not None:
                self._made.append(o)
            else:
                self._now.output(o)

    def __call__(self) -> Any:
        if not self._found:
            raise EnforceNotMet("this DynamicRNN has no output")
        return self._found[0] if len(self._found) == 1 else self._found


__all__ = ["DynamicRNN", "lod_rank_table", "max_sequence_len", "reorder_lod_tensor_by_rank"]
