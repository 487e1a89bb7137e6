"""memory_usage: a coarse bound of what a program's variables take."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import product
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.program.ir import Program


def memory_usage(program: Any, batch_size: int) -> tuple[float, float, str]:
    """Return a lower and an upper bound of the memory of all results of ops, and their unit: B, KB or MB.

    Every result counts, as if none shared memory with another; the bounds are 5 and 10 percent above the sum. What a run really takes,
    with planned memory, `pe summary` and `pe graph --stage plan` show.

    Args:
        program: is read only.
        batch_size: rows that stand for a size of -1.

    Raises:
        FluidTypeError: it is no program; a TypeError.
        FluidValueError: batch_size is below 1, or a variable has two sizes of -1; a ValueError.
    """
    if not isinstance(program, Program):
        raise FluidTypeError(f"memory_usage needs a program, got {type(program).__name__}")
    if batch_size <= 0:
        raise FluidValueError(f"batch_size must be at least 1, got {batch_size}")
    block, total = program.global_block(), 0.0
    # A name that several ops write, such as a parameter that is updated in place, counts once.
    for name in dict.fromkeys(n for op in block.ops for n in op.output_names() if n in block.vars):
        kind = block.vars[name].type
        # The batch can stand for one open size only.
        if kind.shape.count(-1) > 1:
            raise FluidValueError(f"'{name}' has more than one size of -1: {kind}")
        total += product([batch_size if size == -1 else size for size in kind.shape]) * kind.numpy.itemsize
    unit = "B"
    # Units end at MB, as in the original, however large the number is.
    for larger in ("KB", "MB"):
        if total > 1024:
            total, unit = total / 1024, larger
    return total * 1.05, total * 1.1, unit


__all__ = ["memory_usage"]
