"""Padding arguments of image and volume layers: one number, several per axis or side, SAME or VALID."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.layers.define.helper import LayerHelper, several
from pe_cli.program.ir import Variable

#: Below every image: what maxima are padded with.
LOWEST = -3.0e38


def edges(
    layer: str,
    padding: int | list[int] | str,
    x: Variable,
    taps: int | list[int] | None,
    stride: int | list[int],
    data_format: str,
    what: str = "padding",
) -> list[int]:
    """Return how much is added before and behind every axis: [above, below, left, right] of images; front and back come first in volumes.

    Args:
        layer: for errors.
        padding: a number, one or two for each axis, SAME (as many windows as the stride has steps) or VALID (none).
        x: images or volumes.
        taps: sizes of a window, None where they are not given.
        stride: between windows.
        data_format: where x has its channels.
        what: name of the argument.

    Raises:
        PeError: another form of padding, no images or volumes, or SAME where sizes are not known.
    """
    count = len(x.shape) - 2
    if count not in (2, 3):
        raise PeError(f"{layer} takes images or volumes, got {x}")
    if not isinstance(padding, str):
        numbers = [padding] * count if isinstance(padding, int) else list(padding)
        if len(numbers) not in (count, 2 * count) or any(not isinstance(p, int) or p < 0 for p in numbers):
            raise PeError(f"{layer}: {what} must be {_forms(count)}, got {padding!r}")
        return numbers if len(numbers) == 2 * count else [p for p in numbers for _ in range(2)]
    if padding.upper() == "VALID":
        return [0] * (2 * count)
    if padding.upper() != "SAME":
        raise PeError(f"{layer}: {what} must be {_forms(count)}, got {padding!r}")
    if taps is None:
        raise PeError(f"{layer}: {what} SAME needs filter_size")
    sizes = x.shape[1:-1] if data_format.endswith("C") else x.shape[2:]
    found = []
    for size, tap, step in zip(sizes, several(layer, "a window", taps, 1, count), several(layer, "stride", stride, 1, count), strict=True):
        # With a stride of 1 the padding follows from the window alone.
        if size < 1 and step > 1:
            raise PeError(f"{layer}: {what} SAME needs sizes that are known, got {x}", hint="declare the feed with its sizes")
        # As many windows as ceil(size / stride); what these need beyond the image is halved, and an odd pixel comes last.
        whole = tap - 1 if step == 1 else max((-(-size // step) - 1) * step + tap - size, 0)
        found += [whole // 2, whole - whole // 2]
    return found


def _forms(count: int) -> str:
    return f"a number of at least 0, {count} or {2 * count} of them, SAME or VALID"


def is_same(padding: object) -> bool:
    """Tell whether padding is SAME, for which fluid forgets dilation."""
    return isinstance(padding, str) and padding.upper() == "SAME"


def is_even(around: list[int]) -> bool:
    """Tell whether as much is added behind every axis as before it."""
    return around[::2] == around[1::2]


def padded(helper: LayerHelper, images: Variable, around: list[int], data_format: str, value: float = 0.0) -> Variable:
    """Append a border of one value around images."""
    paddings = [0, 0, *around, 0, 0] if data_format == "NHWC" else [0, 0, 0, 0, *around]
    return helper.one("pad", {"X": images}, {"paddings": paddings, "pad_value": value})
