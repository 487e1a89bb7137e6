"""Pools by 2.x's arguments; a row is an image of height 1."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.paddle.errors import NotThereYet
from pe_cli.paddle.fluid.layers import padding as borders
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.common import channels_first
from pe_cli.paddle.nn.functional.sizes import flat, two


def _refuse_mask(function: str, return_mask: bool) -> None:
    if return_mask:
        raise NotThereYet(f"{function}: return_mask is not there yet", hint="leave it out")


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
    """Take the largest value of windows of images; the stride is the window's size unless given.

    Raises:
        NotThereYet: return_mask.
    """
    _refuse_mask("max_pool2d", return_mask)
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
    """Take the largest value of windows of rows [batch, channels, length].

    Raises:
        NotThereYet: return_mask.
    """
    _refuse_mask("max_pool1d", return_mask)
    return call("squeeze", max_pool2d(*_on_rows(x, kernel_size, stride, padding), ceil_mode=ceil_mode), [2])


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
    """Take the largest value of each of a grid of output_size windows; None keeps a size.

    Raises:
        NotThereYet: return_mask.
    """
    _refuse_mask("adaptive_max_pool2d", return_mask)
    return call("adaptive_pool2d", x, _grid(x, output_size), "max")


def _grid(x: Any, output_size: Any) -> list[int]:
    wanted = [output_size] * (len(x.shape) - 2) if isinstance(output_size, int) else list(output_size)
    return [size if n is None else int(n) for n, size in zip(wanted, x.shape[2:], strict=True)]


def adaptive_avg_pool1d(x: Any, output_size: Any, name: str | None = None) -> Any:
    """Average output_size windows of rows."""
    return call("squeeze", adaptive_avg_pool2d(call("unsqueeze", x, [2]), [1, flat(output_size)]), [2])


def adaptive_max_pool1d(x: Any, output_size: Any, return_mask: bool = False, name: str | None = None) -> Any:
    """Take the largest value of each of output_size windows of rows.

    Raises:
        NotThereYet: return_mask.
    """
    return call("squeeze", adaptive_max_pool2d(call("unsqueeze", x, [2]), [1, flat(output_size)], return_mask), [2])


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
    """Take the largest value of windows of volumes, channels first.

    Raises:
        NotThereYet: return_mask, or channels last.
    """
    _refuse_mask("max_pool3d", return_mask)
    _refuse_last("max_pool3d", data_format)
    return call(
        "pool3d", x, kernel_size, "max", kernel_size if stride is None else stride, padding, False, ceil_mode, name
    )


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
    """Average windows of volumes, channels first; see `avg_pool2d`.

    Raises:
        NotThereYet: channels last.
    """
    _refuse_last("avg_pool3d", data_format)
    step, whole = (kernel_size if stride is None else stride), exclusive and divisor_override is None
    out = call("pool3d", x, kernel_size, "avg", step, padding, False, ceil_mode, name, whole)
    pixels = kernel_size**3 if isinstance(kernel_size, int) else math.prod(kernel_size)
    return out if divisor_override is None else call("scale", out, pixels / divisor_override)


def _refuse_last(function: str, data_format: str) -> None:
    if not channels_first(function, data_format):
        raise NotThereYet(f"{function}: {data_format} is not there yet", hint="channels first")


def adaptive_avg_pool3d(x: Any, output_size: Any, data_format: str = "NCDHW", name: str | None = None) -> Any:
    """Average a grid of output_size windows of volumes; None keeps a size.

    Raises:
        NotThereYet: channels last.
    """
    _refuse_last("adaptive_avg_pool3d", data_format)
    return call("adaptive_pool3d", x, _grid(x, output_size), "avg")


def adaptive_max_pool3d(x: Any, output_size: Any, return_mask: bool = False, name: str | None = None) -> Any:
    """Take the largest value of each of a grid of output_size windows of volumes; None keeps a size.

    Raises:
        NotThereYet: return_mask.
    """
    _refuse_mask("adaptive_max_pool3d", return_mask)
    return call("adaptive_pool3d", x, _grid(x, output_size), "max")


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip
