"""Plain records of figures about a run's data: `pe data` prints them, reports draw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Figures:
    """Numbers of a column, over its training rows.

    Args:
        low, high: least and greatest.
        mean, deviation: of all; the deviation is that of the whole population.
    """

    low: float
    high: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class ClassShare:
    """A class of a column.

    Args:
        name: of it.
        rows: that have it.
    """

    name: str
    rows: int


@dataclass(frozen=True)
class ColumnFacts:
    """A column, or a field of a file of arrays.

    Args:
        name: of it.
        type: of column; `array` for a field that is taken as it is.
        how: declared, inferred, by the reader, or unused.
        feeds: feeds of the model that take it.
        target: whether the model is taught it.
        options: of its type.
        kind: type of a sample of it, as the model sees it: `float32[1]`.
        missing: part -> cells that are missing.
        unknown: part -> rows with a value that training never saw.
        figures: where it has numbers, and `unit` says of what.
        unit: what `figures` are of: value, tokens, characters, items or pixels.
        first, last: of dates.
        classes: the most frequent ones of the training rows.
        class_count: number of all classes.
        longest: texts, the longest of the training rows.
        note: why something is not told.
    """

    name: str
    type: str
    how: str = "declared"
    feeds: tuple[str, ...] = ()
    target: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    missing: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    figures: Figures | None = None
    unit: str = "value"
    first: str = ""
    last: str = ""
    classes: tuple[ClassShare, ...] = ()
    class_count: int = 0
    longest: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class PartFacts:
    """A part of the data.

    Args:
        name: train, eval, test or predict.
        source: where its rows come from.
        rows: number of samples.
        classes: target -> its classes in this part, in the order of their indices.
    """

    name: str
    source: str
    rows: int
    classes: Mapping[str, tuple[ClassShare, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFacts:
    """A training row: its cells as the file has them, and its feeds as the model sees them."""

    row: int
    cells: Mapping[str, str]
    feeds: Mapping[str, str]


@dataclass(frozen=True)
class Survey:
    """A run's data.

    Args:
        name: of the run.
        columns: those of the data.
        parts: by use.
        warnings: what is wrong with it.
        rows: the first ones.
        notes: what columns say of themselves.
        sheet: PNG of some pictures; empty where there are none.
        sheet_note: about it.
    """

    name: str
    columns: tuple[ColumnFacts, ...] = ()
    parts: tuple[PartFacts, ...] = ()
    warnings: tuple[str, ...] = ()
    rows: tuple[RowFacts, ...] = ()
    notes: tuple[str, ...] = ()
    sheet: bytes = b""
    sheet_note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return everything but pictures as JSON values."""
        found = asdict(self)
        for key in ("sheet", "sheet_note"):
            del found[key]
        return found
