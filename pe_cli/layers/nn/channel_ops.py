"""Scaling and rearranging of channels: affine_channel, shuffles, temporal_shift."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import known_images
from pe_cli.program.ir import Variable


@layer
def affine_channel(
    x: Variable,
    scale: Variable,
    bias: Variable,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """Multiply every channel by a number and add one.

    Out = act(scale x + bias)

    Args:
        x: [batch, channels, ...], or channels last with NHWC.
        scale: [channels], dtype of x.
        bias: [channels], dtype of x.
        data_layout: NCHW or NHWC.
        name: prefix of the output's name.
        act: name of an activation, or None.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: an unknown layout, or shapes or dtypes that do not fit.

    Source:
        fluid.layers.affine_channel.
    """
    helper = LayerHelper("affine_channel", name)
    if data_layout not in ("NCHW", "NHWC"):
        raise helper.error(f"affine_channel: data_layout is {data_layout!r}", hint="NCHW or NHWC")
    axis = 1 if data_layout == "NCHW" else len(x.shape) - 1
    for what, v in (("scale", scale), ("bias", bias)):
        if len(x.shape) < 2 or v.shape != (x.shape[axis],):
            raise helper.error(f"affine_channel: {what} is {v}, but x is {x}, {data_layout}", hint="one number per channel")
    scaled = helper.one("elementwise_mul", {"X": x, "Y": scale}, {"axis": axis})
    return helper.activate(helper.one("elementwise_add", {"X": scaled, "Y": bias}, {"axis": axis}), act)


@layer
def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Deal the channels of every group out to all groups.

    Out[:, c group + g] = x[:, g (channels / group) + c]

    Args:
        x: [batch, channels, height, width], sizes known but for the batch.
        group: groups of channels, which divide the channels.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: no images of known size, or group does not divide the channels.

    Source:
        fluid.layers.shuffle_channel; Zhang et al. 2018, section 3.1.
    """
    helper = LayerHelper("shuffle_channel", name)
    c, h, w = known_images(helper, x)
    if group < 1 or c % group:
        raise helper.error(f"shuffle_channel: {group} groups of {c} channels", hint="give a divisor of the channels")
    # A transpose of the table [groups, channels of a group]: cut into groups again, each has channels of all.
    return _moved(helper, x, [group, c // group, h, w], [2, 1, 3, 4], [c, h, w])


def _moved(helper: LayerHelper, x: Variable, parted: list[int], perm: list[int], joined: list[int]) -> Variable:
    """Cut every sample into the sizes of `parted`, permute its axes, counted from 1, and give it the sizes of `joined`."""
    parts = helper.one("reshape", {"X": x}, {"shape": [0, *parted]})
    turned = helper.one("transpose", {"X": parts}, {"axis": [0, *perm]})
    return helper.one("reshape", {"X": turned}, {"shape": [0, *joined]})


@layer
def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Turn channels into pixels, so that images become larger.

    Out[:, c, h r + i, w r + j] = x[:, (c r + i) r + j, h, w],  r = upscale_factor

    Args:
        x: [batch, channels, height, width], sizes known but for the batch.
        upscale_factor: r, whose square divides the channels.

    Returns:
        [batch, channels / r^2, height r, width r].

    Raises:
        PeError: no images of known size, or r^2 does not divide the channels.

    Source:
        fluid.layers.pixel_shuffle; Shi et al. 2016, eq. 4.
    """
    helper, r = LayerHelper("pixel_shuffle"), upscale_factor
    c, h, w = known_images(helper, x)
    if r < 1 or c % (r * r):
        raise helper.error(f"pixel_shuffle: upscale_factor is {r}, whose square does not divide {c} channels")
    # The channel is the slowest of the three axes, as in PyTorch and in ONNX's DepthToSpace of mode CRD.
    return _moved(helper, x, [c // (r * r), r, r, h, w], [1, 4, 2, 5, 3], [c // (r * r), h * r, w * r])


@layer
def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Turn blocks of pixels into channels, so that images become smaller.

    Out[:, (i b + j) channels + c, h, w] = x[:, c, h b + i, w b + j],  b = blocksize

    Args:
        x: [batch, channels, height, width], sizes known but for the batch.
        blocksize: b, height and width of a block; it divides those of the images.
        name: prefix of the output's name.

    Returns:
        [batch, channels b^2, height / b, width / b].

    Raises:
        PeError: no images of known size, or b does not divide them.

    Source:
        fluid.layers.space_to_depth.
    """
    helper, b = LayerHelper("space_to_depth", name), blocksize
    c, h, w = known_images(helper, x)
    if b < 1 or h % b or w % b:
        raise helper.error(f"space_to_depth: blocks of {b} x {b} pixels do not fill images of {h} x {w}", hint="give a divisor of both")
    # Places in a block come before the channel, as in ONNX's SpaceToDepth: it does not undo pixel_shuffle, where the channel is first.
    return _moved(helper, x, [c, h // b, b, w // b, b], [3, 5, 1, 2, 4], [c * b * b, h // b, w // b])


@layer
def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Variable:
    """Move some channels of a film one step back in time, and as many one step forward.

    Out[t, c] = x[t - 1, c] for the first shift_ratio of the channels, x[t + 1, c] for the next, x[t, c] for the others; 0 beyond the ends

    Args:
        x: [films * seg_num, channels, height, width]: the steps of a film follow one another; sizes known but for the first.
        seg_num: steps of a film.
        shift_ratio: share of the channels that moves each way, from 0 to 0.5.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: no images of known size, seg_num below 1, or shift_ratio out of range.

    Source:
        fluid.layers.temporal_shift; Lin, Gan and Han 2019, section 3.
    """
    helper = LayerHelper("temporal_shift", name)
    c, h, w = known_images(helper, x)
    if seg_num < 1 or not 0 <= shift_ratio <= 0.5:
        raise helper.error(f"temporal_shift: seg_num is {seg_num}, shift_ratio {shift_ratio:g}", hint="at least 1, and from 0 to 0.5")
    # The second bound is rounded by itself, not twice the first: with an odd number of channels they may differ by one.
    first, second = int(c * shift_ratio), int(c * 2 * shift_ratio)
    steps = helper.one("reshape", {"X": x}, {"shape": [-1, seg_num, c, h, w]})
    parts = []
    for begin, end, step in ((0, first, 1), (first, second, -1), (second, c, 0)):
        if begin == end:
            continue
        channels = {"axes": [2], "starts": [begin], "ends": [end]}
        part = helper.one("slice", {"Input": steps}, channels)
        parts.append(_later(helper, part, seg_num, step) if step else part)
    joined = parts[0] if len(parts) == 1 else helper.one("concat", {"X": parts}, {"axis": 2})
    return helper.one("reshape", {"X": joined}, {"shape": [-1, c, h, w]})


def _later(helper: LayerHelper, x: Variable, steps: int, by: int) -> Variable:
    """Move [films, steps, ...] by one step, 1 for later, -1 for earlier, with zeros where nothing comes from."""
    begin, end = (0, 1) if by > 0 else (1, 0)
    # One step of zeros on the side where nothing comes from; the other end is cut off.
    padded = helper.one("pad", {"X": x}, {"paddings": [0, 0, end, begin, *([0] * 6)]})
    return helper.one("slice", {"Input": padded}, {"axes": [1], "starts": [begin], "ends": [begin + steps]})
