"""Layers on pairs of sequences, and on the images that they make: match_matrix_tensor, sequence_topk_avg_pooling, var_conv_2d."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, pair
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


def _check_dtype(helper: LayerHelper, x: Variable, dtype: str) -> None:
    if dtype != x.dtype:
        raise helper.error(f"{helper.layer_type}: dtype is {dtype}, but its input is {x.dtype}", hint="cast the input, or leave dtype out")


@layer
def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: ParamAttr | None = None,
    dtype: str | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Measure how well every row of a sequence goes with every row of another, in several ways that are learned.

    out[t, r, c] = act(x[r] W[:, t] y[c]) for the rows r and c of two sequences at the same place.

    Args:
        x: [rows, width] with sequences: questions, say.
        y: [rows, width of y] dtype of x, with as many sequences: titles, say.
        channel_num: ways.
        act: name of an activation, or None.
        param_attr: of W, [width, channel_num, width of y]; Xavier by default.
        dtype: that of x, which it has by default.
        name: prefix of the name of W.

    Returns:
        [numbers of all images, 1], dtype of x: for each pair of sequences an image [channel_num, rows of x, rows of y] as a sequence.
        [rows of x channel_num width of y, 1]: x W, number by number.

    Raises:
        PeError: types that do not fit, rows without sequences, or dtype is not that of x; before a step, another number of sequences.

    Source:
        fluid.contrib.layers.match_matrix_tensor; Wan et al. 2016, 'Match-SRNN'.
    """
    helper = LayerHelper("match_matrix_tensor", name)
    _check_dtype(helper, x, dtype or x.dtype)
    for what, v in (("x", x), ("y", y)):
        helper.check_rank(v, what, 2, "[rows, width]")
    if channel_num < 1:
        raise helper.error(f"match_matrix_tensor: channel_num is {channel_num}", hint="at least 1")
    weight = helper.parameter(param_attr, (x.shape[1], channel_num, y.shape[1]), x.dtype)
    # x W is one product for all pairs of sequences; only what is multiplied with y depends on which rows belong together.
    turned = helper.one("mul", {"X": x, "Y": weight}, {"x_num_col_dims": 1, "y_num_col_dims": 1})
    out = helper.one("pair_products", {"X": turned, "Y": y})
    return helper.activate(out, act), helper.one("reshape", {"X": turned}, {"shape": [-1, 1]})


@layer
def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | list[int],
    stride: int | list[int] = 1,
    param_attr: ParamAttr | None = None,
    act: str | None = None,
    dtype: str | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve images that have sizes of their own, with zeros around them, so that stride 1 keeps their sizes.

    Args:
        input: [numbers of all images, 1] with a sequence for each image, [input_channel, rows, columns], as match_matrix_tensor gives them.
        row: with sequences as long as the images have rows; its values do not count.
        col: with sequences as long as they have columns.
        input_channel: channels of every image.
        output_channel: filters.
        filter_size: rows and columns of a filter, or one number for both.
        stride: rows and columns from one place to the next, or one number for both.
        param_attr: of the filters, [output_channel, input_channel rows columns]; Xavier by default.
        act: name of an activation, or None.
        dtype: that of input, which it has by default.
        name: prefix of the filters' name.

    Returns:
        [numbers of all images, 1], dtype of input: for each image [output_channel, (rows - 1) // stride + 1, (columns - 1) // stride + 1].

    Raises:
        PeError: types or sizes that do not fit, or dtype is not that of input; before a step, sequences that are no such images.

    Source:
        fluid.contrib.layers.var_conv_2d.
    """
    helper = LayerHelper("var_conv_2d", name)
    _check_dtype(helper, input, dtype or input.dtype)
    size, strides = pair("var_conv_2d", "filter_size", filter_size, 1), pair("var_conv_2d", "stride", stride, 1)
    if output_channel < 1:
        raise helper.error(f"var_conv_2d: output_channel is {output_channel}", hint="at least 1")
    inputs = {"X": input, "ROW": row, "COLUMN": col}
    # Images differ in size, but their windows do not: all windows of all images become rows of one product with the filters.
    windows = helper.one("varied_windows", inputs, {"channels": input_channel, "size": size, "strides": strides})
    weight = helper.parameter(param_attr, (output_channel, input_channel * size[0] * size[1]), input.dtype)
    made = helper.one("matmul", {"X": windows, "Y": weight}, {"transpose_Y": True})
    # The product has the channels last; the images want each channel's pixels together.
    return helper.activate(helper.one("varied_channels", {"X": made}), act)
