"""Connectionist temporal classification (CTC): warpctc, ctc_greedy_decoder."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """Measure how unlikely the labels of every sequence are, wherever in it they are.

    Args:
        input: [rows, classes] logits with sequences, or [time, sequences, classes] with input_length; softmax is part of the layer.
        label: [labels, 1] int64 or int32 with sequences, or [sequences, labels] with label_length.
        blank: class that stands for no label.
        norm_by_times: divide the gradient of every sequence by its number of steps; the cost stays.
        input_length: steps of each sequence, integers.
        label_length: labels of each sequence, integers.

    Returns:
        [sequences, 1], in nats; 0 where a sequence is too short for its labels.

    Raises:
        PeError: types that do not fit, or only one of the lengths; in a step, a label out of range.

    Source:
        fluid.layers.warpctc; Graves et al. 2006.
    """
    helper = LayerHelper("warpctc")
    if (input_length is None) != (label_length is None):
        raise helper.error("warpctc needs both input_length and label_length, or neither")
    inputs = {
        "Logits": input,
        "Label": _as_int64(helper, label),
        "LogitsLength": _as_int64(helper, input_length),
        "LabelLength": _as_int64(helper, label_length),
    }
    # WarpCTCGrad is made along with the loss, since both come from the same pass over all alignments.
    return helper.op("warpctc", inputs, {"blank": blank, "norm_by_times": norm_by_times}, ("Loss", "WarpCTCGrad"))[0]


@layer(judges=True)
def ctc_greedy_decoder(
    input: Variable, blank: int, input_length: Variable | None = None, padding_value: int = 0, name: str | None = None
) -> list[Variable]:
    """Take the best class of every step, make one of several in a row, and leave blanks out.

    Args:
        input: [sequences, time, classes] probabilities or logits.
        blank: class that stands for no label.
        input_length: steps of each sequence, integers; needed.
        padding_value: what is behind the labels.
        name: prefix of the outputs' names.

    Returns:
        int64 labels, [sequences, time], and how many there are, [sequences, 1].

    Raises:
        PeError: types that do not fit, or no input_length.

    Source:
        fluid.layers.ctc_greedy_decoder.
    """
    helper = LayerHelper("ctc_greedy_decoder", name)
    # Blanks and repetitions go in the next op: a best path is not the most probable labelling, which would need a search over prefixes.
    _, best = helper.op("top_k", {"X": input}, {"k": 1}, ("Out", "Indices"))
    if input_length is None:
        hint = "give input_length, and [sequences, time, classes]"
        raise helper.error("ctc_greedy_decoder: how many labels a sequence has is only known in the step", hint=hint)
    path = helper.one("squeeze", {"X": best}, {"axes": [2]})
    attrs = {"blank": blank, "padding_value": padding_value}
    inputs = {"Input": path, "InputLength": _as_int64(helper, input_length)}
    return helper.op("ctc_align", inputs, attrs, ("Output", "OutputLength"))


def _as_int64(helper: LayerHelper, x: Variable | None) -> Variable | None:
    if x is None or x.dtype != "int32":
        return x
    return helper.one("cast", {"X": x}, {"out_dtype": "int64"})
