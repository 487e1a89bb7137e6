"""Decays of tables whose gradients are row-sparse: PaddlePaddle moves all rows of such a table, and not only those of the batch."""

from __future__ import annotations

from pe_cli.ops.define.traits import MergesRows
from pe_cli.program.ir import Operator, Program

#: What the name of a whole gradient ends with; it is none of those that row-sparse gradients have.
WHOLE = "@WHOLE"


def decay_all_rows(program: Program) -> None:
    """Make gradients whole where a decay takes rows of them, and let what reads the decay's result take all rows, too.

    Args:
        program: that is run; changed. One that is cut for parameter servers keeps its row-sparse gradients: servers make them whole.
    """
    block = program.global_block()
    for op in [op for op in block.ops if op.inputs.get("Param") and op.inputs.get("Rows") and _adds_to_gradient(op)]:
        (rows,), (parameter,), (gradient,), (decayed,) = (op.inputs["Rows"], op.inputs["Param"], op.inputs["Grad"], op.outputs["Out"])
        kind = block.var(parameter).type
        whole = block.create_var(program.unique(parameter + WHOLE), kind).name
        with program.role(op.role, op.role_vars):
            block.append_op("whole_gradient", {"Grad": gradient, "Param": parameter, "Rows": rows}, {"Out": whole}, at=op.at)
        # Appended ops stand at the end: this one moves in front of the decay that reads it.
        block.ops.insert(block.ops.index(op), block.ops.pop())
        op.inputs["Grad"] = [whole]
        op.inputs.pop("Rows")
        block.var(decayed).type = kind
        for reader in block.ops[block.ops.index(op) + 1 :]:
            if decayed in reader.input_names() and reader.inputs.get("Rows") == [rows]:
                assert not reader.definition.has(MergesRows), reader.type
                reader.inputs.pop("Rows")


def _adds_to_gradient(op: Operator) -> bool:
    """Whether an op makes another gradient of one, and changes no parameter."""
    return op.outputs.keys() == {"Out"} and "coeff" in op.attrs
