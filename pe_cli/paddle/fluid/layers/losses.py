"""Measures and losses with more of the original's arguments than the core's have."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.loss.sampled_losses import follow_centers
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.catalogue import declare_classes
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import create_global_var
from pe_cli.program.ir import Variable


def auc(
    input: Variable, label: Variable, curve: str = "ROC", num_thresholds: int = 4095, topk: int = 1, slide_steps: int = 1
) -> Any:
    """Measure how well probabilities tell two classes apart, as the original does: the ROC curve's area, for curve='PR', too.

    Raises:
        FluidValueError: curve is neither ROC nor PR; a ValueError.
    """
    if curve not in ("ROC", "PR"):
        raise FluidValueError(f"auc: curve is {curve!r}", hint="ROC or PR")
    return call("auc", input, label, "ROC", num_thresholds, topk, slide_steps)


def cross_entropy(input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100) -> Any:
    """Take the logarithm of the label's probability; labels without an axis of size 1 give a cost without one."""
    declare_classes("cross_entropy", {"label": label, "soft_label": soft_label})
    cost = call("cross_entropy", input, label, soft_label, ignore_index)
    # The core's op gives a column; the shape of the labels says which of both the script has.
    return cost if len(label.shape) == len(input.shape) else call("squeeze", cost, [-1])


def square_error_cost(input: Variable, label: Variable) -> Any:
    """Square the difference; a label of fewer sizes counts for all elements that it stands for, as in elementwise_sub."""
    if input.shape == label.shape:
        return call("square_error_cost", input, label)
    return call("square", call("elementwise_sub", input, label))


def label_smooth(
    label: Variable, prior_dist: Variable | None = None, epsilon: float = 0.1, dtype: str = "float32", name: str | None = None
) -> Any:
    """Mix labels with a distribution; the result has the element type of the labels, whatever dtype says."""
    return call("label_smooth", label, prior_dist, epsilon, label.dtype, name)


def center_loss(
    input: Variable, label: Variable, num_classes: int, alpha: Any, param_attr: Any, update_center: bool = True
) -> Any:
    """Measure how far features are from the centers of their classes; alpha is a number or a variable [1]."""
    ensure_defaults()
    if not isinstance(alpha, Variable):
        # Persistable, as in the original, so that a script can change it between steps.
        alpha = create_global_var([1], float(alpha), "float32", persistable=True, name="centerloss_alpha")
    return follow_centers(LayerHelper("center_loss"), input, label, num_classes, alpha, param_attr, update_center)


__all__ = ["auc", "center_loss", "cross_entropy", "label_smooth", "square_error_cost"]
