"""Pooling of volumes, and adaptive pooling to a given size: pool3d, adaptive_pool2d, adaptive_pool3d."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.conv3d import FIRST, LAST
from pe_cli.layers.nn.padding import edges
from pe_cli.program.ir import Variable


def _three(helper: LayerHelper, what: str, value: int | list[int]) -> list[int]:
    numbers = [value] * 3 if isinstance(value, int) else list(value)
    if len(numbers) != 3:
        raise helper.error(f"{helper.layer_type}: {what} must be a number or three, got {value!r}")
    return numbers


def _kind(helper: LayerHelper, pool_type: str) -> str:
    if pool_type not in ("max", "avg"):
        raise helper.error(f"{helper.layer_type}: pool_type is {pool_type!r}", hint="max or avg")
    return pool_type


@layer
def pool3d(
    input: Variable,
    pool_size: int | list[int] = -1,
    pool_type: str = "max",
    pool_stride: int | list[int] = 1,
    pool_padding: int | list[int] | str = 0,
    global_pooling: bool = False,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCDHW",
) -> Variable:
    """Take the largest or the average value of windows of a volume.

    Args:
        input: [batch, channels, depth, height, width], or channels last with NDHWC.
        pool_size: of a window, one number or [depth, height, width]; needed unless global_pooling.
        pool_type: max or avg.
        pool_stride: positions between windows.
        pool_padding: positions on every side, for [depth, height, width], [front, behind, above, below, left, right], SAME
            or VALID.
        global_pooling: one window over the whole volume.
        ceil_mode: round the number of windows up instead of down.
        name: prefix of the output's name.
        exclusive: an average counts the volume only, not the padding.
        data_format: NCDHW or NDHWC.

    Returns:
        Volumes of as many channels, (size + padding of both sides - pool_size) // stride + 1 positions a side.

    Raises:
        PeError: sizes that do not fit, or an unknown pool_type.

    Source:
        fluid.layers.pool3d.
    """
    helper = LayerHelper("pool3d", name)
    if not global_pooling and pool_size == -1:
        raise helper.error("pool3d: pool_size is missing", hint="give pool_size, or set global_pooling: true")
    # Three for no padding, else six: the op takes either.
    around = [0] * 3 if global_pooling else edges("pool3d", pool_padding, input, pool_size, pool_stride, data_format, "pool_padding")
    attrs = {
        "pooling_type": _kind(helper, pool_type),
        "ksize": [1, 1, 1] if global_pooling else _three(helper, "pool_size", pool_size),
        "strides": _three(helper, "pool_stride", pool_stride),
        "paddings": around,
        "global_pooling": global_pooling,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
    }
    if data_format == "NCDHW":
        return helper.one("pool3d", {"X": input}, attrs)
    if data_format != "NDHWC" or len(input.shape) != 5:
        raise helper.error(f"pool3d: data_format is {data_format!r} and the input {input}", hint="NCDHW or NDHWC, and five axes")
    turned = helper.one("transpose", {"X": input}, {"axis": FIRST})
    return helper.one("transpose", {"X": helper.one("pool3d", {"X": turned}, attrs)}, {"axis": LAST})


def _indexed(helper: LayerHelper, x: Variable, size: list[int], pool_type: str) -> list[Variable]:
    """Append the largest values and their places.

    Raises:
        PeError: averages, which have no place.
    """
    if pool_type != "max":
        raise helper.error(f"{helper.layer_type}: require_index needs pool_type max, got {pool_type!r}", hint="leave require_index out")
    return helper.op("max_pool3d_with_index", {"X": x}, {"ksize": size, "adaptive": True}, ("Out", "Mask"))


@layer
def adaptive_pool3d(
    input: Variable, pool_size: int | list[int], pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Variable | tuple[Variable, Variable]:
    """Pool volumes to a size: window i of n goes from floor(i size / n) to ceil((i + 1) size / n).

    Args:
        input: [batch, channels, depth, height, width].
        pool_size: of the output, one number or [depth, height, width].
        pool_type: max or avg.
        require_index: tell as well where each largest value is: int32, its place in the flat channel.
        name: prefix of the output's name.

    Returns:
        [batch, channels, *pool_size]; with require_index two of it.

    Raises:
        PeError: sizes that do not fit, or an unknown pool_type.

    Source:
        fluid.layers.adaptive_pool3d.
    """
    helper = LayerHelper("adaptive_pool3d", name)
    size = _three(helper, "pool_size", pool_size)
    if require_index:
        out, mask = _indexed(helper, input, size, pool_type)
        return out, mask
    return helper.one("pool3d", {"X": input}, {"pooling_type": _kind(helper, pool_type), "ksize": size, "adaptive": True})


@layer
def adaptive_pool2d(
    input: Variable, pool_size: int | list[int], pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Variable | tuple[Variable, Variable]:
    """Pool images to a size: window i of n goes from floor(i size / n) to ceil((i + 1) size / n).

    Args:
        input: [batch, channels, height, width].
        pool_size: of the output, one number or [height, width].
        pool_type: max or avg.
        require_index: tell as well where each largest value is: int32, its place in the flat channel.
        name: prefix of the output's name.

    Returns:
        [batch, channels, *pool_size]; with require_index two of it.

    Raises:
        PeError: sizes that do not fit, or an unknown pool_type.

    Source:
        fluid.layers.adaptive_pool2d.
    """
    helper = LayerHelper("adaptive_pool2d", name)
    helper.check_rank(input, "the input", 4, "[batch, channels, height, width]")
    pixels = [pool_size] * 2 if isinstance(pool_size, int) else list(pool_size)
    if len(pixels) != 2:
        raise helper.error(f"adaptive_pool2d: pool_size must be a number or two, got {pool_size!r}")
    if require_index:
        # An image is a volume of one slice, whose op knows places.
        deep = helper.one("unsqueeze", {"X": input}, {"axes": [2]})
        both = _indexed(helper, deep, [1, *pixels], pool_type)
        out, mask = (helper.one("squeeze", {"X": each}, {"axes": [2]}) for each in both)
        return out, mask
    # Where the output divides the image evenly, windows do not overlap, and a plain pool does it.
    if all(size > 0 and wanted > 0 and size % wanted == 0 for size, wanted in zip(input.shape[2:], pixels, strict=True)):
        window = [size // wanted for size, wanted in zip(input.shape[2:], pixels, strict=True)]
        attrs = {"pooling_type": _kind(helper, pool_type), "ksize": window, "strides": window}
        return helper.one("pool2d", {"X": input}, attrs)
    deep = helper.one("unsqueeze", {"X": input}, {"axes": [2]})
    # Windows of volumes of one slice never reach over the depth, so the general op with its uneven windows serves images, too.
    sizes = {"pooling_type": _kind(helper, pool_type), "ksize": [1, *pixels], "adaptive": True}
    return helper.one("squeeze", {"X": helper.one("pool3d", {"X": deep}, sizes)}, {"axes": [2]})
