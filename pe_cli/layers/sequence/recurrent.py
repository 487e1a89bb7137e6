"""Recurrent layers over sequences of any length: dynamic_lstm, dynamic_lstmp, dynamic_gru."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


def _width(helper: LayerHelper, input: Variable, size: int, gates: int) -> int:
    """Return the width of a layer's state."""
    helper.check_rank(input, "input", 2, f"[rows, {gates} width]")
    # `size` counts all gates, as in the original: whoever gives the width of the state, as in PyTorch, is told here.
    if size < gates or size % gates or input.shape[1] != size:
        hint = f"put fc with size: {gates} width before it, and give that size"
        raise helper.error(
            f"{helper.layer_type}: size is {size} and input {input}, which are not {gates} width", hint=hint
        )
    return size // gates


def _lstm_attrs(use_peepholes: bool, is_reverse: bool, gate: str, cell: str, candidate: str) -> dict[str, Any]:
    """Return what both layers tell the op."""
    activations = {"gate_activation": gate, "cell_activation": cell, "candidate_activation": candidate}
    return {"use_peepholes": use_peepholes, "is_reverse": is_reverse, **activations}


@layer
def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | None = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: str = "float32",
    name: str | None = None,
) -> list[Variable]:
    """Run a long short-term memory over every sequence; an fc before it makes its input.

    Args:
        input: [rows, 4 width] with sequences: candidate, input, forget and output gate, without bias.
        size: 4 width.
        h_0: first states, [sequences, width]; zeros when absent.
        c_0: first cells, [sequences, width]; zeros when absent.
        param_attr: of the recurrent weights, [width, 4 width]; Xavier by default.
        bias_attr: of the bias, [1, 4 width], or [1, 7 width] with peepholes; 0 by default.
        use_peepholes: gates see the cell.
        is_reverse: from the last row of a sequence to its first.
        gate_activation: sigmoid, tanh, relu or identity.
        cell_activation: likewise, of the cell in the output.
        candidate_activation: likewise, of what is added to the cell.
        dtype: of the parameters, that of input.
        name: prefix of the names of the parameters.

    Returns:
        States and cells, [rows, width] each, sequences of input.

    Raises:
        PeError: size is not the width of input, or no 4 width; input has no sequences.

    Source:
        fluid.layers.dynamic_lstm.
    """
    helper = LayerHelper("lstm", name)
    width = _width(helper, input, size, 4)
    weight = helper.parameter(param_attr, (width, size), dtype)
    # Peepholes look at the cell with three weights for each unit, which the original keeps behind the bias of the gates.
    bias = helper.parameter(bias_attr, (1, 7 * width if use_peepholes else size), dtype, is_bias=True)
    attrs = _lstm_attrs(use_peepholes, is_reverse, gate_activation, cell_activation, candidate_activation)
    inputs = {"Input": input, "Weight": weight, "Bias": bias, "H0": h_0, "C0": c_0}
    return helper.op("lstm", inputs, attrs, ("Hidden", "Cell", "BatchGate"))[:2]


@layer
def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | None = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: str = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> list[Variable]:
    """Run a long short-term memory whose output is projected to fewer numbers before it returns to the gates.

    Args:
        input: [rows, 4 width] with sequences; as for dynamic_lstm.
        size: 4 width.
        proj_size: numbers of the projection.
        param_attr: of the recurrent weights, [proj_size, 4 width], and of the projection, [width, proj_size].
        bias_attr: of the bias, [1, 4 width], or [1, 7 width] with peepholes; 0 by default.
        use_peepholes: gates see the cell.
        is_reverse: from the last row of a sequence to its first.
        gate_activation: sigmoid, tanh, relu or identity.
        cell_activation: likewise, of the cell in the output.
        candidate_activation: likewise, of what is added to the cell.
        proj_activation: likewise, of the projection.
        dtype: of the parameters, that of input.
        name: prefix of the names of the parameters.
        h_0: first projections, [sequences, proj_size]; zeros when absent.
        c_0: first cells, [sequences, width]; zeros when absent.
        cell_clip: largest distance of a cell from 0, no unit; None for any.
        proj_clip: likewise, of a projection.

    Returns:
        Projections [rows, proj_size] and cells [rows, width], sequences of input.

    Raises:
        PeError: size is not the width of input, or no 4 width; input has no sequences.

    Source:
        fluid.layers.dynamic_lstmp.
    """
    helper = LayerHelper("lstmp", name)
    width = _width(helper, input, size, 4)
    weight = helper.parameter(param_attr, (proj_size, size), dtype)
    # The same attributes as for the weight, as in the original: a name would be that of both.
    projection = helper.parameter(param_attr, (width, proj_size), dtype)
    bias = helper.parameter(bias_attr, (1, 7 * width if use_peepholes else size), dtype, is_bias=True)
    attrs = _lstm_attrs(use_peepholes, is_reverse, gate_activation, cell_activation, candidate_activation)
    # 0 stands for no limit in the op, since a limit of 0 would hold nothing but zeros.
    attrs |= {"proj_activation": proj_activation, "cell_clip": float(cell_clip or 0), "proj_clip": float(proj_clip or 0)}
    inputs = {"Input": input, "Weight": weight, "Bias": bias, "ProjWeight": projection, "H0": h_0, "C0": c_0}
    return helper.op("lstm", inputs, attrs, ("Hidden", "Cell", "BatchGate"))[:2]


@layer
def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """Run a gated recurrent unit over every sequence; an fc before it makes its input.

    Args:
        input: [rows, 3 size] with sequences: update gate, reset gate, candidate, without bias.
        size: width of the state.
        param_attr: of the recurrent weights, [size, 3 size]; Xavier by default.
        bias_attr: of the bias, [1, 3 size]; 0 by default; False for none.
        is_reverse: from the last row of a sequence to its first.
        gate_activation: sigmoid, tanh, relu or identity.
        candidate_activation: likewise, of the candidate.
        h_0: first states, [sequences, size]; zeros when absent.
        origin_mode: the update gate keeps, as in the first paper, instead of replacing.

    Returns:
        States, [rows, size], sequences of input.

    Raises:
        PeError: input is not 3 size wide, or has no sequences.

    Source:
        fluid.layers.dynamic_gru.
    """
    helper = LayerHelper("gru")
    _width(helper, input, 3 * size, 3)
    weight = helper.parameter(param_attr, (size, 3 * size), input.dtype)
    if bias_attr is False:
        # The op always adds a bias, so zeros stand for none.
        bias = helper.one("fill_constant", {}, {"shape": [1, 3 * size], "dtype": input.dtype, "value": 0.0})
    else:
        bias = helper.parameter(bias_attr, (1, 3 * size), input.dtype, is_bias=True)
    attrs = {
        "is_reverse": is_reverse,
        "origin_mode": origin_mode,
        "gate_activation": gate_activation,
        "activation": candidate_activation,
    }
    inputs = {"Input": input, "Weight": weight, "Bias": bias, "H0": h_0}
    # BatchGate has the gates of all steps, which the gradient needs and no user does.
    return helper.op("gru", inputs, attrs, ("Hidden", "BatchGate"))[0]
