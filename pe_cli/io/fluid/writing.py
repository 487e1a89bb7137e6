"""Programs here as programs of PaddlePaddle 1.8.5: each operator becomes the one of the same name, or what `writers` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pe_cli.io.fluid import program_desc, writers
from pe_cli.io.fluid.fused_writers import Fused
from pe_cli.io.fluid.operator_writer import WRITERS, NotWritten, Written, forms
from pe_cli.io.fluid.program_desc import (
    ELEMENT_NUMBERS,
    FEED_MINIBATCH,
    FETCH_LIST,
    BlockDesc,
    OpDesc,
    VarDesc,
)
from pe_cli.program.ir import Operator, Program


def of_program(program: Program, feeds: Sequence[str] | None = None, fetches: Sequence[str] = ()) -> bytes:
    """Return a program as 1.8.5 keeps it.

    Args:
        program: of one block, without gradients and updates.
        feeds, fetches: names of what is fed and computed, in their order, of an inference model; None for another program.

    Raises:
        NotWritten: it has operators, slots or attributes that 1.8.5 has not: all of them in one error.
    """
    assert writers
    block = program.main_block
    made, lost = Written(block), Counter[str]()
    for v in block.vars.values():
        if v.dtype in ELEMENT_NUMBERS:
            made.declare(v)
        else:
            lost[f"elements of {v.dtype}"] += 1
    fused = Fused(block, fetches)
    for op in block.ops:
        try:
            if not fused.write(made, op):
                _append(made, op)
        except NotWritten as error:
            lost[error.message] += 1
    if len(program.blocks) > 1:
        lost["several blocks"] += 1
    if lost:
        listed = "; ".join(sorted(lost)[:8])
        raise NotWritten(f"PaddlePaddle 1.8.5 has no form of: {listed}", hint="it is kept in a form that is read here alone")
    if feeds is not None:
        _bracket(made, feeds, fetches)
    return program_desc.write([BlockDesc(-1, list(made.vars.values()), made.ops)])


def _append(made: Written, op: Operator) -> None:
    write = WRITERS.get(op.type)
    if write is not None:
        write(made, op)
    elif op.type in forms():
        made.same(op)
    else:
        raise NotWritten(op.type)


def _bracket(made: Written, feeds: Sequence[str], fetches: Sequence[str]) -> None:
    """Put the operators that feed before all others, and those that fetch behind."""
    for name, kind in (("feed", FEED_MINIBATCH), ("fetch", FETCH_LIST)):
        made.vars[name] = VarDesc(name, kind, persistable=True)
    fed = [OpDesc("feed", {"X": ["feed"]}, {"Out": [name]}, {"col": i, "op_role": 0}) for i, name in enumerate(feeds)]
    made.ops[:0] = fed
    made.ops += [OpDesc("fetch", {"X": [name]}, {"Out": ["fetch"]}, {"col": i, "op_role": 0}) for i, name in enumerate(fetches)]
