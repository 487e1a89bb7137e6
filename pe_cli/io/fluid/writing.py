"""Programs here as programs of PaddlePaddle 1.8.5: each operator becomes the one of the same name, or what its writer says."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.io.fluid import (
    array_writers,
    control_writers,
    dynamic_rnn_writers,
    nested_rnn_writers,
    program_desc,
    recurrence_writers,
    row_branch_writers,
    writers,
)
from pe_cli.io.fluid.block_writer import arrays_of, write_ops
from pe_cli.io.fluid.operator_writer import NotWritten, Whole, Written
from pe_cli.io.fluid.program_desc import FEED_MINIBATCH, FETCH_LIST, BlockDesc, OpDesc, VarDesc
from pe_cli.program.ir import Program
from pe_cli.program.region import blocks_of


def of_program(program: Program, feeds: Sequence[str] | None = None, fetches: Sequence[str] = ()) -> bytes:
    """Return a program as 1.8.5 keeps it.

    Args:
        program: of one block, without gradients and updates.
        feeds, fetches: names of what is fed and computed, in their order, of an inference model; None for another program.

    Raises:
        NotWritten: it has operators, slots or attributes that 1.8.5 has not: all of them in one error.
    """
    assert all((writers, array_writers, control_writers, dynamic_rnn_writers, nested_rnn_writers, recurrence_writers, row_branch_writers))
    block = program.main_block
    whole = Whole(program.is_test, feeds is not None, {name for each in blocks_of(program) for name in each.vars})
    made = Written(block, whole, arrays=arrays_of(block.ops))
    whole.blocks.append(made)
    for v in block.vars.values():
        if v.name not in made.arrays:
            made.declare(v)
    write_ops(made, block.ops, fetches)
    if len(program.blocks) > 1:
        whole.lost["several blocks"] += 1
    if whole.lost:
        listed = "; ".join(sorted(whole.lost)[:8])
        raise NotWritten(f"PaddlePaddle 1.8.5 has no form of: {listed}", hint="it is kept in a form that is read here alone")
    if feeds is not None:
        _bracket(made, feeds, fetches)
    numbers = {id(each): i for i, each in enumerate(whole.blocks)}
    return program_desc.write(
        [BlockDesc(numbers[id(each.outer)] if each.outer else -1, list(each.vars.values()), each.ops) for each in whole.blocks]
    )


def _bracket(made: Written, feeds: Sequence[str], fetches: Sequence[str]) -> None:
    """Put the operators that feed before all others, and those that fetch behind."""
    for name, kind in (("feed", FEED_MINIBATCH), ("fetch", FETCH_LIST)):
        made.vars[name] = VarDesc(name, kind, persistable=True)
    fed = [OpDesc("feed", {"X": ["feed"]}, {"Out": [name]}, {"col": i, "op_role": 0}) for i, name in enumerate(feeds)]
    made.ops[:0] = fed
    made.ops += [OpDesc("fetch", {"X": [name]}, {"Out": ["fetch"]}, {"col": i, "op_role": 0}) for i, name in enumerate(fetches)]
