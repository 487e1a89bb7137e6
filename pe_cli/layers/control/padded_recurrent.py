"""Stacks of cells over padded sequences, each layer one scan: gru and simple_rnn."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.control.loops import scan
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.layers.nn.padded_recurrent import parameters_of, rows_of
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

Step = Callable[[Variable, Variable], Variable]
#: Makes the step of a cell: `cell(weight of the state, bias of it or None)`.
Cell = Callable[[Variable, "Variable | None"], Step]


@dataclass(frozen=True)
class _Way:
    """One layer in one direction.

    Args:
        helper: of the layer.
        step: `step(projected input, state) -> next state`.
        back: the last step first.
    """

    helper: LayerHelper
    step: Step
    back: bool

    def over(self, projected: Variable, start: Variable, counts: Variable | None) -> tuple[Variable, Variable]:
        """Append the steps of [time, batch, ...]; counts is 1 for those that count. Return their states and the last one."""

        def body(inputs: list[Variable], states: list[Variable]) -> tuple[list[Variable], list[Variable]]:
            after = self.step(inputs[0], states[0])
            if counts is None:
                return [after], [after]
            # Behind the end of a sequence the state stays, and the output is 0: the change is multiplied by whether the step counts.
            change = self.helper.one("elementwise_sub", {"X": after, "Y": states[0]})
            held = self.helper.one("elementwise_mul", {"X": change, "Y": inputs[1]}, {"axis": 0})
            out = self.helper.one("elementwise_mul", {"X": after, "Y": inputs[1]}, {"axis": 0})
            return [self.helper.one("elementwise_add", {"X": states[0], "Y": held})], [out]

        (out,), (last,) = scan(body, [projected] if counts is None else [projected, counts], [start], backwards=self.back)
        return out, last


def _product(helper: LayerHelper, x: Variable, weight: Variable, bias: Variable | None) -> Variable:
    out = helper.one("matmul", {"X": x, "Y": weight})
    return out if bias is None else helper.one("elementwise_add", {"X": out, "Y": bias}, {"axis": -1})


def _stacked(
    helper: LayerHelper,
    cell: Cell,
    gates: int,
    input: Variable,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float,
    ways: tuple[bool, ...],
    init_h: Variable | None,
    lengths: Variable | None,
    time_major: bool,
    attrs: tuple[ParamAttr | bool | None, ...],
    is_test: bool,
) -> tuple[Variable, Variable]:
    """Append layers of a cell; see `gru`."""
    kind = helper.layer_type
    if hidden_size < 1 or num_layers < 1:
        raise helper.error(f"{kind}: hidden_size is {hidden_size} and num_layers {num_layers}, both must be at least 1")
    if len(input.shape) != 3 or input.shape[2] < 1:
        raise helper.error(f"{kind}: input is {input}", hint="give it the shape [batch, time, width]")
    # Scan goes through the first axis, so time comes first inside whatever the layout outside.
    x = input if time_major else helper.one("transpose", {"X": input}, {"axis": [1, 0, 2]})
    count, ends = num_layers * len(ways), list[Variable]()
    starts, counts = rows_of(helper, init_h, count), _counts(helper, x, lengths)
    for number in range(num_layers):
        # Dropout lies between layers, as in the original and in cuDNN: not before the first and not behind the last.
        if number and dropout_prob:
            rate = {"dropout_prob": dropout_prob, "is_test": is_test, "dropout_implementation": "upscale_in_train"}
            x, _ = helper.op("dropout", {"X": x}, rate, ("Out", "Mask"))
        outs = []
        for back in ways:
            ending = "" if count == 1 else f"_l{number}{'_reverse' * (len(ways) > 1 and back)}"
            made = parameters_of(helper, attrs, ending, x.shape[2], hidden_size, gates, x.dtype)
            # The products with the inputs are made for all steps at once; only those with the state wait for each other.
            projected = _product(helper, x, made["WeightIh"], made.get("BiasIh"))
            start = starts[len(ends)]
            if start is None:
                start = find("fill_constant_batch_size_like").fn(x, [-1, hidden_size], x.dtype, 0.0, 1, 0)
            out, last = _Way(helper, cell(made["WeightHh"], made.get("BiasHh")), back).over(projected, start, counts)
            outs.append(out)
            ends.append(last)
        # A layer sees both directions of the one below, so its input is as wide as their states side by side.
        x = outs[0] if len(outs) == 1 else helper.one("concat", {"X": outs}, {"axis": 2})
    out = x if time_major else helper.one("transpose", {"X": x}, {"axis": [1, 0, 2]})
    return out, helper.one("stack", {"X": ends}, output="Y")


def _counts(helper: LayerHelper, x: Variable, lengths: Variable | None) -> Variable | None:
    """Return [time, batch], 1 for steps that count, of x [time, batch, ...]; None where all do."""
    if lengths is None:
        return None
    if x.shape[0] < 1:
        raise helper.error(f"{helper.layer_type}: the steps of {x} are not known", hint="declare the feed with its sizes")
    flat = helper.one("reshape", {"X": lengths}, {"shape": [-1]})
    return helper.one("transpose", {"X": find("sequence_mask").fn(flat, x.shape[0], x.dtype)}, {"axis": [1, 0]})


def _ways(helper: LayerHelper, is_bidirec: bool, is_reverse: bool) -> tuple[bool, ...]:
    if is_bidirec and is_reverse:
        raise helper.error(f"{helper.layer_type}: is_bidirec runs both ways already", hint="leave is_reverse out")
    return (False, True) if is_bidirec else (is_reverse,)


@layer(made_of="scan")
def gru(
    input: Variable,
    hidden_size: int,
    num_layers: int = 1,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_reverse: bool = False,
    init_h: Variable | None = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    weight_ih_attr: ParamAttr | None = None,
    weight_hh_attr: ParamAttr | None = None,
    bias_ih_attr: ParamAttr | bool | None = None,
    bias_hh_attr: ParamAttr | bool | None = None,
    is_test: bool = False,
    name: str | None = None,
    reset_after: bool = True,
) -> tuple[Variable, Variable]:
    """Run GRU layers over padded sequences.

    r, z = s(x_r + h_r), s(x_z + h_z),  h' = z h + (1 - z) tanh(x_c + r h_c),  s = sigmoid, where x_r, x_z, x_c = split(x_t W_ih + b_ih)
    and h_r, h_z, h_c = split(h W_hh + b_hh); without reset_after, tanh(x_c + (r h) W_hh,c + b_hh,c)

    Args:
        input: [batch, time, width], or [time, batch, width] where time_major.
        hidden_size: units of each layer and direction.
        num_layers: layers, one on the output of the other.
        dropout_prob: chance of a zero between layers, rescaled in training.
        is_bidirec: every layer runs in both directions, and its outputs lie side by side.
        is_reverse: run from the last step to the first; not together with is_bidirec.
        init_h: [layers x directions, batch, hidden_size] states before the first step; 0 by default.
        sequence_length: [batch] or [batch, 1] int64 steps of each sequence; beyond them the output is 0, and states stay.
        time_major: time is the first axis of input and output.
        weight_ih_attr: of W_ih, [width, 3 hidden_size]; Xavier by default. With several layers or directions, a given name gets an
            ending: _l0, _l0_reverse, _l1, ...
        weight_hh_attr: of W_hh, [hidden_size, 3 hidden_size].
        bias_ih_attr: of b_ih, [3 hidden_size]; 0 by default; False for none.
        bias_hh_attr: of b_hh likewise.
        is_test: no dropout; `clone(for_test=True)` sets it.
        name: prefix of the names of the parameters.
        reset_after: the state is reset after its product with W_hh, as in Keras and PyTorch; otherwise before, as in Cho et al. 2014.

    Returns:
        Outputs [batch, time, directions x hidden_size] of the last layer, and the last states, [layers x directions, batch, hidden_size].

    Raises:
        PeError: sizes below 1, is_reverse with is_bidirec, or states that do not fit.

    Source:
        paddle.nn.GRU.
    """
    helper = LayerHelper("gru", name)

    def mixed(projected: Variable, update: Variable, seen: Variable, state: Variable) -> Variable:
        fresh = helper.one("tanh", {"X": helper.one("elementwise_add", {"X": projected, "Y": seen})})
        # z h + (1 - z) fresh with one multiplication.
        old = helper.one("elementwise_sub", {"X": state, "Y": fresh})
        return helper.one("elementwise_add", {"X": helper.one("elementwise_mul", {"X": old, "Y": update}), "Y": fresh})

    def after(weight: Variable, bias: Variable | None) -> Step:
        def step(projected: Variable, state: Variable) -> Variable:
            # cuDNN's form: the reset gate weighs the product with the state, so that all three products are one.
            around = _product(helper, state, weight, bias)
            parts = [find("split").fn(v, [2 * hidden_size, hidden_size], 1) for v in (projected, around)]
            both = helper.one("sigmoid", {"X": helper.one("elementwise_add", {"X": parts[0][0], "Y": parts[1][0]})})
            reset, update = find("split").fn(both, 2, 1)
            seen = helper.one("elementwise_mul", {"X": reset, "Y": parts[1][1]})
            return mixed(parts[0][1], update, seen, state)

        return step

    def before(weight: Variable, bias: Variable | None) -> Step:
        gates, inner = find("split").fn(weight, [2 * hidden_size, hidden_size], 1)
        shifts = (None, None) if bias is None else find("split").fn(bias, [2 * hidden_size, hidden_size], 0)

        def step(projected: Variable, state: Variable) -> Variable:
            first, last = find("split").fn(projected, [2 * hidden_size, hidden_size], 1)
            around = _product(helper, state, gates, shifts[0])
            both = helper.one("sigmoid", {"X": helper.one("elementwise_add", {"X": first, "Y": around})})
            reset, update = find("split").fn(both, 2, 1)
            # The form of the first paper weighs the state before the product, which so waits for the reset gate.
            seen = _product(helper, helper.one("elementwise_mul", {"X": reset, "Y": state}), inner, shifts[1])
            return mixed(last, update, seen, state)

        return step

    attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
    ways = _ways(helper, is_bidirec, is_reverse)
    cell = after if reset_after else before
    return _stacked(
        helper, cell, 3, input, hidden_size, num_layers, dropout_prob, ways, init_h, sequence_length, time_major, attrs, is_test
    )


@layer(made_of="scan")
def simple_rnn(
    input: Variable,
    hidden_size: int,
    num_layers: int = 1,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_reverse: bool = False,
    activation: str = "tanh",
    init_h: Variable | None = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    weight_ih_attr: ParamAttr | None = None,
    weight_hh_attr: ParamAttr | None = None,
    bias_ih_attr: ParamAttr | bool | None = None,
    bias_hh_attr: ParamAttr | bool | None = None,
    is_test: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run simple recurrent layers over padded sequences.

    h' = act(x_t W_ih + b_ih + h W_hh + b_hh)

    Args:
        input: [batch, time, width], or [time, batch, width] where time_major.
        hidden_size: units of each layer and direction.
        num_layers: layers, one on the output of the other.
        dropout_prob: chance of a zero between layers, rescaled in training.
        is_bidirec: every layer runs in both directions, and its outputs lie side by side.
        is_reverse: run from the last step to the first; not together with is_bidirec.
        activation: tanh or relu.
        init_h: [layers x directions, batch, hidden_size] states before the first step; 0 by default.
        sequence_length: [batch] or [batch, 1] int64 steps of each sequence; beyond them the output is 0, and states stay.
        time_major: time is the first axis of input and output.
        weight_ih_attr: of W_ih, [width, hidden_size]; Xavier by default. With several layers or directions, a given name gets an
            ending: _l0, _l0_reverse, _l1, ...
        weight_hh_attr: of W_hh, [hidden_size, hidden_size].
        bias_ih_attr: of b_ih, [hidden_size]; 0 by default; False for none.
        bias_hh_attr: of b_hh likewise.
        is_test: no dropout; `clone(for_test=True)` sets it.
        name: prefix of the names of the parameters.

    Returns:
        Outputs [batch, time, directions x hidden_size] of the last layer, and the last states, [layers x directions, batch, hidden_size].

    Raises:
        PeError: sizes below 1, is_reverse with is_bidirec, another activation, or states that do not fit.

    Source:
        paddle.nn.SimpleRNN; Elman 1990.
    """
    helper = LayerHelper("simple_rnn", name)
    if activation not in ("tanh", "relu"):
        raise helper.error(f"simple_rnn: activation is {activation!r}", hint="tanh or relu")

    def cell(weight: Variable, bias: Variable | None) -> Step:
        def step(projected: Variable, state: Variable) -> Variable:
            around = _product(helper, state, weight, bias)
            return helper.one(activation, {"X": helper.one("elementwise_add", {"X": projected, "Y": around})})

        return step

    attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
    ways = _ways(helper, is_bidirec, is_reverse)
    return _stacked(
        helper, cell, 1, input, hidden_size, num_layers, dropout_prob, ways, init_h, sequence_length, time_major, attrs, is_test
    )
