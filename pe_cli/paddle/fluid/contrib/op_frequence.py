"""op_freq_statistic: how often ops, and pairs of ops that follow one another, are in a program."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pe_cli.paddle.errors import FluidTypeError
from pe_cli.program.ir import Program

Counts = list[tuple[str, int]]


def op_freq_statistic(program: Any) -> tuple[Counts, Counts]:
    """Return how often each type of op is there, and each pair `first->then` of which the second reads a result of the first.

    Ops that only write parameters are left out, and so are reads of parameters and of what no op makes. The most frequent come first.

    Raises:
        FluidTypeError: it is no program; a TypeError.
    """
    if not isinstance(program, Program):
        raise FluidTypeError(f"op_freq_statistic needs a program, got {type(program).__name__}")
    block = program.global_block()
    parameters = {p.name for p in block.parameters()}
    single: Counter[str] = Counter(op.type for op in block.ops if set(op.output_names()) - parameters)
    pairs: Counter[str] = Counter()
    maker: dict[str, str] = {}
    for op in block.ops:
        pairs.update(f"{maker[name]}->{op.type}" for name in op.input_names() if name in maker and name not in parameters)
        maker |= dict.fromkeys(op.output_names(), op.type)
    return single.most_common(), pairs.most_common()


__all__ = ["op_freq_statistic"]
