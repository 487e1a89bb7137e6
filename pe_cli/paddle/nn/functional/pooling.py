"""Pools by 2.x's arguments; a row is an image of height 1."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.layers import padding as borders
from pe_cli.paddle.fluid.layers import volumes
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.common import channels_first
from pe_cli.paddle.nn.functional.sizes import flat, two


def _with_places(
    function: str, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, data_format: str, name: str | None
) -> Any:
    """Return the largest values of windows and their places, int32, in an image or volume without its channels.

    Raises:
        FluidValueError: channels last, whose places the original does not tell, too.
    """
    count = len(x.shape) - 2
    if not channels_first(function, data_format):
        raise FluidValueError(f"{function}: return_mask with {data_format}", hint="channels first")
    step = kernel_size if stride is None else stride
    windows, steps = ([v] * count if isinstance(v, int) else list(v) for v in (kernel_size, step))
    around = borders.sides(function, padding, x, windows, steps, 2)
    flat_images = count == 2
    deep = call("unsqueeze", x, [2]) if flat_images else x
    front = [1] if flat_images else []
    attrs = {
        "ksize": front + windows,
        "strides": front + steps,
        "paddings": [0, 0] * flat_images + around,
        "ceil_mode": ceil_mode,
    }
    with raised_as(FluidValueError):
        found = LayerHelper(function, name).op("max_pool3d_with_index", {"X": deep}, attrs, ("Out", "Mask"))
    return tuple(call("squeeze", v, [2]) for v in found) if flat_images else tuple(found)


def max_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Take the largest value of windows of images, with return_mask its place, too; the stride is the window's size unless given."""
    if return_mask:
        return _with_places("max_pool2d", x, kernel_size, stride, padding, ceil_mode, data_format, name)
    step = kernel_size if stride is None else stride
    return borders.pool2d(x, kernel_size, "max", step, padding, ceil_mode=ceil_mode, name=name, data_format=data_format)


def avg_pool2d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Average windows of images, without the border unless exclusive is False; or divide their sums by a given number."""
    step, whole = (kernel_size if stride is None else stride), exclusive and divisor_override is None
    out = borders.pool2d(
        x, kernel_size, "avg", step, padding, False, True, ceil_mode, name, exclusive=whole, data_format=data_format
    )
    high, wide = two(kernel_size)
    return out if divisor_override is None else call("scale", out, high * wide / divisor_override)


def _on_rows(x: Any, kernel_size: Any, stride: Any, padding: Any) -> tuple[Any, list[int], list[int], Any]:
    size = flat(kernel_size)
    around = padding if isinstance(padding, str) else [0, flat(padding)]
    if isinstance(padding, (list, tuple)) and len(padding) == 2:
        around = [0, 0, *padding]
    return call("unsqueeze", x, [2]), [1, size], [1, size if stride is None else flat(stride)], around


def max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Any:
    """Take the largest value of windows of rows [batch, channels, length], with return_mask its place, too."""
    return _squeezed(max_pool2d(*_on_rows(x, kernel_size, stride, padding), return_mask=return_mask, ceil_mode=ceil_mode))


def _squeezed(found: Any) -> Any:
    """Return rows for images of height 1, for each of one or two."""
    return tuple(call("squeeze", v, [2]) for v in found) if isinstance(found, tuple) else call("squeeze", found, [2])


def avg_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    exclusive: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Any:
    """Average windows of rows [batch, channels, length]."""
    out = avg_pool2d(*_on_rows(x, kernel_size, stride, padding), ceil_mode=ceil_mode, exclusive=exclusive)
    return call("squeeze", out, [2])


def adaptive_avg_pool2d(x: Any, output_size: Any, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Average a grid of output_size windows; None keeps a size."""
    if channels_first("adaptive_avg_pool2d", data_format):
        return call("adaptive_pool2d", x, _grid(x, output_size), "avg")
    turned = call("transpose", x, [0, 3, 1, 2])
    return call("transpose", call("adaptive_pool2d", turned, _grid(turned, output_size), "avg"), [0, 2, 3, 1])


def adaptive_max_pool2d(x: Any, output_size: Any, return_mask: bool = False, name: str | None = None) -> Any:
    """Take the largest value of each of a grid of output_size windows, with return_mask its place, too; None keeps a size."""
    return call("adaptive_pool2d", x, _grid(x, output_size), "max", return_mask, name)


def _grid(x: Any, output_size: Any) -> list[int]:
    wanted = [output_size] * (len(x.shape) - 2) if isinstance(output_size, int) else list(output_size)
    return [size if n is None else int(n) for n, size in zip(wanted, x.shape[2:], strict=True)]


def adaptive_avg_pool1d(x: Any, output_size: Any, name: str | None = None) -> Any:
    """Average output_size windows of rows."""
    return call("squeeze", adaptive_avg_pool2d(call("unsqueeze", x, [2]), [1, flat(output_size)]), [2])


def adaptive_max_pool1d(x: Any, output_size: Any, return_mask: bool = False, name: str | None = None) -> Any:
    """Take the largest value of each of output_size windows of rows, with return_mask its place, too."""
    return _squeezed(adaptive_max_pool2d(call("unsqueeze", x, [2]), [1, flat(output_size)], return_mask))


def max_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """Take the largest value of windows of volumes, with return_mask its place, too."""
    if return_mask:
        return _with_places("max_pool3d", x, kernel_size, stride, padding, ceil_mode, data_format, name)
    step = kernel_size if stride is None else stride
    return volumes.pool3d(x, kernel_size, "max", step, padding, False, True, ceil_mode, name, data_format=data_format)


def avg_pool3d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """Average windows of volumes; see `avg_pool2d`."""
    step, whole = (kernel_size if stride is None else stride), exclusive and divisor_override is None
    out = volumes.pool3d(x, kernel_size, "avg", step, padding, False, True, ceil_mode, name, whole, data_format)
    pixels = kernel_size**3 if isinstance(kernel_size, int) else math.prod(kernel_size)
    return out if divisor_override is None else call("scale", out, pixels / divisor_override)


def adaptive_avg_pool3d(x: Any, output_size: Any, data_format: str = "NCDHW", name: str | None = None) -> Any:
    """Average a grid of output_size windows of volumes; None keeps a size."""
    if channels_first("adaptive_avg_pool3d", data_format):
        return call("adaptive_pool3d", x, _grid(x, output_size), "avg", False, name)
    turned = call("transpose", x, [0, 4, 1, 2, 3])
    return call("transpose", call("adaptive_pool3d", turned, _grid(turned, output_size), "avg", False, name), [0, 2, 3, 4, 1])


def adaptive_max_pool3d(x: Any, output_size: Any, return_mask: bool = False, name: str | None = None) -> Any:
    """Take the largest value of each of a grid of output_size windows of volumes, with return_mask its place, too; None keeps a size."""
    return call("adaptive_pool3d", x, _grid(x, output_size), "max", return_mask, name)


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip
