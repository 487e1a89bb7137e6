"""Column types: what a column of a table means, what it learns from the training rows, and the field that it becomes.

A type is one file in `pe_cli/data/columns/`, found by discovery. What it learns is its *state*: a dictionary of JSON values,
kept in the checkpoint (`data.json`), from which evaluation, prediction, reports and exports encode every later row alike.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pe_cli.collectives.protocol import Communicator
from pe_cli.core.encoding import Lane, Step
from pe_cli.core.errors import PeError, Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.data.fields import Field, Rows
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.raw_cells import Cells, Table

State = dict[str, Any]


class ColumnOptions(BaseModel):
    """What every column type understands; `type` itself is read before."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


@dataclass
class Context:
    """What a column is fitted and encoded with.

    Args:
        table: the rows.
        name: of the column, in the config and in messages.
        target: whether the model is taught this column: it is a layer's `label`. A target has no index for unknown or missing.
        dtype: element type of the model's feed that takes the column; None where no feed does, or several that differ.
        at: place of the column in the config, where it is written.
        base: folder that paths in cells start from.
        notes: sentences for the log, added to: cells that were unknown, and the like.
        fields: of the columns that the column is made of, by name; for `encode`.
        peers: processes that fit the same columns of the same rows at the same time, and may share the work; for `fit`.
    """

    table: Table
    name: str
    target: bool = False
    dtype: str | None = None
    at: Span | None = None
    base: Path = Path()
    notes: list[str] = field(default_factory=list)
    fields: Mapping[str, Field] = field(default_factory=dict)
    peers: Communicator | None = None

    @property
    def cells(self) -> Cells:
        """The column of the table that has this column's name."""
        return self.table.cells(self.name)

    def error(self, row: int, message: str, hint: str | None = None, name: str | None = None) -> PeError:
        """Return a data error at a cell of this column, or of another that belongs to it."""
        return self.table.error(row, name or self.name, message, hint)


AnyOptions = TypeVar("AnyOptions", bound=ColumnOptions)


class ColumnType(Generic[AnyOptions]):
    """A kind of column; a subclass says what it is called and what it does.

    Class attributes:
        name: what a config writes as `type: name`.
        options: pydantic model of its options.
        learned: pydantic model of its state, for checks of a `data.json` from elsewhere.
        view: how it reads its cells, so that one pass over a file can read all columns: numbers, codes, or neither.
        shares: whether `fit` divides its work among `Context.peers`, and the field decodes as it is taken, so that one process
            cannot do it for all.
    """

    name: ClassVar[str]
    options: ClassVar[type[ColumnOptions]]
    learned: ClassVar[type[BaseModel] | None] = None
    view: ClassVar[Literal["numbers", "codes", ""]] = ""
    shares: ClassVar[bool] = False

    def sources(self, name: str, options: AnyOptions) -> tuple[str, ...]:
        """Return the names of the table's columns that it reads: its own, unless the options name others."""
        return (name,)

    # Columns that are made of others come after them, whatever order the config has.
    def made_of(self, options: AnyOptions) -> tuple[str, ...]:
        """Return the names of other columns whose fields it is made of: what these learn and mean counts for it, too."""
        return ()

    def fit(self, options: AnyOptions, context: Context, rows: Rows | None) -> State:
        """Learn from the training rows.

        Args:
            options: checked.
            context: the table and the column's name.
            rows: int64, sorted, the training rows; all rows when None.

        Returns:
            JSON values; equal for any number of threads.

        Raises:
            PeError: DATA; a cell that the column cannot take.
        """
        raise NotImplementedError

    def encode(self, options: AnyOptions, state: State, context: Context) -> Field:
        """Return all rows of a table as a field.

        Args:
            options: checked.
            state: of `fit`.
            context: the table, which may be another than the one that was fitted on.

        Raises:
            PeError: DATA; a cell that the column cannot take.
        """
        raise NotImplementedError

    def several(self, options: AnyOptions) -> bool:
        """Whether a cell may have any number of its classes."""
        del options
        return False

    def join(self, options: AnyOptions, names: Sequence[str]) -> str:
        """Return the cell that has some classes, a JSON list where a column has no form of its own; for columns with `several`."""
        del options
        return json.dumps(list(names), ensure_ascii=False)

    def notation(self, options: AnyOptions) -> Notation:
        """Return how the numbers in its cells are written."""
        del options
        return PLAIN

    def counts(self, options: AnyOptions) -> bool:
        """Whether the field says how often each class is in a cell."""
        del options
        return False

    def classes(self, state: State) -> tuple[str, ...]:
        """Return the names of its classes in the order of their indices; none for a column that has no classes."""
        return ()

    def decode(self, options: AnyOptions, state: State, values: NDArray[Any]) -> NDArray[Any]:
        """Turn what a model predicts for this column back into its units.

        Args:
            values: [batch, ...], in the units of the field.

        Returns:
            The same shape, in the units of the file.
        """
        return values

    def lanes(self, name: str, options: AnyOptions, state: State, array: TensorType | None) -> tuple[Lane, ...] | None:
        """Return `encode` as steps from raw cells, for models that other runtimes run; None where steps cannot say it.

        Args:
            name: of the column.
            options: checked.
            state: of `fit`.
            array: type of a sample, where the column is a field of a file of arrays; None for cells.

        Returns:
            Values that are joined along their last axis.
        """
        return None

    def cell(self, source: str, options: AnyOptions, state: State) -> dict[str, Any]:
        """Return what a cell may be, as JSON values, for who sends rows.

        Args:
            source: column of the table, one of `sources`.
            options: checked.
            state: of `fit`; empty where the column is one that no model reads.

        Returns:
            `example`, a cell that `encode` takes, and what there is to say: classes, formats, ranges, units.
        """
        return {"example": "some text"}

    def tokenizer(self, options: AnyOptions, state: State) -> object:
        """Return what makes texts of this column tokens, as the values of a `tokenizer.json`; None for a column that has no tokens."""
        return None

    def units(self, options: AnyOptions, state: State) -> tuple[Step, ...]:
        """Return `decode` of numbers as steps."""
        return ()


COLUMNS: dict[str, ColumnType[Any]] = {}
AnyType = TypeVar("AnyType", bound=type[ColumnType[Any]])


def column(cls: AnyType) -> AnyType:
    """Register a class as the column type of its name."""
    assert cls.name not in COLUMNS, f"two column types are named {cls.name}"
    COLUMNS[cls.name] = cls()
    return cls


@functools.cache
def discover() -> dict[str, ColumnType[Any]]:
    """Import every module of column types once and return them."""
    package = importlib.import_module("pe_cli.data.columns")
    # Discovery, so that a new type is a file and no further list.
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")
    return COLUMNS


def selected(values: NDArray[Any], rows: Rows | None) -> NDArray[Any]:
    """Return the training rows of a column."""
    return values if rows is None else values[rows]

