"""Size arguments of layers: fixed numbers, or variables whose values only a step knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.program.ir import Variable

#: A whole number, or an integer variable of one element. `KINDS` of the registry knows these three by their names.
Size: TypeAlias = "int | Variable"
#: Whole numbers and integer variables of one element, or one variable of them all.
Sizes: TypeAlias = "Sequence[int | Variable] | Variable"
#: A number, or a variable of one element.
Number: TypeAlias = "float | Variable"


def fed_sizes(helper: LayerHelper, argument: str, sizes: Sizes, known: int | None = None) -> tuple[list[int], Variable | None]:
    """Return sizes as numbers, and the variable that a step reads them from where one of them is a variable.

    Args:
        helper: of the layer.
        argument: for errors.
        sizes: as given.
        known: how many there are, where the variable need not say it.

    Returns:
        The sizes, -1 for those that only a step knows; and an integer variable [sizes], None where all are numbers.

    Raises:
        PeError: a variable of no integers, of more elements than one in a list, or whose length is not known.
    """
    if isinstance(sizes, Variable):
        _check_whole(helper, argument, sizes)
        if known is None and (len(sizes.shape) != 1 or not sizes.type.known):
            hint = "give one axis of known length; a feed without a batch axis is declared with replicate: true"
            raise helper.error(f"{helper.layer_type}: {argument} is {sizes}, whose length is not known", hint=hint)
        return [-1] * (sizes.shape[0] if known is None else known), sizes
    if not any(isinstance(size, Variable) for size in sizes):
        return [size for size in sizes if not isinstance(size, Variable)], None
    parts = [_part(helper, argument, size) for size in sizes]
    return [-1 if isinstance(size, Variable) else size for size in sizes], helper.one("concat", {"X": parts}, {"axis": 0})


def fed_size(helper: LayerHelper, argument: str, size: Size) -> tuple[int, Variable | None]:
    """Return a size as a number, -1 where only a step knows it, and then the variable that the step reads it from.

    Raises:
        PeError: a variable of no integers, or of more elements than one.
    """
    if not isinstance(size, Variable):
        return size, None
    check_single(helper, argument, size)
    _check_whole(helper, argument, size)
    return -1, size


def check_single(helper: LayerHelper, argument: str, given: Variable) -> None:
    """Raise unless a variable has one element.

    Raises:
        PeError: it has more, or it is not known how many.
    """
    if given.type.size != 1:
        hint = "give a variable [1]; a feed without a batch axis is declared with replicate: true"
        raise helper.error(f"{helper.layer_type}: {argument} is one number, got {given}", hint=hint)


def _check_whole(helper: LayerHelper, argument: str, given: Variable) -> None:
    if given.dtype not in ("int32", "int64"):
        raise helper.error(f"{helper.layer_type}: {argument} takes whole numbers, got {given}", hint="cast it to int64")


def _part(helper: LayerHelper, argument: str, size: Size) -> Variable:
    if not isinstance(size, Variable):
        return helper.one("fill_constant", {}, {"shape": [1], "dtype": "int64", "value": float(size)})
    fed_size(helper, argument, size)
    one = size if len(size.shape) == 1 else helper.one("reshape", {"X": size}, {"shape": [1]})
    return one if one.dtype == "int64" else helper.one("cast", {"X": one}, {"out_dtype": "int64"})


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
    # 0 keeps the size that a batch has, so that one other size may be left to reshape.
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
