"""One step of a gated recurrent unit as a layer: gru_unit."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

_ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")


@layer
def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """Run one step of a gated recurrent unit; an fc before it makes its input, and a scan repeats it.

    With [x_u, x_r, x_c] = input + b: u = gate(x_u + hidden W_u), r = gate(x_r + hidden W_r), c = act(x_c + (r hidden) W_c),
    h = (1 - u) hidden + u c; with origin_mode h = u hidden + (1 - u) c.

    Args:
        input: [batch, 3 width] float32 or float64: update gate, reset gate, candidate.
        hidden: [batch, width], the state before the step.
        size: 3 width.
        param_attr: of the weights, [width, 3 width]; the first 2 width^2 numbers are [W_u, W_r], the last width^2 W_c. Xavier by
            default.
        bias_attr: of b, [1, 3 width]; 0 by default; False for none.
        activation: identity, sigmoid, tanh or relu, of the candidate.
        gate_activation: likewise, of the gates.
        origin_mode: the update gate keeps, as in the first paper, instead of replacing.

    Returns:
        h and r hidden, [batch, width] each, and the gates [u, r, c], [batch, 3 width].

    Raises:
        PeError: sizes that do not fit, or an unknown activation.

    Source:
        fluid.layers.gru_unit; Chung et al. 2014, Cho et al. 2014.
    """
    helper = LayerHelper("gru_unit")
    helper.check_rank(input, "input", 2, "[batch, 3 width]")
    helper.check_rank(hidden, "hidden", 2, "[batch, width]")
    width = size // 3
    if size < 3 or size % 3 or input.shape[1] != size or hidden.shape[1] != width:
        hint = "size is 3 width; put fc with that size before it"
        raise helper.error(f"gru_unit: size is {size}, input {input} and hidden {hidden}, which do not fit", hint=hint)
    for name, value in (("activation", activation), ("gate_activation", gate_activation)):
        if value not in _ACTIVATIONS:
            raise helper.error(f"gru_unit: {name} is {value!r}", hint=f"one of {', '.join(_ACTIVATIONS)}")
    # Products go with the raw numbers of one parameter, whose shape [width, 3 width] is a name for them: W_u, W_r and W_c are no columns.
    weight = helper.parameter(param_attr, (width, size), input.dtype)
    if bias_attr is not False:
        bias = helper.parameter(bias_attr, (1, size), input.dtype, is_bias=True)
        input = helper.one("elementwise_add", {"X": input, "Y": bias})
    # The original keeps both matrices in one parameter, one behind the other; a checkpoint of it fits.
    numbers = helper.one("reshape", {"X": weight}, {"shape": [3 * width * width]})
    parts = []
    for begin, columns in ((0, 2 * width), (2 * width * width, width)):
        attrs = {"axes": [0], "starts": [begin], "ends": [begin + columns * width]}
        part = helper.one("slice", {"Input": numbers}, attrs)
        parts.append(helper.one("reshape", {"X": part}, {"shape": [width, columns]}))

    def columns_of(x: Variable, begin: int, end: int) -> Variable:
        return helper.one("slice", {"Input": x}, {"axes": [1], "starts": [begin], "ends": [end]})

    def activated(name: str, x: Variable, state: Variable, matrix: Variable) -> Variable:
        total = helper.one("elementwise_add", {"X": x, "Y": helper.one("mul", {"X": state, "Y": matrix})})
        return total if name == "identity" else helper.one(name, {"X": total})

    gates = activated(gate_activation, columns_of(input, 0, 2 * width), hidden, parts[0])
    update, reset = columns_of(gates, 0, width), columns_of(gates, width, 2 * width)
    held = helper.one("elementwise_mul", {"X": reset, "Y": hidden})
    fresh = activated(activation, columns_of(input, 2 * width, size), held, parts[1])
    # origin_mode is the first paper's: the update gate keeps the old state instead of taking the new one.
    old, new = (fresh, hidden) if origin_mode else (hidden, fresh)
    gap = helper.one("elementwise_sub", {"X": new, "Y": old})
    state = helper.one("elementwise_add", {"X": old, "Y": helper.one("elementwise_mul", {"X": update, "Y": gap})})
    return state, held, helper.one("concat", {"X": [gates, fresh]}, {"axis": 1})
