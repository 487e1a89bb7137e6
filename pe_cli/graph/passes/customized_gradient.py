"""customized_gradient: with gradient_scale_strategy Customized, the user feeds the gradient of the loss instead of ones."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.core.errors import PeError
from pe_cli.ops.define.traits import Folds
from pe_cli.program.ir import Program, Role


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with `<loss>@GRAD` as a feed, and a sentence on what was done.

    Raises:
        PeError: the program has no gradient of a loss.
    """
    del fetches
    made = program.clone()
    block = made.main_block
    starts = [op for op in block.ops if op.role is Role.LOSS and (folds := op.definition.get(Folds)) is not None and folds.alone]
    if not starts:
        if any(op.role is Role.BACKWARD for op in block.ops):
            raise PeError("gradient_scale_strategy is Customized, but the program has no gradient of a loss to feed")
        return program, "customized_gradient: no backward ops"
    names = [n for op in starts for n in op.output_names()]
    block.ops = [op for op in block.ops if op not in starts]
    for name in names:
        block.var(name).is_data = True
    return made, f"customized_gradient: {', '.join(names)} is fed"
