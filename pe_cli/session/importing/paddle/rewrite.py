"""Operators that no layer appends, written as others that layers do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pe_cli.io.fluid.program_desc import BlockDesc, OpDesc, VarDesc
from pe_cli.io.fluid.sequence_readers import PLAIN_ROWS


def rewritten(blocks: Sequence[BlockDesc]) -> list[BlockDesc]:
    """Return a description whose main block has only operators that layers append, as far as is known here."""
    main = blocks[0]
    ops: list[OpDesc] = []
    made: list[VarDesc] = []
    for op in main.ops:
        if op.type == "lookup_table_v2" and len(op.inputs.get("Ids", ())) == 1:
            column = VarDesc(f"{op.inputs['Ids'][0]}.column_{len(made)}", dtype="int64")
            made.append(column)
            ops += [
                OpDesc("unsqueeze2", {"X": op.inputs["Ids"]}, {"Out": [column.name]}, {"axes": [-1]}),
                OpDesc("lookup_table", {**op.inputs, "Ids": [column.name]}, op.outputs, op.attrs),
            ]
        elif op.type == "im2sequence":
            # The layer of model files gives plain rows.
            ops.append(replace(op, attrs={**op.attrs, PLAIN_ROWS: True}))
        else:
            ops.append(op)
    return [replace(main, vars=[*main.vars, *made], ops=ops), *blocks[1:]]
