"""Layers on images, sequences of known length and ids, made of the core's."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.layers.composed import call, crop_tensor, strided_slice
from pe_cli.paddle.fluid.layers.constants import sizes_of
from pe_cli.paddle.fluid.layers.ops import elementwise_floordiv, equal
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.program.ir import Variable


def selu(
    x: Variable, scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772, name: str | None = None
) -> Any:
    """Return scale x above 0 and scale alpha (exp(x) - 1) below."""
    return call("scale", call("elu", x, alpha), scale)


def affine_channel(
    x: Variable,
    scale: Variable,
    bias: Variable,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Any:
    """Multiply every channel by a number and add one."""
    axis = 1 if data_layout == "NCHW" else len(x.shape) - 1
    out = call("elementwise_add", call("elementwise_mul", x, scale, axis), bias, axis)
    return LayerHelper("affine_channel", name).activate(out, act)


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Any:
    """Turn blocks of pixels into channels: [N, C, H, W] becomes [N, C b b, H / b, W / b]."""
    b = blocksize
    _, c, h, w = x.shape
    parted = call("reshape", x, [0, c, h // b, b, w // b, b])
    return call("reshape", call("transpose", parted, [0, 3, 5, 1, 2, 4]), [0, c * b * b, h // b, w // b])


def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Any:
    """Move a part of the channels of [N T, C, H, W] one step back in time, and another part one step forward."""
    _, c, h, w = x.shape
    first, second = int(c * shift_ratio), int(c * 2 * shift_ratio)
    steps = call("reshape", x, [-1, seg_num, c, h, w])
    back = call("slice", steps, [1, 2], [0, 0], [seg_num - 1, first])
    forward = call("slice", steps, [1, 2], [1, first], [seg_num, second])
    parts = [
        call("pad", back, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        call("pad", forward, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        call("slice", steps, [2], [second], [c]),
    ]
    return call("reshape", call("concat", parts, 2), [-1, c, h, w])


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Any:
    """Divide by the squares of n neighbouring channels: x / (k + alpha sum x^2)^beta."""
    axis = 1 if data_format == "NCHW" else 3
    count = input.shape[axis]
    before = (n - 1) // 2
    paddings = [p for i, _ in enumerate(input.shape) for p in ((before, n - 1 - before) if i == axis else (0, 0))]
    padded = call("pad", call("square", input), paddings)
    total = call("sums", [call("slice", padded, [axis], [i], [i + count]) for i in range(n)])
    return call("elementwise_mul", input, call("pow", call("scale", total, alpha, k), -beta))


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Any:
    """Return alpha x + beta code, code sines in the first half of the width and cosines in the second: [batch, time, width].

    Raises:
        FluidValueError: the length is not known, or the width is odd.
    """
    _, steps, width = input.shape
    if steps < 1 or width % 2:
        raise FluidValueError(f"add_position_encoding needs a known length and an even width, got {input}")
    half = width // 2
    rates = 10000.0 ** (np.arange(half) / (half - 1)) if half > 1 else np.array([10000.0])
    angles = np.arange(steps)[:, None] / rates
    code = assign(np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(input.dtype))
    return call("elementwise_add", call("scale", input, alpha), call("scale", code, beta))


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Any:
    """Shorten a tensor whose length is above max_norm to that length."""
    return LayerHelper("clip_by_norm", name).one("clip_by_norm", {"X": x}, {"max_norm": float(max_norm)})


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """Cut out a box: shape, or the sizes of a variable, from offsets on."""
    return crop_tensor(x, list(shape.shape) if isinstance(shape, Variable) and shape.is_data else shape, offsets)


def im2sequence(
    input: Variable,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Variable | None = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Any:
    """Cut images into windows, a row each: [batch * windows, channels * window]; the rows of an image follow one another.

    Raises:
        NotThereYet: images of sizes of their own.
    """
    if input_image_size is not None or out_stride != 1:
        raise NotThereYet("im2sequence with input_image_size is not there yet", hint="leave input_image_size out")
    kernel, step = ([v, v] if isinstance(v, int) else list(v) for v in (filter_size, stride))
    pads = [padding] * 4 if isinstance(padding, int) else list(padding)
    pads = pads * 2 if len(pads) == 2 else pads
    padded = call("pad", input, [0, 0, 0, 0, pads[0], pads[2], pads[1], pads[3]])
    _, c, h, w = padded.shape
    rows, columns = (h - kernel[0]) // step[0] + 1, (w - kernel[1]) // step[1] + 1
    taps = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            ends = [i + (rows - 1) * step[0] + 1, j + (columns - 1) * step[1] + 1]
            taps.append(strided_slice(padded, [2, 3], [i, j], ends, step))
    windows = call("transpose", call("stack", taps, 2), [0, 3, 4, 1, 2])
    return call("reshape", windows, [-1, c * kernel[0] * kernel[1]])


def scatter_nd(index: Variable, updates: Variable, shape: Any, name: str | None = None) -> Any:
    """Add up updates by index in a tensor of zeros."""
    zeros = call("fill_constant", list(sizes_of("scatter_nd", "shape", shape)), updates.dtype, 0.0)
    return call("scatter_nd_add", zeros, index, updates, name)


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Any:
    """Put the integers from 0 to n - 1 in a random order; device is without effect."""
    from pe_cli.paddle.fluid.framework import as_dtype

    made = call("randperm", n, as_dtype(dtype if out is None else out.dtype), seed)
    made.stop_gradient = stop_gradient
    return made if out is None else assign(made, out)


def rank(input: Variable) -> Any:
    """Return the number of axes, an int32 without axes."""
    return assign(np.array(len(input.shape), "int32"))


def size(input: Variable) -> Any:
    """Return the number of elements, int64 [1]."""
    from pe_cli.paddle.fluid.layers.ops import shape

    return call("cast", call("reduce_prod", call("cast", shape(input), "float64")), "int64")


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Any:
    """Return ids within a shard, and ignore_value for ids of other shards.

    Raises:
        FluidValueError: shard_id is none of the shards.
    """
    if not 0 <= shard_id < nshards:
        raise FluidValueError(f"shard_id must be from 0 to {nshards - 1}, got {shard_id}")
    length = (index_num + nshards - 1) // nshards
    per = call("fill_constant", [1], input.dtype, float(length))
    mine = equal(elementwise_floordiv(input, per), call("fill_constant", [1], input.dtype, float(shard_id)))
    inside = call("scale", input, 1.0, float(-shard_id * length))
    other = LayerHelper("fill_like").one("fill_like", {"X": input}, {"value": float(ignore_value)})
    return select(mine, inside, other)


__all__ = [
    "add_position_encoding", "affine_channel", "clip_by_norm", "crop", "im2sequence",
    "lrn",
    "randperm", "rank", "scatter_nd",
    "selu", "shard_index", "size", "space_to_depth", "temporal_shift",
]  # fmt: skip
