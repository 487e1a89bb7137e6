"""Functions of images, attention and noise that 2.1 to 2.6 have, composed of layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.common import channels_first, dropout
from pe_cli.paddle.nn.functional.conv import conv2d_transpose
from pe_cli.paddle.nn.functional.later_losses import _filled
from pe_cli.paddle.nn.functional.reduction import reduced
from pe_cli.paddle.nn.functional.sizes import two
from pe_cli.paddle.nn.functional.vision import pad
from pe_cli.paddle.v2_composed_functions import _like


def _image(function: str, x: Any, data_format: str) -> bool:
    """Return whether the channels are the second of four axes.

    Raises:
        FluidValueError: another layout, or another number of axes.
    """
    first = channels_first(function, data_format)
    if len(x.shape) != 4 or data_format not in ("NCHW", "NHWC"):
        raise FluidValueError(f"{function}: {x} in the layout {data_format}", hint="images, NCHW or NHWC")
    return first


def channel_shuffle(x: Any, groups: int, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Deal the channels of every group over new groups: channel i of g groups of n becomes i // n + (i % n) g."""
    if _image("channel_shuffle", x, data_format):
        return call("shuffle_channel", x, groups)
    return call("transpose", call("shuffle_channel", call("transpose", x, [0, 3, 1, 2]), groups), [0, 2, 3, 1])


