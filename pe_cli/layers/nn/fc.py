"""The fully connected layer."""

from __future__ import annotations

from pe_cli.core.types import product
from pe_cli.layers.define.helper import LayerHelper, as_list, attr_for_each
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def fc(
    input: list[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Connect every input to every output.

    Out = act(sum_i input_i W_i + b)

    Args:
        input: one tensor or several, [batch, ...] float32 or float64.
        size: outputs, no unit.
        num_flatten_dims: leading axes that stay; the others are flattened. -1 for all but the last.
        param_attr: of W, [flattened sizes, size]; Xavier by default.
        bias_attr: of b, [size]; 0 by default; False for none.
        act: name of an activation, or None.
        name: prefix of the names of W and b.

    Returns:
        [leading axes, size], dtype of input.

    Raises:
        PeError: size below 1, or a flattened size that is not known.

    Source:
        fluid.layers.fc.
    """
    helper = LayerHelper("fc", name)
    if size < 1:
        raise helper.error(f"fc: size must be at least 1, got {size}")
    inputs = as_list(input)
    products = []
    for x, attr in zip(inputs, attr_for_each(param_attr, len(inputs)), strict=True):
        # Counted for each input by itself, as their ranks may differ.
        kept = len(x.shape) - 1 if num_flatten_dims == -1 else num_flatten_dims
        if not 0 < kept < len(x.shape):
            raise helper.error(
                f"fc: num_flatten_dims is {num_flatten_dims}, but the input is {x}",
                hint=f"set it from 1 to {len(x.shape) - 1}" if len(x.shape) > 1 else "reshape the input to two axes",
            )
        weight = helper.parameter(attr, (product(x.shape[kept:]), size), x.dtype)
        # Without flattening: the op takes the first axes as rows and the others as columns.
        products.append(helper.one("mul", {"X": x, "Y": weight}, {"x_num_col_dims": kept, "y_num_col_dims": 1}))
    total = products[0] if len(products) == 1 else helper.one("sum", {"X": products})
    return helper.activate(helper.add_bias(total, bias_attr, axis=len(total.shape) - 1), act)
