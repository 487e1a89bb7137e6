"""Regression losses composed of other layers: quantile and count losses."""

from __future__ import annotations

import math

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def quantile_loss(input: Variable, label: Variable, quantile: float = 0.5, name: str | None = None) -> Variable:
    """Weigh predictions that are too low and those that are too high differently, so that a quantile of the label is learned.

    Out = max(quantile d, (quantile - 1) d),  d = label - input

    Args:
        input: prediction, any shape.
        label: target, shape and dtype of input.
        quantile: share of labels below the prediction, above 0 and below 1; 0.5 is half the absolute difference.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input, in its unit.

    Raises:
        PeError: quantile is not above 0 and below 1, or shapes or dtypes do not fit.

    Source:
        Koenker and Bassett 1978; sklearn.metrics.mean_pinball_loss.
    """
    helper = LayerHelper("quantile_loss", name)
    if not 0 < quantile < 1:
        raise helper.error(f"quantile_loss: quantile must be > 0 and < 1, got {quantile:g}")
    helper.check_same(input, label)
    d = helper.one("elementwise_sub", {"X": label, "Y": input})
    # Both lines cross at 0, and the upper one is the loss on either side: no comparison with 0 is needed.
    parts = [helper.one("scale", {"X": d}, {"scale": s}) for s in (quantile, quantile - 1)]
    return helper.one("elementwise_max", {"X": parts[0], "Y": parts[1]})


@layer(answers="log_input")
def poisson_nll_loss(
    input: Variable,
    label: Variable,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    name: str | None = None,
) -> Variable:
    """Measure how unlikely a count is under a Poisson distribution.

    Out = exp(input) - label input;  without log_input Out = input - label ln(input + epsilon);
    with full also label ln(label) - label + ln(2 pi label) / 2 where label > 1

    Args:
        input: logarithm of the expected count; without log_input the expected count, at least 0. Any shape.
        label: counts, shape and dtype of input.
        log_input: input is a logarithm.
        full: add Stirling's approximation of ln(label!), which no gradient depends on.
        epsilon: keeps the logarithm finite; without effect where input is one.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input, in nats.

    Raises:
        PeError: shapes or dtypes do not fit.

    Source:
        torch.nn.functional.poisson_nll_loss.
    """
    helper = LayerHelper("poisson_nll_loss", name)
    helper.check_same(input, label)
    if log_input:
        expected, log = helper.one("exp", {"X": input}), input
    else:
        expected, log = input, helper.one("log", {"X": helper.one("scale", {"X": input}, {"bias": epsilon})})
    out = helper.one("elementwise_sub", {"X": expected, "Y": helper.one("elementwise_mul", {"X": label, "Y": log})})
    return helper.one("elementwise_add", {"X": out, "Y": _stirling(helper, label)}) if full else out


def _stirling(helper: LayerHelper, label: Variable) -> Variable:
    """Return label ln(label) - label + ln(2 pi label) / 2 where label is above 1, else 0."""
    one = helper.one("fill_constant", {}, {"shape": [1], "dtype": label.dtype, "value": 1.0})
    above = helper.one("cast", {"X": helper.one("greater_than", {"X": label, "Y": one})}, {"out_dtype": label.dtype})
    # Counts of 0 are taken as 1 below the logarithm: their term is masked afterwards, but 0 times minus infinity would be NaN.
    log = helper.one("log", {"X": helper.one("elementwise_max", {"X": label, "Y": one})})
    product = helper.one("elementwise_sub", {"X": helper.one("elementwise_mul", {"X": label, "Y": log}), "Y": label})
    half = helper.one("scale", {"X": log}, {"scale": 0.5, "bias": 0.5 * math.log(2 * math.pi)})
    return helper.one("elementwise_mul", {"X": helper.one("elementwise_add", {"X": product, "Y": half}), "Y": above})
