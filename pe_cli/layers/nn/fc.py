"""Matrix layers: fc, mul, matmul."""

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
        kept = len(x.shape) - 1 if num_flatten_dims == -1 else num_flatten_dims
        if not 0 < kept < len(x.shape):
            raise helper.error(
                f"fc: num_flatten_dims is {num_flatten_dims}, but the input is {x}",
                hint=f"set it from 1 to {len(x.shape) - 1}" if len(x.shape) > 1 else "reshape the input to two axes",
            )
        weight = helper.parameter(attr, (product(x.shape[kept:]), size), x.dtype)
        products.append(helper.one("mul", {"X": x, "Y": weight}, {"x_num_col_dims": kept, "y_num_col_dims": 1}))
    total = products[0] if len(products) == 1 else helper.one("sum", {"X": products})
    return helper.activate(helper.add_bias(total, bias_attr, axis=len(total.shape) - 1), act)


@layer
def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Variable:
    """Multiply two tensors as matrices.

    Args:
        x: its first x_num_col_dims axes are rows, the others inner.
        y: its first y_num_col_dims axes are inner, the others columns.
        x_num_col_dims: at least 1.
        y_num_col_dims: at least 1.
        name: prefix of the output's name.

    Returns:
        Leading axes of x, then trailing axes of y.

    Raises:
        PeError: inner sizes differ.

    Source:
        fluid.layers.mul.
    """
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return LayerHelper("mul", name).one("mul", {"X": x, "Y": y}, attrs)


@layer
def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Multiply matrices, or batches of them.

    Out[..., i, j] = alpha sum_k x[..., i, k] y[..., k, j]

    Args:
        x: [..., m, k], or a vector [k].
        y: [..., k, n], or a vector [k]; axes before the last two are broadcast.
        transpose_x: swap the last two axes of x first.
        transpose_y: swap the last two axes of y first.
        alpha: factor on the product, no unit.
        name: prefix of the output's name.

    Returns:
        [..., m, n]; vectors' axes of size 1 left out.

    Raises:
        PeError: inner sizes or batch axes do not fit.

    Source:
        fluid.layers.matmul.
    """
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": alpha}
    return LayerHelper("matmul", name).one("matmul", {"X": x, "Y": y}, attrs)
