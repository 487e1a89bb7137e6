"""Comma-separated tables: feature columns and a label column. It reads as `table` does, and declares the two fields itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from pe_cli.config.sections.value_types import Classes
from pe_cli.core.errors import did_you_mean
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader

Strict = Field(strict=True)
Column = Annotated[int, Field(strict=True, ge=0)] | Annotated[str, Strict]


class CsvOptions(ReaderOptions):
    """Options of the csv reader."""

    file: str = Field(description="the table, UTF-8")
    features: list[Column] | None = Field(
        None, min_length=1, description="columns by name or by index from 0; all but the label when absent"
    )
    label: Column | None = Field(None, description="column by name or index; no label field when absent")
    header: Literal["auto"] | Annotated[bool, Strict] = Field(
        "auto",
        description="whether the first row has names; auto: as for table, and it has where a column is named here",
    )
    delimiter: str = Field(",", min_length=1, max_length=1, description="one character between cells")
    classes: Classes | None = Field(
        None, description="labels in the order of their class indices; sorted text when absent"
    )

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, delimiter: str) -> str:
        if delimiter in '\r\n"\0' or not delimiter.isascii():
            raise ValueError("a quote, the end of a line or what is no ASCII cannot stand between cells")
        return delimiter


@reader("csv", CsvOptions)
def open_csv(options: CsvOptions, origin: Origin) -> Table:
    """Read a table into `features` float32 [columns] and, where a label is named, `label` [1].

    Labels that are whole numbers are taken as they are (int64); when one has a decimal point or an exponent, all are float32; text
    becomes the index in `classes`, or else in sorted order. Which classes there are, the training file says, also for evaluation and
    prediction; and which columns, by their names. Every cell must be a finite number; blank lines are left out.

    Raises:
        PeError: a column is named where the file has no header, or there is none but the label.
    """
    from pe_cli.data.tables.csv import CsvPart
    from pe_cli.data.tables.table_files import PartsTable
    from pe_cli.data.tables.text_source import Spool, open_source

    named = [column for column in (options.label, *(options.features or ())) if isinstance(column, str)]
    # Where a column is named there must be a header, whatever the first row looks like.
    header = options.header if isinstance(options.header, bool) else True if named else None
    if named and options.header is False:
        raise origin.error(f"column '{named[0]}' is named, but header is false", "use its index, from 0")
    source = open_source(origin.find(options.file), "auto", origin, Spool())
    most = None if options.limit is None else options.skip + options.limit
    part = CsvPart(source, options.delimiter, header, (), most)
    label = None if options.label is None else _column(options.label, part, origin)
    features = [name for name in part.names if name != label]
    if options.features is not None:
        features = [_column(column, part, origin) for column in options.features]
    if not features:
        raise origin.error(f"{part.path} has no column but the label", "check the delimiter")
    table = PartsTable([part], origin, options.skip, options.limit, frozenset())
    table.implied = {"features": {"type": "vector", "of": features, "missing": "error"}}
    if label is not None:
        table.implied["label"] = _label(table, label, options.classes)
    return table


def _column(wanted: int | str, part: Any, origin: Origin) -> str:
    """Return the name of a column."""
    names = part.names
    if isinstance(wanted, int):
        if wanted < len(names):
            return str(names[wanted])
        raise origin.error(f"{part.path} has {len(names)} columns, and no column {wanted}", "count from 0")
    if wanted in names:
        return wanted
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise origin.error(
        f"{part.path} has no column '{wanted}'", did_you_mean(wanted, names) or f"its first row is {shown}"
    )


def _label(table: Table, name: str, classes: list[str | int] | None) -> dict[str, Any]:
    """Return what the label is: classes, or a number.

    Raises:
        PeError: DATA; some labels are numbers and others are not.
    """
    if classes is not None:
        return {"type": "category", "of": name, "classes": classes, "unknown": "error", "missing": "error"}
    from pe_cli.data.tables.dialect import is_number

    codes = table.cells(name).codes()
    numeric = [is_number(word) for word in codes.words]
    if all(numeric):
        return {"type": "number", "of": name, "dtype": "int64" if all(map(_is_whole, codes.words)) else "float32"}
    # One text among numbers is a mistake of the file more often than a class.
    if any(numeric):
        odd = numeric.index(not numeric[0])
        row = int((codes.codes == odd).argmax())
        raise table.error(
            row,
            name,
            f"label '{codes.words[odd]}' is {'a' if numeric[odd] else 'no'} number, unlike those before it",
            "correct it, or list all labels as text under classes",
        )
    return {"type": "category", "of": name, "unknown": "error", "missing": "error"}


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").removeprefix("+").isdecimal()
