"""summary: a table of a program's layers with their parameters and operations."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from pe_cli.core.types import product
from pe_cli.program.ir import Block, Operator

_POINTWISE = ("sigmoid", "tanh", "relu", "leaky_relu", "prelu")
HEAD = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")


class Row(NamedTuple):
    """One op of the table.

    Args:
        kind: its type.
        taken, made: sizes of a sample that it reads and makes.
        parameters: numbers that are learned.
        operations: for one sample; a multiplication with the addition after it counts as 2 in convolutions, else as 1.
    """

    kind: str
    taken: tuple[int, ...]
    made: tuple[int, ...]
    parameters: int
    operations: int


def _row(block: Block, op: Operator) -> Row | None:
    """Return the row of an op; None for ops that the table leaves out."""

    def shape(slot: str) -> tuple[int, ...]:
        names = op.inputs.get(slot) or op.outputs.get(slot) or []
        return block.var(names[0]).shape if names else ()

    if op.type in ("conv2d", "depthwise_conv2d"):
        taken, made, filters = shape("Input"), shape("Output"), shape("Filter")
        per = product(filters[1:]) // (op.attrs.get("groups", 1) or 1) + bool(op.inputs.get("Bias"))
        return Row(op.type, taken[1:], made[1:], filters[0] * per, 2 * product(made[1:]) * per)
    taken, made = shape("X"), shape("Out") or shape("Y")
    if op.type == "pool2d":
        return Row(op.type, taken[1:], made[1:], 0, product(made[1:]) * product(op.attrs["ksize"]))
    if op.type == "mul" and "fc" in op.outputs["Out"][0]:
        weight = shape("Y")
        return Row(op.type, taken[1:], made[1:], product(weight) + 1, product(weight))
    # As in the original's table, prelu has 1 parameter, whatever its mode.
    if op.type in _POINTWISE:
        return Row(op.type, taken[1:], made[1:], int(op.type == "prelu"), product(taken[1:]))
    if op.type == "batch_norm":
        return Row(op.type, taken[1:], made[1:], 2 * taken[1], 2 * product(taken[1:]))
    return None


def summary(main_prog: Any) -> None:
    """Print the ops of a program with what they read and make, their parameters and operations for one sample, and the sums.

    Convolutions, fc, pools, batch_norm, sigmoid, tanh, relu, leaky_relu and prelu are counted.
    """
    rows = [row for block in main_prog.blocks for op in block.ops if (row := _row(block, op)) is not None]
    cells = [HEAD, *((str(i), r.kind, str(r.taken), str(r.made), str(r.parameters), str(r.operations)) for i, r in enumerate(rows))]
    widths = [max(len(line[k]) for line in cells) for k in range(len(HEAD))]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    lines = ["|" + "|".join(f" {cell:>{w}} " for cell, w in zip(line, widths, strict=True)) + "|" for line in cells]
    parameters, operations = sum(r.parameters for r in rows), sum(r.operations for r in rows)
    sys.stdout.write("\n".join([rule, lines[0], rule, *lines[1:], rule]) + "\n")
    sys.stdout.write(f"Total PARAMs: {parameters}({parameters / 1e6:.4f}M)\nTotal FLOPs: {operations}({operations / 1e9:.2f}G)\n")


__all__ = ["summary"]
