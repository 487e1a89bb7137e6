"""Recurrent layers over padded sequences: lstm."""

from __future__ import annotations

from dataclasses import replace

from pe_cli.layers.define.helper import LayerHelper, as_attr
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer(made_of="padded_lstm")
def lstm(
    input: Variable,
    hidden_size: int,
    num_layers: int = 1,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_reverse: bool = False,
    init_h: Variable | None = None,
    init_c: Variable | None = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    weight_ih_attr: ParamAttr | None = None,
    weight_hh_attr: ParamAttr | None = None,
    bias_ih_attr: ParamAttr | bool | None = None,
    bias_hh_attr: ParamAttr | bool | None = None,
    is_test: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Run LSTM layers over padded sequences.

    i, f, g, o = split(x_t W_ih + b_ih + h W_hh + b_hh),  c = s(f) c + s(i) tanh(g),  h = s(o) tanh(c),  s = sigmoid

    Args:
        input: [batch, time, width], or [time, batch, width] where time_major.
        hidden_size: units of each layer and direction.
        num_layers: layers, one on the output of the other.
        dropout_prob: chance of a zero between layers, rescaled in training.
        is_bidirec: every layer runs in both directions, and its outputs lie side by side.
        is_reverse: run from the last step to the first; not together with is_bidirec.
        init_h: [layers x directions, batch, hidden_size] states before the first step; 0 by default.
        init_c: likewise.
        sequence_length: [batch] or [batch, 1] int64 steps of each sequence; beyond them the output is 0.
        time_major: time is the first axis of input and output.
        weight_ih_attr: of W_ih, [width, 4 hidden_size]; Xavier by default. With several layers or directions, a given name gets an
            ending: _l0, _l0_reverse, _l1, ...
        weight_hh_attr: of W_hh, [hidden_size, 4 hidden_size].
        bias_ih_attr: of b_ih, [4 hidden_size]; 0 by default; False for none.
        bias_hh_attr: of b_hh likewise.
        is_test: no dropout; `clone(for_test=True)` sets it.
        name: prefix of the names of the parameters.

    Returns:
        Outputs [batch, time, directions x hidden_size] of the last layer, and the last states h and c,
        [layers x directions, batch, hidden_size].

    Raises:
        PeError: sizes below 1, is_reverse with is_bidirec, or states that do not fit.

    Source:
        fluid.layers.lstm, with batch first; paddle.nn.LSTM.
    """
    helper = LayerHelper("lstm", name)
    if hidden_size < 1 or num_layers < 1:
        raise helper.error(f"lstm: hidden_size is {hidden_size} and num_layers {num_layers}, both must be at least 1")
    if is_bidirec and is_reverse:
        raise helper.error("lstm: is_bidirec runs both ways already", hint="leave is_reverse out")
    if len(input.shape) != 3 or input.shape[2] < 1:
        raise helper.error(f"lstm: input is {input}", hint="give it the shape [batch, time, width]")
    count = num_layers * (2 if is_bidirec else 1)
    starts = [rows_of(helper, state, count) for state in (init_h, init_c)]
    ends: list[tuple[Variable, Variable]] = []
    attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
    for number in range(num_layers):
        if number and dropout_prob:
            rate = {"dropout_prob": dropout_prob, "is_test": is_test, "dropout_implementation": "upscale_in_train"}
            input, _ = helper.op("dropout", {"X": input}, rate, ("Out", "Mask"))
        outs = []
        for backward in (False, True) if is_bidirec else (is_reverse,):
            # One layer in one direction has no ending; others are named as in PyTorch, _l0 and _l0_reverse.
            ending = "" if count == 1 else f"_l{number}{'_reverse' * (is_bidirec and backward)}"
            # Initial and last states go layer by layer, forwards before backwards, as in PyTorch and cuDNN: `ends` counts along.
            given = {slot: state[len(ends)] for slot, state in zip(("InitH", "InitC"), starts, strict=True)}
            given |= {"Input": input, "Lengths": sequence_length}
            given |= parameters_of(helper, attrs, ending, input.shape[2], hidden_size, 4, input.dtype)
            out, h, c, *_ = helper.op(
                "padded_lstm",
                given,
                {"is_reverse": backward, "time_major": time_major},
                ("Out", "LastH", "LastC", "Gates", "Cells", "States"),
            )
            outs.append(out)
            ends.append((h, c))
        input = outs[0] if len(outs) == 1 else helper.one("concat", {"X": outs}, {"axis": 2})
    last_h, last_c = (helper.one("stack", {"X": list(states)}, output="Y") for states in zip(*ends, strict=True))
    return input, last_h, last_c


def rows_of(helper: LayerHelper, state: Variable | None, count: int) -> list[Variable | None]:
    """Return the states of each layer and direction.

    Raises:
        PeError: they are not as many.
    """
    if state is None:
        return [None] * count
    if len(state.shape) != 3 or state.shape[0] != count:
        raise helper.error(
            f"{helper.layer_type}: an initial state is {state}", hint=f"give it the shape [{count}, batch, hidden_size]"
        )
    names = [helper.program.unique(f"{helper.name}.tmp") for _ in range(count)]
    helper.op("unstack", {"X": state}, {"axis": 0, "num": count}, (), {"Y": names})
    return [helper.block.var(n) for n in names]


def parameters_of(
    helper: LayerHelper,
    attrs: tuple[ParamAttr | bool | None, ...],
    ending: str,
    width: int,
    units: int,
    gates: int,
    dtype: str,
) -> dict[str, Variable]:
    """Return the parameters of one layer and direction by slot."""
    shapes = {
        "WeightIh": (width, gates * units),
        "WeightHh": (units, gates * units),
        "BiasIh": (gates * units,),
        "BiasHh": (gates * units,),
    }
    made: dict[str, Variable] = {}
    for (slot, shape), attr in zip(shapes.items(), attrs, strict=True):
        if attr is False:
            continue
        wishes = as_attr(attr)
        if wishes.name:
            # A name of the user's stands for all layers and directions, each with its ending.
            wishes = replace(wishes, name=wishes.name + ending)
        made[slot] = helper.parameter(wishes, shape, dtype, is_bias=slot.startswith("Bias"))
    return made
