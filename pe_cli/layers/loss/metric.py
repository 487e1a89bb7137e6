"""Metrics of classifiers inside a program: accuracy, topk."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Size, fed_size
from pe_cli.program.ir import Variable


@layer(judges=True)
def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """Measure the share of samples whose label is among the k largest outputs.

    Args:
        input: [batch, classes] probabilities or logits.
        label: [batch, 1] int64 classes.
        k: outputs that count, at least 1.
        correct: a variable for the number of right samples; None makes one.
        total: a variable for the number of samples; None makes one.

    Returns:
        [1] float32, from 0 to 1.

    Raises:
        PeError: shapes do not fit, or k is above the number of classes.

    Source:
        fluid.layers.accuracy.
    """
    helper = LayerHelper("accuracy")
    values, indices = helper.op("top_k", {"X": input}, {"k": k}, ("Out", "Indices"))
    # Given counts are written anew by every step, not added to: they are of the same batch as the accuracy.
    existing = {slot: v for slot, v in (("Correct", correct), ("Total", total)) if v is not None}
    slots = ["Accuracy", *(s for s in ("Correct", "Total") if s not in existing)]
    return helper.op("accuracy", {"Out": values, "Indices": indices, "Label": label}, {}, slots, existing)[0]


@layer
def topk(input: Variable, k: Size, name: str | None = None) -> tuple[Variable, Variable]:
    """Find the k largest elements of every row.

    Args:
        input: [..., n].
        k: how many, from 1 to n.
        name: prefix of the outputs' names.

    Returns:
        [..., k] values from the largest on, and their [..., k] int64 indices.

    Raises:
        PeError: k is above n.

    Source:
        fluid.layers.topk.
    """
    helper = LayerHelper("topk", name)
    number, fed = fed_size(helper, "k", k)
    values, indices = helper.op("top_k", {"X": input, "K": fed}, {"k": number}, ("Out", "Indices"))
    return values, indices
