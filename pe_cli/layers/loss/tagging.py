"""Layers that tag and compare sequences: linear_chain_crf, crf_decoding, edit_distance, row_conv."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, as_attr
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Parameter, Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def linear_chain_crf(
    input: Variable, label: Variable, param_attr: ParamAttr | None = None, length: Variable | None = None
) -> Variable:
    """Measure how unlikely the tags of every sequence are, where neighbouring tags depend on each other.

    Args:
        input: [rows, tags] with sequences, or [sequences, time, tags] with length; how much speaks for each tag.
        label: int64, one tag for each row.
        param_attr: of the transitions, [tags + 2, tags]: start, end, and from each tag; Xavier by default.
        length: rows of each sequence, int64.

    Returns:
        [sequences, 1]; a cost, in nats.

    Raises:
        PeError: types that do not fit; neither sequences nor length.

    Source:
        fluid.layers.linear_chain_crf.
    """
    helper = LayerHelper("linear_chain_crf")
    tags = input.shape[-1]
    # Row 0 is how well a tag begins a sequence, row 1 how well it ends one, and row 2 + t how well it follows tag t.
    transition = helper.parameter(param_attr, (tags + 2, tags), input.dtype)
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return helper.op("linear_chain_crf", inputs, None, ("LogLikelihood", "Alpha"))[0]


@layer
def crf_decoding(
    input: Variable, param_attr: ParamAttr, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """Find the best tags of every sequence with the transitions of a linear_chain_crf.

    Args:
        input: [rows, tags] with sequences, or [sequences, time, tags] with length.
        param_attr: with the name of the transitions.
        label: int64, one tag for each row; then the result tells where the best tag is the label.
        length: rows of each sequence, int64.

    Returns:
        int64 [rows, 1] with sequences, or [sequences, time].

    Raises:
        PeError: there is no parameter of that name, or types do not fit.

    Source:
        fluid.layers.crf_decoding.
    """
    helper = LayerHelper("crf_decoding")
    name = as_attr(param_attr).name
    # The parameter of the loss itself: a second one of that name would be trained by nobody.
    transition = helper.block.vars.get(name or "")
    if not isinstance(transition, Parameter):
        hint = "give the linear_chain_crf layer param_attr: {name: ...}, and this one the same"
        raise helper.error(f"crf_decoding: there is no parameter '{name}'", hint=hint)
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return helper.one("crf_decoding", inputs, output="ViterbiPath")


@layer(judges=True)
def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: list[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> list[Variable]:
    """Count the insertions, deletions and replacements that turn every sequence into that of label.

    Args:
        input: [rows, 1] int64 with sequences, or [sequences, time] with input_length.
        label: likewise, with label_length.
        normalized: divide by the length of label's sequence.
        ignored_tokens: ids that count in neither.
        input_length: rows of each sequence of input, int64.
        label_length: rows of each sequence of label, int64.

    Returns:
        float32 [sequences, 1], and the number of sequences, int64 [1].

    Raises:
        PeError: other types, or only one of the lengths.

    Source:
        fluid.layers.edit_distance.
    """
    helper = LayerHelper("edit_distance")
    if (input_length is None) != (label_length is None):
        raise helper.error("edit_distance needs both input_length and label_length, or neither")
    attrs = {"normalized": normalized, "ignored_tokens": list(ignored_tokens or [])}
    inputs = {"Hyps": input, "Refs": label, "HypsLength": input_length, "RefsLength": label_length}
    return helper.op("edit_distance", inputs, attrs, ("Out", "SequenceNum"))


@layer
def row_conv(
    input: Variable, future_context_size: int, param_attr: ParamAttr | None = None, act: str | None = None
) -> Variable:
    """Add to every row some rows behind it in its sequence, each number with a weight of its own.

    out[r, k] = act(sum_t input[r + t, k] W[t, k]), t = 0 .. future_context_size

    Args:
        input: [rows, width] with sequences.
        future_context_size: rows behind.
        param_attr: of W, [future_context_size + 1, width]; Xavier by default.
        act: name of an activation, or None.

    Returns:
        Shape, dtype and sequences of input.

    Raises:
        PeError: future_context_size below 0; input has no sequences.

    Source:
        fluid.layers.row_conv; Amodei et al. 2015.
    """
    helper = LayerHelper("row_conv")
    helper.check_rank(input, "input", 2, "[rows, width]")
    taps, width = future_context_size + 1, input.shape[1]
    weight = helper.parameter(param_attr, (taps, width), input.dtype)
    window = helper.one("sequence_context", {"X": input}, {"start": 0, "length": taps})
    block = helper.one("reshape", {"X": window}, {"shape": [0, taps, width]})
    weighed = helper.one("elementwise_mul", {"X": block, "Y": weight}, {"axis": 1})
    return helper.activate(helper.one("reduce_sum", {"X": weighed}, {"dim": [1]}), act)