def pixel_unshuffle(x: Any, downscale_factor: int, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Turn pixels into channels: [N, C, H r, W r] becomes [N, C r r, H, W].

    Raises:
        FluidValueError: sizes that r does not divide, or that only a step knows.
    """
    if not _image("pixel_unshuffle", x, data_format):
        turned = pixel_unshuffle(call("transpose", x, [0, 3, 1, 2]), downscale_factor)
        return call("transpose", turned, [0, 2, 3, 1])
    r, (_, channels, high, wide) = downscale_factor, x.shape
    if r < 1 or min(channels, high, wide) < 1 or high % r or wide % r:
        raise FluidValueError(f"pixel_unshuffle: {x} by {r}", hint="height and width that it divides")
    parts = call("transpose", call("reshape", x, [0, channels, high // r, r, wide // r, r]), [0, 1, 3, 5, 2, 4])
    return call("reshape", parts, [0, channels * r * r, high // r, wide // r])


def zeropad2d(x: Any, padding: Any, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Put zeros around images: a number, or columns left and right, rows above and below."""
    return pad(x, [padding] * 4 if isinstance(padding, int) else padding, "constant", 0.0, data_format, name)


def fold(
    x: Any,
    output_sizes: Any,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Any:
    """Put the windows that `unfold` cuts back to their places in images, adding up where they overlap.

    Args:
        x: [batch, channels * window, windows].
        output_sizes: of the images, a number or two.
        kernel_sizes: of a window.
        strides: pixels between windows.
        paddings: a number, two, or four: above, left, below, right.
        dilations: pixels between those of a window.
        name: without effect.

    Raises:
        FluidValueError: as many windows do not fit.
    """
    (high, wide), (tall, broad), (down, right), (apart_y, apart_x) = map(two, (output_sizes, kernel_sizes, strides, dilations))
    around = two(paddings) * (1 if isinstance(paddings, (list, tuple)) and len(paddings) == 4 else 2)
    whole = high + around[0] + around[2], wide + around[1] + around[3]
    used = apart_y * (tall - 1) + 1, apart_x * (broad - 1) + 1
    rows, columns = ((a - b) // s + 1 for a, b, s in zip(whole, used, (down, right), strict=True))
    inner = tall * broad
    if len(x.shape) != 3 or x.shape[1] % inner or x.shape[2] != rows * columns:
        raise FluidValueError(f"fold: {x} into {rows} times {columns} windows of {inner}", hint="[batch, channels * window, windows]")
    channels = x.shape[1] // inner
    # A transposed convolution whose filters have a single 1: each pixel of a window goes to its place.
    ones = np.tile(np.eye(inner, dtype=x.dtype).reshape(inner, 1, tall, broad), (channels, 1, 1, 1))
    images = conv2d_transpose(
        call("reshape", x, [0, x.shape[1], rows, columns]), layers.assign(ones), None, [down, right], 0, 0, [apart_y, apart_x], channels
    )
    missing = [a - ((n - 1) * s + u) for a, n, s, u in zip(whole, (rows, columns), (down, right), used, strict=True)]
    if any(missing):
        images = call("pad", images, [0, 0, 0, 0, 0, missing[0], 0, missing[1]], 0.0)
    return call("slice", images, [2, 3], around[:2], [around[0] + high, around[1] + wide])


def _unpooled(function: str, layout: str, x: Any, indices: Any, windows: tuple[Any, Any, Any], output_size: Any, data_format: str) -> Any:
    count = len(layout) - 2
    if data_format != layout or len(x.shape) != count + 2 or list(x.shape) != list(indices.shape):
        raise FluidValueError(f"{function}: {x} with places {indices} in the layout {data_format}", hint=f"two of one shape, {layout}")
    size, stride, around = ([v] * count if isinstance(v, int) else list(v) for v in (windows[0], windows[1] or windows[0], windows[2]))
    before = list(x.shape[2:])
    sizes = [(n - 1) * s + k - 2 * p for n, k, s, p in zip(before, size, stride, around, strict=True)]
    if output_size is not None:
        wanted = [int(v) for v in output_size][-count:]
        if any(not w - s < given < w + s for w, s, given in zip(sizes, stride, wanted, strict=True)):
            raise FluidValueError(f"{function}: output_size is {wanted}", hint=f"less than a stride from {sizes}")
        sizes = wanted
    area = math.prod(sizes)
    flat, places = (call("reshape", v, [-1, math.prod(before)]) for v in (x, indices))
    empty = call("fill_constant_batch_size_like", flat, [-1, area], x.dtype, 0.0)
    at = call("cast", places, "int64")
    placed = call("put_along_axis", empty, at, flat, 1)
    if any(s < k for s, k in zip(stride, size, strict=True)):
        # Windows that overlap found one place twice: each gets the gradient of that place, as each term of a sum does.
        added = call("put_along_axis", empty, at, flat, 1, "add")
        rest = call("elementwise_sub", placed, added)
        rest.stop_gradient = True
        placed = call("elementwise_add", added, rest)
    return call("reshape", placed, [-1, x.shape[1], *sizes])


def _unpool(dims: int, layout: str) -> Any:
    name = f"max_unpool{dims}d"

    def made(
        x: Any,
        indices: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        data_format: str = layout,
        output_size: Any = None,
        name: str | None = None,
    ) -> Any:
        return _unpooled(f"max_unpool{dims}d", layout, x, indices, (kernel_size, stride, padding), output_size, data_format)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"""Put what `max_pool{dims}d` found back to its places, which it returns with return_mask, and 0 elsewhere.

    Raises:
        FluidValueError: shapes that do not fit, or sizes that the pool would not make x of.
    """
    return made


max_unpool1d, max_unpool2d, max_unpool3d = _unpool(1, "NCL"), _unpool(2, "NCHW"), _unpool(3, "NCDHW")


def rrelu(
    x: Any, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, training: bool = True, name: str | None = None
) -> Any:
    """Multiply what is below 0 by a number drawn evenly from [lower, upper) while training, else by their mean.

    Raises:
        FluidTypeError: lower and upper are no floats; a TypeError.
        FluidValueError: not 0 <= lower <= upper <= 1.
    """
    if not isinstance(lower, float) or not isinstance(upper, float):
        raise FluidTypeError(f"rrelu: lower is {lower!r}, upper {upper!r}", hint="two floats")
    if not 0 <= lower <= upper <= 1:
        raise FluidValueError(f"rrelu: lower is {lower}, upper {upper}", hint="0 <= lower <= upper <= 1")
    below, mean = call("less_than", x, _filled(x, 0.0)), (lower + upper) / 2
    slope = _filled(x, mean)
    if training:
        # 0 or 2 while training, and 1 in a program cloned for tests, where the mean holds.
        drawn = call("dropout", _filled(x, 1.0), 0.5, False, None, None, "upscale_in_train")
        testing = call("elementwise_mul", drawn, call("scale", drawn, -1.0, 2.0))
        noise = _like(x, "uniform_random", min=lower, max=upper)
        away = call("elementwise_mul", call("scale", noise, 1.0, -mean), call("scale", testing, -1.0, 1.0))
        slope = call("elementwise_add", slope, away)
        slope.stop_gradient = True
    return call("elementwise_mul", x, call("select", below, slope, _filled(x, 1.0)))


def gumbel_softmax(x: Any, temperature: float = 1.0, hard: bool = False, axis: int = -1, name: str | None = None) -> Any:
    """Draw from the classes of an axis at every step: the softmax of (x + noise) / temperature, of Gumbel's noise.

    The gradient is that of the softmax alone, without 1 / temperature, as in 2.6.

    Args:
        x: logits.
        temperature: above 0; the lower, the nearer to one class.
        hard: 1 for the largest and 0 for the others; the gradient is as without that, where 2.6's is 0.
        axis: of the classes.
        name: without effect.

    Raises:
        FluidValueError: temperature is not above 0.
    """
    if temperature <= 0:
        raise FluidValueError(f"gumbel_softmax: temperature is {temperature}", hint="a number above 0")
    # Away from 0 and 1, whose logarithms are infinite.
    drawn = _like(x, "uniform_random", min=1e-7, max=1.0 - 1e-7)
    waiting = call("scale", call("log", call("scale", call("log", drawn), -1.0)), -1.0)
    moved = call("scale", call("elementwise_add", x, waiting), 1.0 / temperature)
    # The original's gradient does not count the temperature: x itself takes the place of what it is moved from.
    rest = call("elementwise_sub", moved, x)
    rest.stop_gradient = True
    soft = call("softmax", call("elementwise_add", x, rest), axis=axis)
    if not hard:
        return soft
    last, at = len(x.shape) - 1, axis % len(x.shape)
    order = [*(i for i in range(last + 1) if i != at), at]
    largest = call("one_hot", call("unsqueeze", call("argmax", soft, at), [last]), x.shape[at])
    chosen = call("transpose", largest, [order.index(i) for i in range(last + 1)]) if at != last else largest
    gap = call("elementwise_sub", call("cast", chosen, x.dtype), soft)
    gap.stop_gradient = True
    return call("elementwise_add", soft, gap)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    training: bool = True,
    name: str | None = None,
) -> Any:
    """Average values with weights from the likeness of queries and keys: softmax(query key^T / sqrt(width) + attn_mask) value.

    Args:
        query: [batch, time, heads, width].
        key: [batch, time of keys, heads, width].
        value: shape of key.
        attn_mask: [batch or 1, heads or 1, time or 1, time of keys], added to the scores; or None.
        dropout_p: chance that a weight is set to zero while training.
        is_causal: a query sees the keys up to its own position only.
        training: whether weights are dropped.
        name: without effect.

    Raises:
        FluidValueError: not four axes, or is_causal with keys of another time.
    """
    if any(len(v.shape) != 4 for v in (query, key, value)):
        raise FluidValueError(f"scaled_dot_product_attention: query is {query}, key {key}", hint="[batch, time, heads, width]")
    if is_causal and query.shape[1] != key.shape[1]:
        raise FluidValueError(f"scaled_dot_product_attention: is_causal with query {query} and key {key}", hint="one time, or attn_mask")
    heads, width = query.shape[2:]
    if not (dropout_p and training):
        flat = (call("reshape", v, [0, 0, v.shape[2] * v.shape[3]]) for v in (query, key, value))
        return call("reshape", call("attention", *flat, attn_mask, heads, is_causal), [0, 0, heads, value.shape[3]])
    query, key, value = (call("transpose", v, [0, 2, 1, 3]) for v in (query, key, value))
    scores = call("matmul", call("scale", query, width**-0.5), key, False, True)
    if attn_mask is not None:
        scores = call("elementwise_add", scores, attn_mask)
    if is_causal:
        hidden = np.triu(np.full(2 * [query.shape[2]], -1e9, query.dtype), 1)
        scores = call("elementwise_add", scores, layers.assign(hidden))
    weights = dropout(call("softmax", scores), dropout_p, training=training)
    return call("transpose", call("matmul", weights, value), [0, 2, 1, 3])


def margin_cross_entropy(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    logits: Any,
    label: Any,
    margin1: float = 1.0,
    margin2: float = 0.5,
    margin3: float = 0.0,
    scale: float = 64.0,
    group: Any = None,
    return_softmax: bool = False,
    reduction: str | None = "mean",
) -> Any:
    """Measure cosines of classes, the label's lowered by margins: cross_entropy of scale cos(margin1 theta + margin2) - margin3.

    Args:
        logits: [batch, classes] cosines, from -1 to 1.
        label: [batch] or [batch, 1], int32 or int64.
        margin1: factor of the label's angle.
        margin2: added to it, in radians.
        margin3: taken from its cosine.
        scale: of all cosines.
        group: must be None or False: classes are not cut over processes.
        return_softmax: return the probabilities, too.
        reduction: mean, sum, none or None.

    Raises:
        FluidValueError: a group, or an unknown reduction.
    """
    if group not in (None, False):
        raise FluidValueError("margin_cross_entropy: classes are not cut over processes", hint="leave group out")
    column = call("cast", call("reshape", label, [-1, 1]), "int64")
    angle = call("acos", call("take_along_axis", logits, column, 1))
    lowered = call("scale", call("cos", call("scale", angle, margin1, margin2)), 1.0, -margin3)
    moved = call("scale", call("put_along_axis", logits, column, lowered, 1), scale)
    probabilities = call("softmax", moved)
    loss = reduced("margin_cross_entropy", call("softmax_with_cross_entropy", moved, column), reduction or "none")
    return (loss, probabilities) if return_softmax else loss


__all__ = [
    "channel_shuffle", "fold", "gumbel_softmax", "margin_cross_entropy", "max_unpool1d", "max_unpool2d", "max_unpool3d", "pixel_unshuffle",
    "rrelu", "scaled_dot_product_attention", "zeropad2d",
]  # fmt: skip
