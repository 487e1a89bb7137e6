"""vision.ops that convolve with taps that move."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.nn.functional.sizes import two
from pe_cli.paddle.nn.layer import Layer
from pe_cli.program.initializer import Normal


def deform_conv2d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    offset: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    mask: Any = None,
    name: str | None = None,
) -> Any:
    """Convolve images with given filters whose taps are moved by offsets, at every place of their own.

    Args:
        x: [batch, channels, height, width].
        offset: [batch, deformable_groups * taps * 2, out height, out width], in pixels: down and right.
        weight: [filters, channels / groups, height, width].
        bias: [filters], or None.
        stride: pixels between outputs.
        padding: zeros on every side, pixels.
        dilation: pixels between taps.
        deformable_groups: parts of the channels with offsets of their own.
        groups: parts that channels are split into.
        mask: [batch, deformable_groups * taps, out height, out width], or None.
        name: without effect.

    Source:
        Dai et al. 2017; Zhu et al. 2018, eq. 1, with a mask.
    """
    filters, depth, *taps = weight.shape
    ensure_defaults()
    attrs = {"ksize": taps, "deformable_groups": deformable_groups}
    attrs |= {"strides": two(stride), "paddings": two(padding), "dilations": two(dilation)}
    with raised_as(FluidValueError):
        columns = LayerHelper("deform_conv2d", name).one("deformable_im2col", {"X": x, "Offset": offset, "Mask": mask}, attrs)
    rows = layers.reshape(weight, [filters, depth * math.prod(taps)])
    parts = zip(layers.split(rows, groups, 0), layers.split(columns, groups, 1), strict=True) if groups > 1 else [(rows, columns)]
    found = [layers.matmul(own, seen) for own, seen in parts]
    flat = layers.concat(found, 1) if groups > 1 else found[0]
    out = layers.reshape(flat, [-1, filters, *offset.shape[2:]])
    return out if bias is None else layers.elementwise_add(out, bias, 1)


class DeformConv2D(Layer):
    """`deform_conv2d` with filters of its own.

    Args:
        in_channels: of the images.
        out_channels: of the result.
        kernel_size: of the filters.
        stride: pixels between outputs.
        padding: zeros on every side, pixels.
        dilation: pixels between taps.
        deformable_groups: parts of the channels with offsets of their own.
        groups: parts that channels are split into.
        weight_attr: of weight, [out_channels, in_channels / groups, height, width].
        bias_attr: of bias, [out_channels]; False for none.

    Raises:
        FluidValueError: groups that do not divide the channels; a ValueError.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        deformable_groups: int = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups:
            raise FluidValueError(f"DeformConv2D: {in_channels} channels in {groups} groups", hint="groups that divide them")
        taps = two(kernel_size)
        self._facts: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
        self._facts |= {"deformable_groups": deformable_groups, "groups": groups}
        drawn = Normal(0.0, math.sqrt(2.0 / (math.prod(taps) * in_channels)))
        self.weight = self.create_parameter([out_channels, in_channels // groups, *taps], weight_attr, default_initializer=drawn)
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Any, offset: Any, mask: Any = None) -> Any:
        """Append the convolution."""
        return deform_conv2d(x, offset, self.weight, self.bias, mask=mask, **self._facts)


__all__ = ["DeformConv2D", "deform_conv2d"]
