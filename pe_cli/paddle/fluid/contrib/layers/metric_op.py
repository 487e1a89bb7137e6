"""ctr_metric_bundle: sums over all batches that metrics of click rates are made of."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import create_global_var
from pe_cli.program.ir import Variable


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Any, ...]:
    """Add up errors, predictions and labels of all batches since the startup program ran.

    Args:
        input: [batch, 1] float32 predicted rates of clicks.
        label: shape of input, numbers of clicks; any number type.

    Returns:
        Sums of (input - label)^2, |input - label|, input, sigmoid(input), label, and the number of rows; float32 [1] each, which
        programs keep between steps. Divided by the number of rows, the first is the square of the RMSE, the second the MAE.

    Raises:
        FluidValueError: shapes differ; a ValueError.
    """
    if input.shape != label.shape:
        raise FluidValueError(f"ctr_metric_bundle needs input and label of one shape, got {input} and {label}")
    true = label if label.dtype == "float32" else call("cast", label, "float32")
    off = call("elementwise_sub", input, true)
    # Rows are counted as a sum of ones: how many a batch has is known at the step only.
    ones = call("fill_constant_batch_size_like", true, [-1, 1], "float32", 1.0)
    made = []
    # Rates lie in (0, 1) already; the original adds up their sigmoid all the same, and calls that sum q.
    for values in (call("square", off), call("abs", off), input, call("sigmoid", input), true, ones):
        total = create_global_var([1], 0.0, "float32", persistable=True)
        added = call("elementwise_add", total, call("reduce_sum", values))
        # Under the name of the sum itself: what the program keeps is what the next step begins with.
        total.block.append_op("assign", {"X": added}, {"Out": total})
        made.append(total)
    squares, absolute, rates, logits, clicks, rows = made
    return squares, absolute, rates, logits, clicks, rows


__all__ = ["ctr_metric_bundle"]
