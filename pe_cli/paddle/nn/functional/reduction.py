"""What every loss of 2.x does at its end: weigh the elements and reduce them."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(loss: str, reduction: str) -> None:
    """Raise unless there is such a reduction.

    Raises:
        FluidValueError: reduction is none of mean, sum and none.
    """
    if reduction not in REDUCTIONS:
        raise FluidValueError(f"{loss}: reduction is {reduction!r}", hint="mean, sum or none")


def reduced(loss: str, elements: Any, reduction: str, weight: Any = None) -> Any:
    """Weigh the elements of a loss and reduce them.

    Args:
        loss: its name, for errors.
        elements: of the loss.
        reduction: mean and sum return [1], none the elements.
        weight: factor of every element, or None; sizes that end as those of the elements do.

    Raises:
        FluidValueError: an unknown reduction.
    """
    check_reduction(loss, reduction)
    if weight is not None:
        elements = call("elementwise_mul", elements, weight)
    if reduction == "none":
        return elements
    return call("mean", elements) if reduction == "mean" else call("reduce_sum", elements)
