"""The cell of an LSTM as a layer: lstm_unit."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run one step of a long short-term memory; a scan repeats it.

    i, f, o, g = split([x_t, hidden_t_prev] W + b),  c = s(f + forget_bias) cell_t_prev + s(i) tanh(g),  h = s(o) tanh(c), s = sigmoid

    Args:
        x_t: [batch, inputs] float32 or float64.
        hidden_t_prev: [batch, units], the output of the step before.
        cell_t_prev: [batch, units], the cell of the step before.
        forget_bias: added to f, no unit.
        param_attr: of W, [inputs + units, 4 units]; Xavier by default.
        bias_attr: of b, [4 units]; 0 by default; False for none.
        name: prefix of the names of W and b.

    Returns:
        h and c, [batch, units] each.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.lstm_unit.
    """
    helper = LayerHelper("lstm_unit", name)
    for given, what in ((x_t, "x_t"), (hidden_t_prev, "hidden_t_prev"), (cell_t_prev, "cell_t_prev")):
        helper.check_rank(given, what, 2, "[batch, width]")
    width = cell_t_prev.shape[1]
    if hidden_t_prev.shape[1] != width:
        raise helper.error(f"lstm_unit: hidden_t_prev is {hidden_t_prev} and cell_t_prev {cell_t_prev}, whose widths differ")
    # One product for input and state: W has the rows of both, as in the original, so that its checkpoints fit.
    both = find("concat").fn([x_t, hidden_t_prev], 1)
    gates = find("fc").fn(both, 4 * width, param_attr=param_attr, bias_attr=bias_attr, name=name)
    cell, hidden, _ = helper.op("lstm_unit", {"X": gates, "C_prev": cell_t_prev}, {"forget_bias": forget_bias}, ("C", "H", "Gates"))
    return hidden, cell
