"""Layers of products of two inputs, and of places in a sequence: bilinear_tensor_product, fsp_matrix, add_position_encoding."""

from __future__ import annotations

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import known_images
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
) -> Variable:
    """Combine two vectors by a matrix for every output.

    Out[i, k] = act(x[i] W_k y[i] + b_k)

    Args:
        x: [batch, width of x].
        y: [batch, width of y], dtype of x.
        size: outputs, at least 1.
        act: name of an activation, or None.
        name: prefix of the names of the parameters.
        param_attr: of W, [size, width of x, width of y].
        bias_attr: of b, [size]; 0 by default; false for none.

    Returns:
        [batch, size].

    Raises:
        PeError: other numbers of axes, widths that are not known, or a size below 1.

    Source:
        fluid.layers.bilinear_tensor_product.
    """
    helper = LayerHelper("bilinear_tensor_product", name)
    helper.check_rank(x, "x", 2, "[batch, width]")
    helper.check_rank(y, "y", 2, "[batch, width]")
    if size < 1 or x.dtype != y.dtype:
        raise helper.error(f"bilinear_tensor_product: size is {size}, x {x} and y {y}", hint="a size of at least 1, and one dtype")
    wide, high = x.shape[1], y.shape[1]
    weight = helper.parameter(param_attr, [size, wide, high], x.dtype)
    # x W_k for all k is one product with a wide table; y is then multiplied row by row, so that no product of three is needed.
    table = helper.one("transpose", {"X": weight}, {"axis": [1, 0, 2]})
    table = helper.one("reshape", {"X": table}, {"shape": [wide, size * high]})
    halves = helper.one("reshape", {"X": helper.one("matmul", {"X": x, "Y": table})}, {"shape": [-1, size, high]})
    pairs = helper.one("elementwise_mul", {"X": halves, "Y": helper.one("unsqueeze", {"X": y}, {"axes": [1]})})
    out = helper.one("reduce_sum", {"X": pairs}, {"dim": [2]})
    return helper.activate(helper.add_bias(out, bias_attr, axis=1), act)


@layer
def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Average the product of every pair of channels of two images over their pixels: how features flow from one to the other.

    Out[i, c, d] = mean over h and w of x[i, c, h, w] y[i, d, h, w]

    Args:
        x: [batch, channels of x, height, width], sizes known but for the batch.
        y: [batch, channels of y, height, width], dtype of x.

    Returns:
        [batch, channels of x, channels of y].

    Raises:
        PeError: no images of known size, or of two sizes.

    Source:
        fluid.layers.fsp_matrix; Yim et al. 2017, eq. 1.
    """
    helper = LayerHelper("fsp_matrix")
    _, *first = known_images(helper, x)
    _, *second = known_images(helper, y)
    if first != second:
        raise helper.error(f"fsp_matrix needs images of one size, got {x} and {y}", hint="resize one of them")
    pixels = first[0] * first[1]
    a, b = (helper.one("reshape", {"X": v}, {"shape": [0, v.shape[1], pixels]}) for v in (x, y))
    # alpha divides within the product, so that no second op goes over the matrices.
    return helper.one("matmul", {"X": a, "Y": b}, {"transpose_Y": True, "alpha": 1.0 / pixels})


@layer
def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """Add waves of many lengths to sequences, by which a model tells places apart.

    Out[i, t] = alpha input[i, t] + beta [sin(t / 10000^(k / (half - 1))), cos(t / 10000^(k / (half - 1)))], k from 0 to half - 1,
    half = width / 2

    Args:
        input: [batch, time, width]; time is known, the width even.
        alpha: weight of the input.
        beta: weight of the waves.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: the length is not known, or the width is odd.

    Source:
        fluid.layers.add_position_encoding; Vaswani et al. 2017, section 3.5.
    """
    helper = LayerHelper("add_position_encoding", name)
    helper.check_rank(input, "the input", 3, "[batch, time, width]")
    _, steps, width = input.shape
    if steps < 1 or width < 2 or width % 2:
        raise helper.error(f"add_position_encoding needs a known length and an even width, got {input}")
    # A constant of the graph: steps and width are known, and no gradient flows to it.
    code = positions(steps, width)
    attrs = {"shape": [steps, width], "dtype": input.dtype, "values": code.ravel().tolist()}
    waves = helper.one("scale", {"X": helper.one("assign_value", {}, attrs)}, {"scale": beta})
    return helper.one("elementwise_add", {"X": helper.one("scale", {"X": input}, {"scale": alpha}), "Y": waves})


def positions(steps: int, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return [steps, width]: sines in the first half of the width, cosines in the second."""
    # Sines and cosines side by side, as in the original, not in turn as in the paper: weights behind them know this order.
    angles = np.arange(steps)[:, None] / rates_of(width)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def rates_of(width: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return [width / 2]: how many steps a wave needs for one radian, the shortest first."""
    half = width // 2
    # With half of 1 the exponent is 0 / 0; the original takes the largest wave length then.
    return 10000.0 ** (np.arange(half) / (half - 1)) if half > 1 else np.array([10000.0])
