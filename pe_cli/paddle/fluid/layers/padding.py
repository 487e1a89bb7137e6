"""conv2d, conv2d_transpose and pool2d with padding as the original takes it: a pair for every axis, too."""

from __future__ import annotations

import inspect
from typing import Any

from pe_cli.layers.define.registry import find
from pe_cli.layers.nn.padding import edges
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.layers.catalogue import adapt
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Variable


def flat(padding: Any, first: int) -> Any:
    """Return padding without the pairs of the batch and the channels, where it has a pair for every axis; first: axis of images."""
    if isinstance(padding, (list, tuple)) and padding and isinstance(padding[0], (list, tuple)):
        return [int(v) for pair in padding[first : first + len(padding) - 2] for v in pair]
    return [int(v) for v in padding] if isinstance(padding, (list, tuple)) else padding


def sides(layer: str, padding: Any, x: Variable, taps: Any, stride: Any, first: int) -> list[int]:
    """Return what is added around images or volumes; see the core's `padding`.

    Args:
        layer: for errors.
        padding: a number, one or two for each axis of the image or volume, a pair for every axis, SAME or VALID.
        x: images or volumes.
        taps: sizes of a window.
        stride: between windows.
        first: the first axis of the image or volume.

    Raises:
        FluidValueError: another form of padding, or no images; a ValueError.
    """
    with raised_as(FluidValueError):
        return edges(layer, flat(padding, first), x, _plain(taps), _plain(stride), "NHWC" if first == 1 else "NCHW")


def _plain(value: Any) -> Any:
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else value


def conv2d(*args: Any, **given: Any) -> Any:
    """Convolve images; see the core's layer. Padding may have a pair for every axis."""
    facts = {**dict(zip(("input", "num_filters", "filter_size", "stride", "padding"), args, strict=False)), **given}
    padding = flat(facts.get("padding", 0), 1 if facts.get("data_format") == "NHWC" else 2)
    # By place or by name, as the script gave it: an argument must not come twice.
    args = (*args[:4], padding, *args[5:]) if len(args) > 4 else args
    return adapt(find("conv2d"))(*args, **(given if len(args) > 4 else {**given, "padding": padding}))


conv2d.__signature__ = inspect.signature(adapt(find("conv2d")))  # type: ignore[attr-defined]


def conv2d_transpose(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Any:
    """Convolve images the other way round; see the core's layer. Padding may have a pair for every axis."""
    facts = {"groups": groups, "param_attr": param_attr, "bias_attr": bias_attr, "act": act, "name": name, "data_format": data_format}
    padding = flat(padding, 1 if data_format == "NHWC" else 2)
    return adapt(find("conv2d_transpose"))(input, num_filters, output_size, filter_size, padding, stride, dilation, **facts)


def pool2d(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Any:
    """Pool images; see the core's layer. Padding may have a pair for every axis."""
    facts = {"ceil_mode": ceil_mode, "name": name, "exclusive": exclusive, "data_format": data_format}
    padding = flat(pool_padding, 1 if data_format == "NHWC" else 2)
    return call("pool2d", input, pool_size, pool_type, pool_stride, padding, global_pooling, **facts)


__all__ = ["conv2d", "conv2d_transpose", "pool2d"]
