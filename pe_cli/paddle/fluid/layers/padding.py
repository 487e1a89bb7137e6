"""conv2d and pool2d with the original's forms of padding: SAME, VALID, one number per axis, or one for each of four sides."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.catalogue import adapt
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Variable

#: Below every image: what maxima are padded with.
LOWEST = -3.0e38


def _each(value: Any, count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else [int(v) for v in value]


def sides(layer: str, padding: Any, x: Variable, taps: Any, stride: Any, first: int) -> list[int]:
    """Return [top, bottom, left, right] of images, with front and back before them of volumes.

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
    count = len(x.shape) - 2
    if count not in (2, 3):
        raise FluidValueError(f"{layer} takes images or volumes, got {x}")
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise FluidValueError(f"{layer}: padding is {padding!r}", hint="SAME, VALID or numbers")
        if padding.upper() == "VALID":
            return [0] * (2 * count)
        out = []
        for size, tap, step in zip(x.shape[first:], _each(taps, count), _each(stride, count), strict=False):
            whole = max((-(-size // step) - 1) * step + tap - size, 0)
            out += [whole // 2, whole - whole // 2]
        return out
    numbers = padding if isinstance(padding, int) else list(padding)
    if isinstance(numbers, list) and numbers and isinstance(numbers[0], (list, tuple)):
        numbers = [v for pair in numbers[first : first + count] for v in pair]
    if isinstance(numbers, list) and len(numbers) == 2 * count:
        return [int(v) for v in numbers]
    each_side = _each(numbers, count)
    if len(each_side) != count:
        raise FluidValueError(f"{layer}: padding is {padding!r}", hint=f"a number, {count} or {2 * count} of them, SAME or VALID")
    return [v for v in each_side for _ in range(2)]


def is_same(padding: Any) -> bool:
    """Tell whether padding is SAME, which makes the original forget dilation."""
    return isinstance(padding, str) and padding.upper() == "SAME"


def _even(found: list[int]) -> bool:
    return found[0] == found[1] and found[2] == found[3]


def _padded(x: Variable, found: list[int], first: int, value: float) -> Any:
    paddings = [0] * (2 * first) + found + [0] * (2 * (len(x.shape) - first - 2))
    return call("pad", x, paddings, value)


def conv2d(*args: Any, **given: Any) -> Any:
    """Convolve images; see the core's layer. Padding may be SAME, which sets dilation to 1, VALID or four numbers.

    Raises:
        FluidValueError: what follows dilation is not given by name where padding is no number.
    """
    layer = adapt(find("conv2d"))
    names = ("input", "num_filters", "filter_size", "stride", "padding", "dilation")
    facts = {**dict(zip(names, args, strict=False)), **given}
    padding = facts.get("padding", 0)
    if isinstance(padding, int):
        return layer(*args, **given)
    first = 1 if facts.get("data_format") == "NHWC" else 2
    found = sides("conv2d", padding, facts["input"], facts["filter_size"], facts.get("stride", 1), first)
    rest = {**given, **dict(zip(names, args, strict=False))}
    if is_same(padding):
        rest["dilation"] = 1
    rest["padding"] = [found[0], found[2]] if _even(found) else 0
    if not _even(found):
        rest["input"] = _padded(facts["input"], found, first, 0.0)
    if len(args) > len(names):
        raise FluidValueError("conv2d: give what follows dilation by name where padding is not a number")
    return layer(**rest)


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
    """Convolve images the other way round; see the core's layer. Padding may be SAME, VALID or four numbers.

    Raises:
        FluidValueError: sizes that do not fit, or SAME without filter_size.
    """
    if isinstance(padding, str):
        if filter_size is None:
            raise FluidValueError(f"conv2d_transpose: padding {padding!r} needs filter_size")
        dilation = 1 if is_same(padding) else dilation
    first = 1 if data_format == "NHWC" else 2
    found = sides("conv2d_transpose", padding, input, filter_size, stride, first)
    facts = {"groups": groups, "param_attr": param_attr, "bias_attr": bias_attr, "act": act, "name": name, "data_format": data_format}
    return adapt(find("conv2d_transpose"))(input, num_filters, output_size, filter_size, found, stride, dilation, **facts)


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
    """Pool images; see the core's layer. Padding may be SAME, VALID or four numbers."""
    first = 1 if data_format == "NHWC" else 2
    facts = {"pool_type": pool_type, "pool_stride": pool_stride, "ceil_mode": ceil_mode, "data_format": data_format}
    if global_pooling:
        return call("pool2d", input, pool_size, global_pooling=True, exclusive=exclusive, name=name, **facts)
    found = sides("pool2d", pool_padding, input, pool_size, pool_stride, first)
    if _even(found):
        return call(
            "pool2d", input, pool_size, pool_padding=[found[0], found[2]], exclusive=exclusive, name=name, **facts
        )
    if pool_type == "max":
        return call("pool2d", _padded(input, found, first, LOWEST), pool_size, name=name, **facts)
    whole = call("pool2d", _padded(input, found, first, 0.0), pool_size, exclusive=False, **facts)
    if not exclusive:
        return whole
    ones = call("scale", input, 0.0, 1.0)
    share = call("pool2d", _padded(ones, found, first, 0.0), pool_size, exclusive=False, **facts)
    return call("elementwise_div", whole, share)


__all__ = ["conv2d", "conv2d_transpose", "pool2d"]
