"""Shards columns over the processes of a machine: one process fits and encodes a column, and shares the result with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pe_cli.core.errors import PeError
from pe_cli.data.dataset import Array
from pe_cli.data.fields import ArrayField, Field, SequenceField
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.data.machine_processes import MachineProcesses

Made = TypeVar("Made")
#: What was made of a column, and sentences for the log.
Fit = Callable[[str], tuple[FittedColumn | None, list[str]]]
Encode = Callable[[str], tuple[Field, list[str]]]


def fit_sharded(together: MachineProcesses, names: Iterable[str], fit: Fit) -> dict[str, tuple[FittedColumn, list[str]]]:
    """Fit columns, each in one process.

    Args:
        together: the processes.
        names: of the columns, the same in all processes.
        fit: fits one of them, alone.

    Returns:
        By name what was learned and said; not of columns with a mistake, which each process is to fit: then all tell the same.
    """
    mine: dict[str, Any] = {}
    for name, (column, notes) in _own(together, names, fit):
        if column is not None:
            mine[name] = [column.type, dict(column.options), column.state, column.target, notes]
    told = {name: found for each in together.told("what columns have learned", mine) for name, found in each.items()}
    return {name: (FittedColumn(name, *found), notes) for name, (*found, notes) in told.items()}


def encode_sharded(together: MachineProcesses, names: Iterable[str], encode: Encode) -> dict[str, tuple[Field, list[str]]]:
    """Encode columns, each in one process, into memory that all have in common.

    Args:
        together: the processes.
        names: of the columns, the same in all processes.
        encode: encodes one of them, alone.

    Returns:
        By name the field and what was said; not of columns with a mistake, and of those whose field is no array or sequences: each
        process is to encode these.
    """
    mine: dict[str, Any] = {}
    made: dict[str, list[Array]] = {}
    for name, (field, notes) in _own(together, names, encode):
        arrays = _arrays_of(field)
        if arrays is not None:
            made[name] = arrays
            mine[name] = [[[array.shape, array.dtype.str] for array in arrays], field.type.dtype, notes]
    told = {name: found for each in together.told("what columns are encoded as", mine) for name, found in each.items()}
    # All columns in one shared file, which every process maps.
    rooms = together.rooms([(tuple(shape), dtype) for sizes, _, _ in told.values() for shape, dtype in sizes], "encoded columns")
    if rooms is None:
        return {}
    fields: dict[str, tuple[Field, list[str]]] = {}
    left = iter(rooms)
    for name, (sizes, dtype, notes) in told.items():
        arrays = [next(left) for _ in sizes]
        for room, array in zip(arrays, made.pop(name, []), strict=False):
            # Each process writes the columns that it has made; all read all.
            room[...] = array
        fields[name] = _field_of(arrays, dtype), notes
    together.wait("encoded columns")
    return fields


def _own(together: MachineProcesses, names: Iterable[str], do: Callable[[str], Made]) -> Iterator[tuple[str, Made]]:
    """Yield what this process makes of the columns that are dealt to it, by name; not of those with a mistake."""
    for name in names:
        if together.owns(name):
            try:
                made = do(name)
            # The others fail on this column as well, when they read it for themselves, and tell it with its place.
            except PeError:
                continue
            yield name, made


def _arrays_of(field: Field) -> list[Array] | None:
    """Return the arrays that a field is made of; None for one of another kind."""
    if type(field) is ArrayField and not field.parts:
        return [field.values]
    return [field.values, field.offsets] if type(field) is SequenceField else None


def _field_of(arrays: list[Array], dtype: str) -> Field:
    return ArrayField(arrays[0], dtype) if len(arrays) == 1 else SequenceField(arrays[0], arrays[1], dtype)
