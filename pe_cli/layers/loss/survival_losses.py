"""Losses of times until an event, some of which are only known to be longer than what was seen: censored times."""

from __future__ import annotations

import math

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer(label=("label", "event"))
def weibull_nll_loss(input: Variable, label: Variable, event: Variable, log_shape: Variable, name: str | None = None) -> Variable:
    """Measure how unlikely a time is under a Weibull distribution, of which the logarithm of the median is predicted.

    Out = exp(z) - event (log_shape + z),  z = exp(log_shape) (label - input) + ln(ln 2)

    A row with event 0 is censored: its time is only known to be longer. Out is the negative log-density of the logarithm of the time, or of
    the probability that it is longer.

    Args:
        input: logarithm of the median of the time, [batch, 1].
        label: logarithm of the time until the event, or until the row was last seen; shape and dtype of input. Any shift and scale of both
            changes the shape by the scale alone.
        event: 1 where the event was seen, 0 where the time is censored; shape and dtype of input.
        log_shape: logarithm of the Weibull shape; shape of input, or one number for all rows.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input, in nats.

    Raises:
        PeError: shapes or dtypes do not fit.

    Source:
        Kalbfleisch and Prentice 2002, section 2.2: the accelerated failure time model; lifelines.WeibullAFTFitter; scipy.stats.gumbel_l.
    """
    helper = LayerHelper("weibull_nll_loss", name)
    helper.check_same(input, label, event)
    shape = helper.one("exp", {"X": log_shape})
    apart = helper.one("elementwise_sub", {"X": label, "Y": input})
    # The cumulative hazard is ln 2 at the median, which is where label and input are equal.
    z = helper.one("scale", {"X": helper.one("elementwise_mul", {"X": apart, "Y": shape})}, {"bias": math.log(math.log(2))})
    density = helper.one("elementwise_mul", {"X": event, "Y": helper.one("elementwise_add", {"X": z, "Y": log_shape})})
    return helper.one("elementwise_sub", {"X": helper.one("exp", {"X": z}), "Y": density})
