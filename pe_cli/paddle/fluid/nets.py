"""Small networks of several layers."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.naming import Naming, appended
from pe_cli.paddle.reference_names import missing
from pe_cli.program.ir import Variable


def simple_img_conv_pool(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int | None = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Any:
    """Convolve, then pool."""
    out = layers.conv2d(
        input,
        num_filters,
        filter_size,
        conv_stride,
        conv_padding,
        conv_dilation,
        conv_groups,
        param_attr,
        bias_attr,
        act=act,
    )
    return layers.pool2d(out, pool_size, pool_type, pool_stride, pool_padding, global_pooling)


def img_conv_group(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    conv_num_filter: Any,
    pool_size: Any,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: Any = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Any:
    """Convolve several times, each with batch_norm and dropout where asked for, then pool.

    Raises:
        FluidValueError: an argument is a list of another length than there are convolutions.
    """
    count = len(conv_num_filter)

    def each(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            return [value] * count
        if len(value) != count:
            raise FluidValueError(f"img_conv_group has {count} convolutions, got {list(value)}")
        return list(value)

    facts = (
        each(v) for v in (conv_padding, conv_filter_size, param_attr, conv_with_batchnorm, conv_batchnorm_drop_rate)
    )
    out = input
    for filters, padding, size, attr, normalised, rate in zip(conv_num_filter, *facts, strict=True):
        # With normalisation between them, the activation belongs behind the normalisation.
        act = None if normalised else conv_act
        out = layers.conv2d(out, filters, size, padding=padding, param_attr=attr, act=act)
        if normalised:
            out = layers.batch_norm(out, act=conv_act)
            # Rates near 0 mean none, as the original's comparison has it.
            out = layers.dropout(out, rate) if rate > 1e-3 else out
    return layers.pool2d(out, pool_size, pool_type, pool_stride)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Any:
    """Convolve along sequences, then make a row of each."""
    attrs = {"param_attr": param_attr, "bias_attr": bias_attr, "act": act}
    return layers.sequence_pool(layers.sequence_conv(input, num_filters, filter_size, **attrs), pool_type)


def glu(input: Variable, dim: int = -1) -> Any:
    """Multiply the first half along an axis by the sigmoid of the second."""
    first, second = layers.split(input, num_or_sections=2, dim=dim)
    return layers.elementwise_mul(first, layers.sigmoid(second))


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Any:
    """Weigh values by softmax(queries keys^T / sqrt(width of a head)); [batch, time, width] each.

    Raises:
        FluidValueError: sizes that do not fit; a ValueError.
    """
    if not len(queries.shape) == len(keys.shape) == len(values.shape) == 3:
        raise FluidValueError("queries, keys and values must be [batch, time, width]")
    if queries.shape[-1] != keys.shape[-1] or keys.shape[1] != values.shape[1]:
        raise FluidValueError(f"queries {queries}, keys {keys} and values {values} do not fit")
    if keys.shape[-1] % num_heads or values.shape[-1] % num_heads:
        raise FluidValueError(f"{num_heads} heads do not divide the widths {keys.shape[-1]} and {values.shape[-1]}")
    # With one head the original projects nothing.
    if num_heads > 1:
        queries, keys, values = (
            layers.fc(v, v.shape[-1], num_flatten_dims=2) for v in (queries, keys, values)
        )
    # Without dropout everything is one fused op; dropout is on the weights, which that op does not keep.
    if not dropout_rate:
        # The original appends these layers, of which the last one names the result.
        several = num_heads > 1
        last = Naming(
            "matmul",
            ("reshape2.tmp_0" if several else "matmul.tmp_0",),
            {"scale": 1, "reshape2": 5 if several else 2, "matmul": int(several), "transpose": 4 * several},
        )
        return appended(lambda: layers.attention(queries, keys, values, num_heads=num_heads), last)
    width = keys.shape[-1] // num_heads
    q, k, v = (_heads(x, num_heads) for x in (queries, keys, values))
    weights = layers.softmax(layers.matmul(layers.scale(q, 1 / math.sqrt(width)), k, transpose_y=True))
    out = layers.matmul(layers.dropout(weights, dropout_rate, is_test=False), v)
    if num_heads == 1:
        return out
    joined = layers.transpose(out, [0, 2, 1, 3])
    return layers.reshape(joined, [0, joined.shape[1], joined.shape[2] * joined.shape[3]])


def _heads(x: Variable, heads: int) -> Any:
    if heads == 1:
        return x
    parted = layers.reshape(x, [0, x.shape[1], heads, x.shape[2] // heads])
    return layers.transpose(parted, [0, 2, 1, 3])


__getattr__ = missing("fluid.nets", lambda: globals())
