"""Layers on sequences: tensors whose feeds declare lod_level; their rows group into sequences of any length."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

POOL_TYPES = ("sum", "average", "sqrt", "max", "min", "last", "first")


@layer
def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Put one row in the place of every sequence.

    Args:
        input: [rows, ...] with sequences.
        pool_type: sum, average, sqrt (the sum over the root of the length), max, min, last or first.
        is_test: of fluid's; changes nothing.
        pad_value: value of an empty sequence, unit of input.

    Returns:
        [sequences, ...], dtype of input.

    Raises:
        PeError: another pool_type; input has no sequences.

    Source:
        fluid.layers.sequence_pool.
    """
    helper = LayerHelper("sequence_pool")
    if pool_type.lower() not in POOL_TYPES:
        raise helper.error(f"sequence_pool: pool_type is '{pool_type}'", hint=f"one of {', '.join(POOL_TYPES)}")
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    # These take numbers as they are, and MaxIndex says from which row, for the gradient; sums spread theirs over all rows.
    picks = pool_type.lower() in ("max", "min", "last", "first")
    return helper.op("sequence_pool", {"X": input}, attrs, ("Out", "MaxIndex") if picks else ("Out",))[0]


@layer
def sequence_first_step(input: Variable) -> Variable:
    """Take the first row of every sequence.

    Args:
        input: [rows, ...] with sequences.

    Returns:
        [sequences, ...], dtype of input; 0 for an empty sequence.

    Source:
        fluid.layers.sequence_first_step.
    """
    first: Variable = sequence_pool(input, "first")
    return first


@layer
def sequence_last_step(input: Variable) -> Variable:
    """Take the last row of every sequence.

    Args:
        input: [rows, ...] with sequences.

    Returns:
        [sequences, ...], dtype of input; 0 for an empty sequence.

    Source:
        fluid.layers.sequence_last_step.
    """
    last: Variable = sequence_pool(input, "last")
    return last


@layer
def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: ParamAttr | bool | None = None,
    param_attr: ParamAttr | None = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve along sequences: every row and its neighbours in the sequence, zeros outside, times weights.

    out[r] = act([x[r + s], ..., x[r + s + filter_size - 1]] W + b), s = padding_start

    Args:
        input: [rows, width] with sequences.
        num_filters: numbers of an output row.
        filter_size: rows of a window.
        filter_stride: 1.
        padding: of fluid's; changes nothing.
        padding_start: first row of a window: 0 the row itself, -1 the one before; half a window back by default.
        bias_attr: of b, [num_filters]; 0 by default; False for none.
        param_attr: of W, [filter_size width, num_filters]; Xavier by default.
        act: name of an activation, or None.
        name: prefix of the names of W and b.

    Returns:
        [rows, num_filters], dtype and sequences of input.

    Raises:
        PeError: filter_stride is not 1, sizes below 1, or input is no matrix with sequences.

    Source:
        fluid.layers.sequence_conv.
    """
    # The original adds zeros whatever it is told: without them the first and last rows would have no window.
    del padding
    helper = LayerHelper("sequence_conv", name)
    if filter_stride != 1:
        raise helper.error(f"sequence_conv: filter_stride is {filter_stride}", hint="only 1 is there, as in fluid")
    # Windows are centred, with one row more before where filter_size is even.
    start = -(filter_size // 2) if padding_start is None else padding_start
    window = helper.one("sequence_context", {"X": input}, {"start": start, "length": filter_size})
    weight = helper.parameter(param_attr, (window.shape[1], num_filters), input.dtype)
    out = helper.one("mul", {"X": window, "Y": weight}, {"x_num_col_dims": 1, "y_num_col_dims": 1})
    return helper.activate(helper.add_bias(out, bias_attr, axis=1), act)
