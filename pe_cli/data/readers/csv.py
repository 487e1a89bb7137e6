"""Comma-separated tables: feature columns and a label column."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from pe_cli.core.errors import ExitCode, PeError, Span, did_you_mean
from pe_cli.data.dataset import Array, ArrayDataset, Dataset
from pe_cli.data.origin import Origin
from pe_cli.data.registry import ReaderOptions, reader

_FLOAT32_MAX = float(np.finfo(np.float32).max)

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
        "auto", description="whether the first row has names; auto: it has when no feature in it is a number"
    )
    delimiter: str = Field(",", min_length=1, max_length=1, description="one character between cells")
    classes: list[Annotated[str, Strict] | Annotated[int, Strict]] | None = Field(
        None, min_length=1, description="labels in the order of their class indices; sorted text when absent"
    )

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, delimiter: str) -> str:
        if delimiter in '\r\n"':
            raise ValueError("a quote or the end of a line cannot stand between cells")
        return delimiter

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[str | int] | None) -> list[str | int] | None:
        names = [str(name) for name in classes or []]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"class '{repeated[0]}' is listed twice")
        return classes


@reader("csv", CsvOptions)
def open_csv(options: CsvOptions, origin: Origin) -> Dataset:
    """Read a table into `features` float32 [columns] and, where a label is named, `label` [1].

    Labels that are whole numbers are taken as they are (int64); when one has a decimal point or an exponent, all are
    float32; text becomes the index in `classes`, or else in sorted order. Give `classes` when train and eval are
    two files, so that both count alike. Every cell must be a finite number; blank lines are left out.
    """
    return _Table(options, origin).read()


@dataclass(frozen=True)
class _Row:
    line: int
    cells: list[str]


@dataclass
class _Table:
    """One pass over a file: which columns, then their numbers."""

    options: CsvOptions
    origin: Origin
    path: Path = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.origin.find(self.options.file)

    def read(self) -> Dataset:
        rows = self.rows()
        first = next(rows, None)
        if first is None:
            raise self.origin.error(f"{self.path} has no rows", "check what wrote it")
        columns, label = self.columns(first)
        names = first.cells if self.has_header(first, columns) else []
        numbers, labels, lines = array("f"), [], array("q")
        for row in rows if names else self.chain(first, rows):
            if len(row.cells) != len(first.cells):
                raise self.error(
                    row,
                    f"{len(row.cells)} cells, but line {first.line} has {len(first.cells)}",
                    hint=f"quote text that holds the delimiter '{self.options.delimiter}', or set another delimiter",
                )
            self.append(numbers, row, columns, names)
            lines.append(row.line)
            if label is not None:
                labels.append(row.cells[label].strip())
        if not lines:
            raise self.origin.error(
                f"{self.path} has a header and no rows", "check what wrote it, or set header: false"
            )
        arrays: dict[str, Array] = {"features": np.frombuffer(numbers, np.float32).reshape(len(lines), len(columns))}
        classes: dict[str, tuple[str, ...]] = {}
        if label is not None:
            arrays["label"], found = self.encode(labels, lines)
            classes = {"label": found} if found else {}
        return ArrayDataset(arrays, self.origin, classes)

    @staticmethod
    def chain(first: _Row, rows: Iterator[_Row]) -> Iterator[_Row]:
        yield first
        yield from rows

    def rows(self) -> Iterator[_Row]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=self.options.delimiter, strict=True, skipinitialspace=True)
            try:
                for cells in lines:
                    if any(cells) or len(cells) > 1:
                        yield _Row(lines.line_num, cells)
            except csv.Error as error:
                raise self.error(_Row(max(1, lines.line_num), []), f"no readable table: {error}") from None
            except UnicodeDecodeError as error:
                raise self.origin.error(
                    f"{self.path} is not UTF-8 text: byte {error.object[error.start]:#04x} after line {lines.line_num}",
                    "save it as UTF-8, for example with iconv -t UTF-8",
                ) from None

    def columns(self, first: _Row) -> tuple[list[int], int | None]:
        label = None if self.options.label is None else self.column(self.options.label, first)
        if self.options.features is None:
            features = [index for index in range(len(first.cells)) if index != label]
            if not features:
                raise self.origin.error(f"{self.path} has no column but the label", "check the delimiter")
            return features, label
        return [self.column(name, first) for name in self.options.features], label

    def column(self, wanted: int | str, first: _Row) -> int:
        names = [name.strip() for name in first.cells]
        if isinstance(wanted, int):
            if wanted < len(names):
                return wanted
            raise self.origin.error(f"{self.path} has {len(names)} columns, and no column {wanted}", "count from 0")
        if self.options.header is False:
            raise self.origin.error(f"column '{wanted}' is named, but header is false", "use its index, from 0")
        if names.count(wanted) > 1:
            raise self.error(first, f"{names.count(wanted)} columns are named '{wanted}'", hint="use an index, from 0")
        if wanted in names:
            return names.index(wanted)
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise self.origin.error(
            f"{self.path} has no column '{wanted}'", did_you_mean(wanted, names) or f"its first row is {shown}"
        )

    def has_header(self, first: _Row, columns: list[int]) -> bool:
        if self.options.header != "auto":
            return self.options.header
        named = [self.options.label, *(self.options.features or [])]
        return any(isinstance(name, str) for name in named) or not any(_number(first.cells[i]) for i in columns)

    def append(self, numbers: array[float], row: _Row, columns: list[int], names: list[str]) -> None:
        cells = [row.cells[index] for index in columns]
        try:
            values = [float(cell) for cell in cells]
            # NaN fails the comparison too; Python, unlike every other reader of tables, takes 1_000 for a number
            if all(-_FLOAT32_MAX <= value <= _FLOAT32_MAX for value in values) and "_" not in "".join(cells):
                numbers.extend(values)
                return
        except ValueError:
            pass
        bad = next(index for index in columns if not _number(row.cells[index]))
        text = row.cells[bad].strip()
        name = f"'{names[bad].strip()}'" if names else str(bad)
        said = f"'{text}' is not a finite float32 number" if text else "the cell is empty"
        raise self.error(row, f"column {name}: {said}", bad, "correct the cell, or leave the column out of features")

    def encode(self, labels: list[str], lines: array[int]) -> tuple[Array, tuple[str, ...]]:
        """Turn labels into [rows, 1], and say the names of the classes where they have names."""
        known = tuple(str(name) for name in self.options.classes or ())
        if not known:
            numeric = [_number(label) for label in labels]
            if all(numeric):
                return self.numbers(labels, lines), ()
            odd = next((i for i, yes in enumerate(numeric) if yes != numeric[0]), None)
            odd = next((i for i, label in enumerate(labels) if not label), odd)
            if odd is not None:
                raise self.error(
                    _Row(lines[odd], []),
                    f"label '{labels[odd]}' is {'a' if numeric[odd] else 'no'} number, unlike that of line {lines[0]}",
                    hint="correct it, or list all labels as text under classes",
                )
            known = tuple(sorted(set(labels)))
        index = {name: position for position, name in enumerate(known)}
        for line, label in zip(lines, labels, strict=True):
            if label not in index:
                raise self.error(
                    _Row(line, []),
                    f"label '{label}' is not among the {len(known)} classes",
                    hint=did_you_mean(label, known) or f"classes are {', '.join(known[:20])}",
                )
        return np.array([[index[label]] for label in labels], np.int64), known

    def numbers(self, labels: list[str], lines: array[int]) -> Array:
        try:
            return np.array([[int(label)] for label in labels], np.int64)
        except OverflowError:
            long = max(range(len(labels)), key=lambda i: abs(int(labels[i])))
            raise self.error(
                _Row(lines[long], []), f"label {labels[long]} does not fit int64", hint="list the labels under classes"
            ) from None
        except ValueError:
            return np.array([[float(label)] for label in labels], np.float32)

    def error(self, row: _Row, message: str, cell: int | None = None, hint: str | None = None) -> PeError:
        """Return an error at a line of the table; the config's place becomes a note."""
        with self.path.open(encoding="utf-8-sig", errors="replace") as file:
            text = next((text.rstrip("\n") for number, text in enumerate(file, 1) if number == row.line), "")
        column, length = 1, max(1, len(text))
        if cell is not None and self.options.delimiter.join(row.cells) == text:
            column = 1 + sum(len(before) + 1 for before in row.cells[:cell])
            length = max(1, len(row.cells[cell]))
        at = Span(str(self.path), row.line, column, length, text if len(text) <= 200 else "")
        notes = [(self.origin.at, "the table is read here")] if self.origin.at else []
        return PeError(message, at=at, hint=hint, notes=notes, code=ExitCode.DATA)


def _number(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and abs(value) <= _FLOAT32_MAX and "_" not in text
