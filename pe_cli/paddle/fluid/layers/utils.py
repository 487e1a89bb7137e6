"""fluid.layers.utils: structures of lists, tuples and dictionaries in which functions of scripts give and take variables.

Values of a dictionary come in the order of its sorted keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pe_cli.paddle.errors import FluidTypeError, FluidValueError


def is_sequence(seq: Any) -> bool:
    """Return whether something is a structure: a dictionary, or a sequence that is no text."""
    return isinstance(seq, (dict, Sequence)) and not isinstance(seq, (str, bytes))


def _parts(nest: Any) -> list[Any]:
    return [nest[key] for key in sorted(nest)] if isinstance(nest, Mapping) else list(nest)


def flatten(nest: Any) -> list[Any]:
    """Return the values of a structure, in order; what is no structure is one value."""
    return [v for part in _parts(nest) for v in flatten(part)] if is_sequence(nest) else [nest]


def _with_parts(nest: Any, parts: list[Any]) -> Any:
    """Return a structure of the type of another one."""
    if isinstance(nest, Mapping):
        named = dict(zip(sorted(nest), parts, strict=True))
        # Keys were taken in sorted order; the copy has them in the order of the original.
        return type(nest)((key, named[key]) for key in nest)  # type: ignore[call-arg]
    # A named tuple takes its fields one by one, other sequences take a list.
    return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)


def like(structure: Any, values: Iterator[Any]) -> Any:
    """Return values in the structure of others; None stays and takes no value."""
    if is_sequence(structure):
        return _with_parts(structure, [like(part, values) for part in _parts(structure)])
    return None if structure is None else next(values)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Return values in the structure of others: the inverse of `flatten`.

    Raises:
        FluidTypeError: the values are in no sequence; a TypeError.
        FluidValueError: there are more values or fewer; a ValueError.
    """
    if not is_sequence(flat_sequence):
        raise FluidTypeError(f"pack_sequence_as takes a sequence of values, got {type(flat_sequence).__name__}")
    needed = len(flatten(structure))
    if needed != len(flat_sequence):
        raise FluidValueError(f"the structure has {needed} values, and {len(flat_sequence)} are given")
    left = iter(flat_sequence)

    def filled(part: Any) -> Any:
        return _with_parts(part, [filled(p) for p in _parts(part)]) if is_sequence(part) else next(left)

    return filled(structure)


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """Return what a function makes of the values of structures, in the structure of the first.

    Raises:
        FluidValueError: the structures have different numbers of values; a ValueError.
    """
    columns = [flatten(s) for s in structure]
    if len({len(column) for column in columns}) > 1:
        raise FluidValueError(f"map_structure: the structures have {', '.join(str(len(c)) for c in columns)} values")
    return pack_sequence_as(structure[0], [func(*each) for each in zip(*columns, strict=True)])


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Check that two structures are nested alike.

    Args:
        nest1: one.
        nest2: the other.
        check_types: lists, tuples and dictionaries must be of one type, too.

    Raises:
        FluidValueError: they are not; a ValueError.
        FluidTypeError: the types of sequences differ; a TypeError.
    """
    if is_sequence(nest1) != is_sequence(nest2):
        raise FluidValueError(f"one is a structure and the other is none: {nest1!r:.60} and {nest2!r:.60}")
    if not is_sequence(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise FluidTypeError(f"structures of different types: {type(nest1).__name__} and {type(nest2).__name__}")
    if isinstance(nest1, Mapping) and isinstance(nest2, Mapping) and set(nest1) != set(nest2):
        raise FluidValueError(f"dictionaries with different keys: {sorted(nest1)} and {sorted(nest2)}")
    if len(nest1) != len(nest2):
        raise FluidValueError(f"structures of {len(nest1)} and {len(nest2)} parts")
    for one, other in zip(_parts(nest1), _parts(nest2), strict=True):
        assert_same_structure(one, other, check_types)


def convert_to_list(value: Any, n: int, name: str, dtype: Any = int) -> list[Any]:
    """Return one number for each of n axes: a number for all of them, or as many.

    Raises:
        FluidValueError: another count, or something that is no number; a ValueError.
    """
    if isinstance(value, dtype):
        return [value] * n
    wanted = f"'{name}' must be a number, or {n} of them, got {value!r:.60}"
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) != n:
        raise FluidValueError(wanted)
    try:
        for number in value:
            dtype(number)
    except (TypeError, ValueError):
        raise FluidValueError(wanted) from None
    return list(value)


__all__ = ["assert_same_structure", "convert_to_list", "flatten", "is_sequence", "map_structure", "pack_sequence_as"]
