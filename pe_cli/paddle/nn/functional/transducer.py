"""The loss of transducers, which align labels with steps of a series."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.reduction import check_reduction, reduced


def rnnt_loss(
    input: Any,
    label: Any,
    input_lengths: Any,
    label_lengths: Any,
    blank: int = 0,
    fastemit_lambda: float = 0.001,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Measure how unlikely labels are, whatever steps of a series they belong to, in nats.

    Args:
        input: [sequences, time, labels + 1, classes] logarithms of probabilities, the time known: of 2.6 on CPUs; no softmax is taken.
        label: [sequences, labels] int32 or int64.
        input_lengths: [sequences] int32 or int64, steps of each.
        label_lengths: [sequences] int32 or int64, labels of each.
        blank: class that goes on to the next step.
        fastemit_lambda: how much more the gradients of labels count than those of blanks.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: shapes that do not fit, or a time that only a step knows; a ValueError.

    Source:
        Graves 2012, "Sequence transduction with recurrent neural networks", section 2.4; Yu et al. 2021, "FastEmit".
    """
    check_reduction("rnnt_loss", reduction)
    if len(input.shape) != 4 or input.shape[1] < 1 or label.shape[-1] != input.shape[2] - 1 or not 0 <= blank < input.shape[3]:
        raise FluidValueError(f"rnnt_loss: input {input}, label {label}, blank {blank}", hint="[sequences, time, labels + 1, classes]")
    _, time, places, _ = input.shape
    goes_on = call("squeeze", call("slice", input, [3], [blank], [blank + 1]), [3])
    sums = _sums_of_labels(input, label, fastemit_lambda)
    steps = [call("squeeze", v, [1]) for v in (call("split", sums, time, 1) if time > 1 else [sums])]
    stays = [call("squeeze", v, [1]) for v in (call("split", goes_on, time, 1) if time > 1 else [goes_on])]
    # Along the labels of a step each place adds up the ways that came from the step before, and from the labels to its left.
    ways = [steps[0]]
    for t in range(1, time):
        before = call("elementwise_sub", call("elementwise_add", ways[-1], stays[t - 1]), steps[t])
        along = LayerHelper("logcumsumexp").one("logcumsumexp", {"X": before}, {"axis": 1})
        ways.append(call("elementwise_add", along, steps[t]))
    ends = call("concat", [call("elementwise_add", way, stay) for way, stay in zip(ways, stays, strict=True)], 1)
    last, count = (call("cast", call("reshape", v, [-1, 1]), "int64") for v in (input_lengths, label_lengths))
    at = call("elementwise_add", call("scale", call("scale", last, 1.0, -1.0), float(places)), count)
    loss = call("scale", call("squeeze", call("take_along_axis", ends, at, 1), [1]), -1.0)
    return reduced("rnnt_loss", loss, reduction)


def _sums_of_labels(input: Any, label: Any, more: float) -> Any:
    """Return what the labels before each place have in sum, at each step: [sequences, time, labels + 1]."""
    nothing = call("scale", call("slice", input, [2, 3], [0, 0], [1, 1]), 0.0)
    nothing = call("squeeze", nothing, [3])
    nothing.stop_gradient = True
    places = input.shape[2]
    if places == 1:
        return nothing
    seen = call("slice", input, [2], [0], [places - 1])
    zeros = call("cast", call("slice", seen, [3], [0], [1]), "int64")
    zeros = LayerHelper("fill_like").one("fill_like", {"X": zeros}, {"value": 0.0})
    numbers = call("elementwise_add", zeros, call("unsqueeze", call("cast", label, "int64"), [1, 3]))
    each = call("squeeze", call("take_along_axis", seen, numbers, 3), [3])
    if more:
        extra = call("scale", each, float(more))
        taken = call("assign", extra)
        taken.stop_gradient = True
        each = call("elementwise_sub", call("elementwise_add", each, extra), taken)
    return call("concat", [nothing, call("cumsum", each, 2)], 2)


__all__ = ["rnnt_loss"]
