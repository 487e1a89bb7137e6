"""Axes and sizes of shapes, as inference of ops looks at them."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product


def normal_axis(name: str, axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        PeError: it is outside [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise PeError(f"{name}: axis {axis} is out of range for {rank} axes", hint=f"give one of {-rank} to {rank - 1}")
    return axis % rank


def axis_with_elements(name: str, x: TensorType, axis: int) -> int:
    """Return an axis counted from the front.

    Raises:
        PeError: x has no such axis, or it is empty.
    """
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise PeError(f"{name} needs an axis of {x}, got axis {axis}", hint=f"an axis of {-rank} to {rank - 1}")
    if x.shape[axis] == 0:
        raise PeError(f"{name} needs at least one element along axis {axis}, got {x}")
    return axis % rank


def around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return sizes (before the axis, of the axis, after it)."""
    axis %= len(shape)
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def same_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether two shapes may be the same; a size that is not known yet fits every other."""
    return len(a) == len(b) and all(s == t or -1 in (s, t) for s, t in zip(a, b, strict=True))
