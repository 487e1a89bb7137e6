"""Sequences: a cell is a list of numbers or of categories whose order counts."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pe_cli.core.encoding import TEXT, Cast, Fill, Lane, Source, Standardise
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnType as ColumnTypeOf
from pe_cli.data.column import Context, State, column, selected
from pe_cli.data.columns.category import ClassOptions, fit_classes, lookup, lookup_steps, names_of, no_class
from pe_cli.data.columns.number import scaling
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.fields import Rows, SequenceField


class SequenceOptions(ClassOptions):
    """Options of sequence columns; those of classes are for `items: category`."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    items: Literal["number", "category"] = Field("number", description="what the items are")
    separator: Annotated[str, Field(strict=True, min_length=1)] | None = Field(
        None, description="text between items; any blanks when absent"
    )
    max_length: Annotated[int, Field(strict=True, ge=1)] | None = Field(None, description="keep so many items of a cell, its last ones")
    scale: Literal["none", "standard"] = Field("none", description="of numbers: mean 0 and deviation 1 over all training items")


class SequenceState(BaseModel):
    """What a sequence has learned: classes, or mean and deviation."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    classes: list[str]
    counts: list[int]
    unknown: bool
    missing: bool
    rare: int
    shift: float
    divisor: float
    longest: int


@column
class Sequence(ColumnTypeOf[SequenceOptions]):
    """A list of any length per row, for a feed with lod_level: 1.

    Numbers become float32 [1] per item, categories int64 [1] with index 0 for unknown ones. A missing or empty cell is one
    item: the number 0, or index 0.
    """

    name = "sequence"
    options = SequenceOptions
    learned = SequenceState
    view = "codes"

    def sources(self, name: str, options: SequenceOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: SequenceOptions, context: Context, rows: Rows | None) -> State:
        """Learn the classes, or mean and deviation."""
        found = context.table.cells(options.of or context.name).codes()
        codes = selected(found.codes, rows)
        times = np.bincount(codes[codes >= 0], minlength=len(found.words)).tolist()
        lists = [_split(word, options) for word in found.words]
        longest = max((len(items) for items, n in zip(lists, times, strict=True) if n), default=1)
        plain = {"classes": [], "counts": [], "unknown": True, "missing": False, "rare": 0}
        if options.items == "category":
            counts: dict[str, int] = {}
            for items, n in zip(lists, times, strict=True):
                for item in items:
                    counts[item] = counts.get(item, 0) + n
            state = fit_classes(options, context, list(counts), np.array(list(counts.values()), np.int64))
            return state | {"unknown": True, "shift": 0.0, "divisor": 1.0, "longest": longest}
        mean, deviation = 0.0, 1.0
        if options.scale == "standard":
            numbers = [(float(value), n) for items, n in zip(_numbers(options, context), times, strict=True) for value in items]
            weights = sum(n for _, n in numbers)
            # `fsum` is exact: the mean does not depend on the order of the rows.
            if weights:
                mean = math.fsum(value * n for value, n in numbers) / weights
                deviation = math.sqrt(math.fsum((value - mean) ** 2 * n for value, n in numbers) / weights) or 1.0
        return plain | {"shift": mean, "divisor": deviation, "longest": longest}

    def encode(self, options: SequenceOptions, state: State, context: Context) -> FieldOf:
        """Return the items of every row.

        Raises:
            PeError: an item is a class that training never saw, and that is an error; with its place.
        """
        source = options.of or context.name
        found = context.table.cells(source).codes()
        if options.items == "number":
            lists = [
                # One row for each distinct cell: rows of the table refer to them.
                # A cell without an item becomes one 0, because kernels take no empty sequence.
                ((np.array(items) - state["shift"]) / state["divisor"] if items else np.zeros(1)).astype(np.float32)
                for items in _numbers(options, context)
            ]
            return _of_rows([*lists, np.zeros(1, np.float32)], found.codes, "float32")
        texts = [_split(word, options) for word in found.words]
        names = list(dict.fromkeys(name for items in texts for name in items))
        table, unknown = lookup(state, names)
        if unknown and options.unknown == "error":
            holds = np.array([names[unknown[0]] in items for items in texts] + [False])
            raise context.error(int(np.flatnonzero(holds[found.codes])[0]), *no_class(state, names[unknown[0]]), name=source)
        if unknown:
            context.notes.append(
                f"{len(unknown):,} value{'s' * (len(unknown) > 1)} of column '{context.name}' with the index of unknown values: "
                f"'{names[unknown[0]]}' is no class of the training rows"
            )
        index = dict(zip(names, table.tolist(), strict=True))
        ids = [np.array([index[name] for name in items] or [0], np.int32) for items in texts]
        return _of_rows([*ids, np.zeros(1, np.int32)], found.codes, "int64")

    def cell(self, source: str, options: SequenceOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be; see `ColumnType.cell`."""
        del source
        between = options.separator or " "
        said = {"items": options.items, "separator": between}
        if options.items == "number":
            return {**said, "unit": "that of the training data", "example": between.join(["1", "2"])}
        unknown = "error" if options.unknown == "error" else "index"
        return {**said, "classes": list(state["classes"]), "unknown": unknown, "example": between.join(state["classes"][:2])}

    def classes(self, state: State) -> tuple[str, ...]:
        """Return the names of all indices; none for numbers."""
        return names_of(state) if state["classes"] else ()

    def decode(self, options: SequenceOptions, state: State, values: NDArray[Any]) -> NDArray[Any]:
        """Return the cells of ids, [batch, items] as [batch] texts; of numbers those in the units of the file, in their shape."""
        if options.items == "number":
            numbers: NDArray[Any] = values * state["divisor"] + state["shift"]
            return numbers
        if values.dtype.kind != "i" or values.ndim != 2:
            return values
        names, between = self.classes(state), options.separator or " "
        found = np.empty(len(values), object)
        found[:] = [between.join(names[i] if 0 <= i < len(names) else str(i) for i in row) for row in values.tolist()]
        return found

    def lanes(self, name: str, options: SequenceOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the same as steps, from cells that are split; see `ColumnType.lanes`."""
        source = options.of or name
        at = f"at '{options.separator}'" if options.separator else "at blanks"
        last = f", its last {options.max_length} items" if options.max_length else ""
        said = f"the items of all cells, one below the other (a cell is split {at}{last})"
        if options.items == "category":
            kind = Source(source, TensorType((1,), TEXT), f"{said}; an empty text for an empty cell", raw=False)
            return (Lane(kind, tuple(lookup_steps(state, source, 0, options.unknown == "error"))),)
        steps = (*scaling(Standardise, [state["shift"]], [state["divisor"]]), Fill(0.0), Cast("float32"))
        return (Lane(Source(source, TensorType((1,), "float64"), f"{said}; NaN for an empty cell", raw=False), steps),)


def _split(word: str, options: SequenceOptions) -> list[str]:
    parts = word.split(options.separator) if options.separator else word.split()
    found = [part for part in (part.strip() for part in parts) if part]
    return found[-options.max_length :] if options.max_length else found


def _numbers(options: SequenceOptions, context: Context) -> list[list[float]]:
    """Return the numbers of every distinct cell.

    Raises:
        PeError: DATA; an item is no finite number.
    """
    source = options.of or context.name
    found = context.table.cells(source).codes()
    lists: list[list[float]] = []
    for i, word in enumerate(found.words):
        values: list[float] = []
        for part in _split(word, options):
            try:
                value = float(part)
            except ValueError:
                value = math.nan
            # Python's float takes underscores.
            if not math.isfinite(value) or "_" in part:
                row = int(np.flatnonzero(found.codes == i)[0])
                hint = "set separator, or items: category"
                raise context.error(row, f"item {len(values) + 1}, '{part}', is no finite number", hint, source)
            values.append(value)
        lists.append(values)
    return lists


def _of_rows(lists: list[np.ndarray], codes: np.ndarray, dtype: str) -> SequenceField:
    """Return the list of every row; the last one stands for a missing cell."""
    offsets = np.append(0, np.cumsum([len(items) for items in lists]))
    distinct = SequenceField(np.concatenate(lists).reshape(-1, 1), offsets.astype(np.int64), dtype)
    values, starts = distinct.take(codes.astype(np.int64) % len(lists))
    return SequenceField(values.astype(lists[0].dtype), starts, dtype)
