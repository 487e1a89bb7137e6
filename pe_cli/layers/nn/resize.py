"""Layers that change the size of images and volumes: resize_bilinear, resize_nearest, resize_trilinear, pad2d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Number, Sizes, check_single, fed_sizes
from pe_cli.program.ir import Variable

#: Axes of images and volumes whose channels are last.
LAST = ("NHWC", "NDHWC")


def _channels_first(helper: LayerHelper, x: Variable, data_format: str, layouts: tuple[str, str]) -> Variable:
    """Return images or volumes with the channels behind the batch.

    Raises:
        PeError: another layout, or as many axes as do not fit.
    """
    if data_format not in layouts or len(x.shape) != len(data_format):
        text = f"{helper.layer_type}: data_format is {data_format!r} and the input {x}"
        raise helper.error(text, hint=f"{layouts[0]} or {layouts[1]}, and an input of {len(layouts[0])} axes")
    if data_format not in LAST:
        return x
    last = len(x.shape) - 1
    return helper.one("transpose", {"X": x}, {"axis": [0, last, *range(1, last)]})


def _channels_back(helper: LayerHelper, x: Variable, data_format: str) -> Variable:
    if data_format not in LAST:
        return x
    return helper.one("transpose", {"X": x}, {"axis": [0, *range(2, len(x.shape)), 1]})


def wanted_sizes(
    helper: LayerHelper, have: Sequence[int], out_shape: Sizes | None, scale: Number | None
) -> tuple[list[int] | None, Variable | None]:
    """Return wanted sizes as numbers where they are given so, or the variable that a step reads them from.

    Args:
        helper: of the layer.
        have: sizes of the input, without batch and channels.
        out_shape: wanted sizes.
        scale: factor on all, instead.

    Raises:
        PeError: a variable that gives no sizes, or a factor on sizes that are not known.
    """
    if out_shape is not None:
        return fed_sizes(helper, "out_shape", out_shape, len(have) if isinstance(out_shape, Variable) else None)
    if not isinstance(scale, Variable):
        return None, None
    check_single(helper, "scale", scale)
    if min(have) < 1:
        raise helper.error(f"{helper.layer_type}: scale needs images of known size", hint="give out_shape")
    # Sizes are known and the factor is not: their product is what a step reads.
    sizes = helper.one("assign_value", {}, {"shape": [len(have)], "dtype": scale.dtype, "values": list(have)})
    product = helper.one("elementwise_mul", {"X": sizes, "Y": helper.one("reshape", {"X": scale}, {"shape": [1]})})
    return None, helper.one("cast", {"X": product}, {"out_dtype": "int64"})


def _sizes(helper: LayerHelper, x: Variable, out_shape: list[int] | None, scale: Number | None) -> dict[str, int]:
    """Return the wanted size from numbers, or from a factor.

    Raises:
        PeError: neither or both, or images of unknown size with a factor.
    """
    kind = helper.layer_type
    if (out_shape is None) == (scale is None):
        raise helper.error(f"{kind}: out_shape or scale is needed, one of them")
    if out_shape is None:
        assert scale is not None
        assert not isinstance(scale, Variable)
        if -1 in x.shape[2:] or scale <= 0:
            raise helper.error(f"{kind}: scale {scale} needs images of known size and to be above 0, got {x}")
        # Cut to whole pixels, as the original does.
        out_shape = [int(s * scale) for s in x.shape[2:]]
    if len(out_shape) != len(x.shape) - 2:
        wanted = "[height, width]" if len(x.shape) == 4 else "[depth, height, width]"
        raise helper.error(f"{kind}: out_shape must be {wanted}, got {out_shape}")
    # From the last axis on, which all have: images have no depth, and zip stops before it.
    return dict(zip(("out_w", "out_h", "out_d"), reversed(out_shape), strict=False))


def append_resized(
    helper: LayerHelper,
    kind: str,
    x: Variable,
    out_shape: Sizes | None,
    scale: Number | None,
    data_format: str,
    fed: Variable | None = None,
    **attrs: Any,
) -> Variable:
    """Append an op that changes the size of images or volumes.

    Args:
        helper: of the layer.
        kind: bilinear_interp, nearest_interp or trilinear_interp.
        x: images or volumes.
        out_shape: wanted sizes.
        scale: factor on all, instead.
        data_format: NCHW or NHWC, or NCDHW or NDHWC.
        fed: integers that only a step knows, instead of out_shape and scale.
        attrs: of the op.

    Raises:
        PeError: sizes or a layout that do not fit.
    """
    layouts = ("NCDHW", "NDHWC") if kind == "trilinear_interp" else ("NCHW", "NHWC")
    x = _channels_first(helper, x, data_format, layouts)
    sizes = None
    if fed is None:
        sizes, fed = wanted_sizes(helper, x.shape[2:], out_shape, scale)
    known = {} if fed is not None else _sizes(helper, x, sizes, scale)
    return _channels_back(helper, helper.one(kind, {"X": x, "OutSize": fed}, {**known, **attrs}), data_format)


@layer
def resize_bilinear(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: Number | None = None,
    name: str | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Change the size of images; between pixels they are linear.

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        out_shape: [height, width] of the result.
        scale: factor on both, instead of out_shape.
        name: prefix of the output's name.
        align_corners: the corners' centres stay in place; else the corners of the image.
        align_mode: without align_corners: 0, by the pixels' centres; 1, by their first corners.
        data_format: NCHW or NHWC.

    Returns:
        Images of that size.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.resize_bilinear.
    """
    how: dict[str, Any] = {"align_corners": align_corners, "align_mode": align_mode}
    return append_resized(LayerHelper("resize_bilinear", name), "bilinear_interp", input, out_shape, scale, data_format, **how)


