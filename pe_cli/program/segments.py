"""Segments of the forward pass, which the backward pass computes again."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.program.ir import Program


def cut(program: Program, ends: Collection[int]) -> int:
    """Number the segments of a program of forward ops.

    Args:
        program: changed.
        ends: places of the ops that end a segment; what comes behind the last one is a segment that nothing repeats.

    Returns:
        Number of segments that the backward pass repeats.
    """
    wanted = set(ends)
    number = 1
    last = len(program.top_ops) - 1
    for place, op in enumerate(program.top_ops):
        op.segment = number
        number += place in wanted and place < last
    return number - 1
