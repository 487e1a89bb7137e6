"""Measures and losses with more of the original's arguments than the core's have."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.loss.sampled import follow_centers
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
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


def center_loss(
    input: Variable, label: Variable, num_classes: int, alpha: Any, param_attr: Any, update_center: bool = True
) -> Any:
    """Measure how far features are from the centers of their classes; alpha may be a variable [1]."""
    if not isinstance(alpha, Variable):
        return call("center_loss", input, label, num_classes, float(alpha), param_attr, update_center)
    ensure_defaults()
    return follow_centers(LayerHelper("center_loss"), input, label, num_classes, alpha, param_attr, update_center)


__all__ = ["auc", "center_loss"]