@layer
def resize_trilinear(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: Number | None = None,
    name: str | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """Change the size of volumes; between elements they are linear.

    Args:
        input: [batch, channels, depth, height, width], or channels last with NDHWC.
        out_shape: [depth, height, width] of the result.
        scale: factor on all three, instead of out_shape.
        name: prefix of the output's name.
        align_corners: the corners' centres stay in place; else the corners of the volume.
        align_mode: without align_corners: 0, by the elements' centres; 1, by their first corners.
        data_format: NCDHW or NDHWC.

    Returns:
        Volumes of that size.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.resize_trilinear.
    """
    how: dict[str, Any] = {"align_corners": align_corners, "align_mode": align_mode}
    return append_resized(LayerHelper("resize_trilinear", name), "trilinear_interp", input, out_shape, scale, data_format, **how)


@layer
def resize_nearest(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: Number | None = None,
    name: str | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Change the size of images; every pixel is one of the original.

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        out_shape: [height, width] of the result.
        scale: factor on both, instead of out_shape.
        name: prefix of the output's name.
        align_corners: the corners' centres stay in place; else the corners of the image.
        data_format: NCHW or NHWC.

    Returns:
        Images of that size.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.resize_nearest.
    """
    helper = LayerHelper("resize_nearest", name)
    return append_resized(helper, "nearest_interp", input, out_shape, scale, data_format, align_corners=align_corners)


@layer
def pad2d(
    input: Variable,
    paddings: Sizes = [0, 0, 0, 0],  # noqa: B006 (never changed)
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Continue images beyond their edges.

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        paddings: rows above and below, columns to the left and right.
        mode: constant, reflect or edge.
        pad_value: the constant.
        data_format: NCHW or NHWC.
        name: prefix of the output's name.

    Returns:
        Larger images.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.pad2d.
    """
    helper = LayerHelper("pad2d", name)
    sizes, fed = fed_sizes(helper, "paddings", paddings, 4)
    attrs = {"mode": mode, "pad_value": float(pad_value), **({} if fed is not None else {"paddings": sizes})}
    x = _channels_first(helper, input, data_format, ("NCHW", "NHWC"))
    return _channels_back(helper, helper.one("pad2d", {"X": x, "Paddings": fed}, attrs), data_format)
