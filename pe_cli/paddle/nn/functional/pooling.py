"""Pools by 2.x's arguments; a row is an image of height 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.layers import padding as borders
from pe_cli.paddle.fluid.layers import volumes
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.forwarding import forwarded
from pe_cli.paddle.nn.functional.common import channels_first
from pe_cli.paddle.nn.functional.sizes import flat


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
    # An image is a volume of depth 1, so that one op serves both.
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


def _max(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    axes: int, x: Any, kernel_size: Any, stride: Any, padding: Any, return_mask: bool, ceil_mode: bool, data_format: str, name: str | None
) -> Any:
    """Take the largest values of windows of images or volumes; with return_mask their places, too."""
    if return_mask:
        return _with_places(f"max_pool{axes}d", x, kernel_size, stride, padding, ceil_mode, data_format, name)
    step = kernel_size if stride is None else stride
    return _POOLS[axes](x, kernel_size, "max", step, padding, ceil_mode=ceil_mode, name=name, data_format=data_format)


def _avg(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    axes: int,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    exclusive: bool,
    divisor: float | None,
    data_format: str,
    name: str | None,
) -> Any:
    """Average windows of images or volumes, or divide their sums by a given number."""
    # A given divisor is for sums, so every mean must be over the same number of pixels, border included.
    step, whole = (kernel_size if stride is None else stride), exclusive and divisor is None
    facts = {"ceil_mode": ceil_mode, "name": name, "exclusive": whole, "data_format": data_format}
    out = _POOLS[axes](x, kernel_size, "avg", step, padding, **facts)
    # The mean over the whole window, padding included, times its pixels is its sum.
    pixels = kernel_size**axes if isinstance(kernel_size, int) else math.prod(kernel_size)
    return out if divisor is None else call("scale", out, pixels / divisor)


#: Axes of what is pooled -> fluid's layer for it.
_POOLS: dict[int, Callable[..., Any]] = {2: borders.pool2d, 3: volumes.pool3d}


def _on_rows(x: Any, kernel_size: Any, stride: Any, padding: Any) -> tuple[Any, list[int], list[int], Any]:
    size = flat(kernel_size)
    around = padding if isinstance(padding, str) else [0, flat(padding)]
    if isinstance(padding, (list, tuple)) and len(padding) == 2:
        around = [0, 0, *padding]
    return call("unsqueeze", x, [2]), [1, size], [1, size if stride is None else flat(stride)], around


def _max_rows(x: Any, kernel_size: Any, stride: Any, padding: Any, return_mask: bool, ceil_mode: bool) -> Any:
    return _squeezed(_max(2, *_on_rows(x, kernel_size, stride, padding), return_mask, ceil_mode, "NCHW", None))


def _avg_rows(x: Any, kernel_size: Any, stride: Any, padding: Any, exclusive: bool, ceil_mode: bool) -> Any:
    return _squeezed(_avg(2, *_on_rows(x, kernel_size, stride, padding), ceil_mode, exclusive, None, "NCHW", None))


def _squeezed(found: Any) -> Any:
    """Return rows for images of height 1, for each of one or two."""
    return tuple(call("squeeze", v, [2]) for v in found) if isinstance(found, tuple) else call("squeeze", found, [2])


def adaptive_avg(axes: int, x: Any, output_size: Any, data_format: str, name: str | None = None) -> Any:
    """Average a grid of windows of images or volumes, whose channels may be last; axes: 2 or 3."""
    kind, inner = f"adaptive_pool{axes}d", range(2, axes + 2)
    if channels_first(f"adaptive_avg_pool{axes}d", data_format):
        return call(kind, x, _grid(x, output_size), "avg", False, name)
    turned = call("transpose", x, [0, axes + 1, *range(1, axes + 1)])
    return call("transpose", call(kind, turned, _grid(turned, output_size), "avg", False, name), [0, *inner, 1])


def _adaptive_max(axes: int, x: Any, output_size: Any, return_mask: bool, name: str | None = None) -> Any:
    return call(f"adaptive_pool{axes}d", x, _grid(x, output_size), "max", return_mask, name)


def _grid(x: Any, output_size: Any) -> list[int]:
    wanted = [output_size] * (len(x.shape) - 2) if isinstance(output_size, int) else list(output_size)
    return [size if n is None else int(n) for n, size in zip(wanted, x.shape[2:], strict=True)]


def _adaptive_avg_rows(x: Any, output_size: Any) -> Any:
    return _squeezed(adaptive_avg(2, call("unsqueeze", x, [2]), [1, flat(output_size)], "NCHW"))


def _adaptive_max_rows(x: Any, output_size: Any, return_mask: bool) -> Any:
    return _squeezed(_adaptive_max(2, call("unsqueeze", x, [2]), [1, flat(output_size)], return_mask))


_WINDOW = "x kernel_size stride=None padding=0"
_MAX = f"{_WINDOW} return_mask=False ceil_mode=False data_format="
_AVG = f"{_WINDOW} ceil_mode=False exclusive=True divisor_override=None data_format="
#: Name -> what does it, its arguments, and the first line of its doc; a name is handed on where it has a target.
_TABLE: dict[str, tuple[Callable[..., Any], str, str]] = {
    "max_pool1d": (
        _max_rows, f"{_WINDOW} return_mask=False ceil_mode=False name",
        "Take the largest value of windows of rows [batch, channels, length], with return_mask its place, too.",
    ),
    "max_pool2d": (
        partial(_max, 2), f"{_MAX}'NCHW' name:name",
        "Take the largest value of windows of images, with return_mask its place, too; the stride is the window's size unless given.",
    ),
    "max_pool3d": (
        partial(_max, 3), f"{_MAX}'NCDHW' name:name", "Take the largest value of windows of volumes, with return_mask its place, too.",
    ),
    "avg_pool1d": (_avg_rows, f"{_WINDOW} exclusive=True ceil_mode=False name", "Average windows of rows [batch, channels, length]."),
    "avg_pool2d": (
        partial(_avg, 2), f"{_AVG}'NCHW' name:name",
        "Average windows of images, without the border unless exclusive is False; or divide their sums by a given number.",
    ),
    "avg_pool3d": (partial(_avg, 3), f"{_AVG}'NCDHW' name:name", "Average windows of volumes; see `avg_pool2d`."),
    "adaptive_avg_pool1d": (_adaptive_avg_rows, "x output_size name", "Average output_size windows of rows."),
    "adaptive_avg_pool2d": (
        partial(adaptive_avg, 2), "x output_size data_format='NCHW' name", "Average a grid of output_size windows; None keeps a size.",
    ),
    "adaptive_avg_pool3d": (
        partial(adaptive_avg, 3), "x output_size data_format='NCDHW' name:name",
        "Average a grid of output_size windows of volumes; None keeps a size.",
    ),
    "adaptive_max_pool1d": (
        _adaptive_max_rows, "x output_size return_mask=False name",
        "Take the largest value of each of output_size windows of rows, with return_mask its place, too.",
    ),
    "adaptive_max_pool2d": (
        partial(_adaptive_max, 2), "x output_size return_mask=False name:name",
        "Take the largest value of each of a grid of output_size windows, with return_mask its place, too; None keeps a size.",
    ),
    "adaptive_max_pool3d": (
        partial(_adaptive_max, 3), "x output_size return_mask=False name:name",
        "Take the largest value of each of a grid of output_size windows of volumes, with return_mask its place, too; None keeps a size.",
    ),
}  # fmt: skip
globals().update({name: forwarded(name, *row) for name, row in _TABLE.items()})
__all__ = list(_TABLE)
