"""From a strategy to the passes that it asks for, applied to a program before it is replicated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pe_cli.core.strategy import BuildStrategy
from pe_cli.graph.passes import fuse_optimizer, layout
from pe_cli.program.ir import Program

Pass = Callable[[Program, Sequence[str]], tuple[Program, str]]


def passes(strategy: BuildStrategy) -> list[Pass]:
    """Return the passes of a strategy, in order."""
    found: list[Pass] = []
    if strategy.data_layout == "auto":
        found.append(layout.run)
    if strategy.fuse_all_optimizer_ops:
        found.append(fuse_optimizer.run)
    return found


def apply_passes(
    program: Program, strategy: BuildStrategy, fetches: Sequence[str], report: list[str] | None = None
) -> Program:
    """Return the program after every pass of the strategy.

    Args:
        program: not changed.
        strategy: the user's wishes.
        fetches: variables whose values must stay what the program says.
        report: gets a sentence a pass.
    """
    for run in passes(strategy):
        program, sentence = run(program, fetches)
        if report is not None:
            report.append(sentence)
    return program
