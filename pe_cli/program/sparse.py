"""Row-sparse gradients in a program: which they are, where their row numbers stand, and what became of `is_sparse`."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import GRAD, forward_name, grad_name
from pe_cli.ops.define.traits import ByValue, MergesRows, Table
from pe_cli.program.ir import RULES, Block, Operator, Program, Variable

#: The op that makes a row-sparse gradient: values and row numbers.
MERGE = "merge_selected_rows"


def rows_name(table: str) -> str:
    """Return the name of the variable of row numbers of a table's gradient."""
    return f"{grad_name(table)}@ROWS"


def rows_of(block: Block, name: str) -> str | None:
    """Return the variable with the row numbers of a row-sparse gradient; None for any other variable."""
    if GRAD not in name or rows_name(forward_name(name)) not in block.vars:
        return None
    # The last writer counts: a clip or a decay may have made it dense, or kept its rows.
    for op in reversed(block.ops):
        if name in op.output_names():
            merged, by_value = op.definition.get(MergesRows), op.definition.get(ByValue)
            if merged is not None:
                return op.outputs[merged.rows][0] if name in op.outputs[merged.out] else None
            if op.inputs.get("Rows"):
                return op.inputs["Rows"][0]
            if by_value is not None and by_value.keeps_rows:
                return rows_of(block, op.inputs["X"][0])
            return None
    return None


def table_of(block: Block, name: str) -> Variable:
    """Return the table that a gradient belongs to."""
    return block.var(forward_name(name))


def check_reader(block: Block, op: Operator) -> None:
    """Check that an op does not take the values of a row-sparse gradient for a whole table.

    Raises:
        PeError: it does.
    """
    if op.definition.has(MergesRows) or op.definition.has(ByValue) or "Rows" in op.inputs:
        return
    # Values alone are no gradient of the table: without their row numbers they would be added to the wrong rows.
    for name in op.input_names():
        if GRAD in name and rows_of(block, name):
            raise PeError(
                f"op '{op.type}' cannot read '{name}', which is row-sparse",
                hint=f"set is_sparse: false where '{forward_name(name)}' is looked up",
            )


RULES.append(check_reader)


def notes(program: Program) -> list[str]:
    """Return where `is_sparse` and `lazy_mode` have no effect, and why; a sentence each."""
    found = []
    for op in program.top_ops:
        table = op.definition.is_grad_of and op.attrs.get("is_sparse") and op.outputs
        if table:
            name = forward_name(next(iter(op.output_names())))
            others = sorted({o.type for o in program.top_ops if name in o.input_names() and _whole(o)})
            why = f"{' and '.join(others)} needs a gradient for all rows" if others else "it is no parameter"
            found.append(f"is_sparse: the gradient of '{name}' is dense: {why}")
    lazy = [op for op in program.top_ops if op.attrs.get("lazy_mode")]
    if lazy and not any("Rows" in op.inputs for op in lazy):
        found.append("lazy_mode: no gradient is row-sparse, so that all updates are the ordinary ones")
    return list(dict.fromkeys(found))


def _whole(op: Operator) -> bool:
    """Whether a forward op reads more of a table than rows that it looks up with is_sparse."""
    return op.role.value == "forward" and not (op.definition.has(Table) and op.attrs["is_sparse"])
