"""Sizes that a reshape writes: which are kept, and which one is worked out."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.program.ir import Variable


def sizes_for(helper: LayerHelper, x: Variable, sizes: Sequence[int]) -> list[int]:
    """Return sizes for reshape: a first one that is not known is kept, another one is worked out.

    Args:
        helper: of the layer.
        x: what is reshaped, for the error.
        sizes: wanted, -1 for those that are not known.

    Raises:
        PeError: two or more sizes behind the first are not known.
    """
    if sum(s == -1 for s in sizes[1:]) > 1:
        raise helper.error(f"{helper.layer_type}: too few sizes of {x} are known", hint="declare all but the batch axis")
    return [0 if i == 0 and s == -1 else s for i, s in enumerate(sizes)]


def known_images(helper: LayerHelper, x: Variable) -> tuple[int, int, int]:
    """Return channels, height and width of images.

    Raises:
        PeError: other axes, or sizes that are not known.
    """
    helper.check_rank(x, "the input", 4, "[batch, channels, height, width]")
    if min(x.shape[1:]) < 1:
        raise helper.error(f"{helper.layer_type} needs images of known size, got {x}", hint="declare all but the batch axis")
    return x.shape[1], x.shape[2], x.shape[3]


def same_axis(helper: LayerHelper, x: Variable, axis: int) -> int:
    """Return an axis counted from the first.

    Raises:
        PeError: there is no such axis.
    """
    if not -len(x.shape) <= axis < len(x.shape):
        raise helper.error(f"{helper.layer_type}: {x} has no axis {axis}")
    return axis % len(x.shape)
