"""Encodes the rows of a request as a model's feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.column import Context
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Field, FieldDataset
from pe_cli.data.prepare import Prepared
from pe_cli.data.raw_cells import Cells, ListCells, ListTable, Table


@dataclass(frozen=True)
class Encoded:
    """Rows as a model takes them.

    Args:
        dataset: a sample for each answer.
        names: what stands beside the answers, name -> one value for each.
        notes: column -> what who sent the rows should know of it, such as values that training never saw.
    """

    dataset: FieldDataset
    names: Mapping[str, list[Any]]
    notes: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.dataset)


class Hearing(Prepared):
    """Data of a request.

    Attributes:
        heard: column -> notes.
        failed: columns that have cells which they cannot take.
    """

    def __init__(self, *given: Any) -> None:
        """Take what `Prepared` takes."""
        super().__init__(*given)
        self.heard: dict[str, list[str]] = {}
        self.failed: list[str] = []

    def field(self, table: Table, name: str, use: str) -> Field:
        """Return a column of a table, encoded; see `Prepared.field`."""
        # The predictor's columns report by name, so that the request at fault can be found among those of a batch.
        try:
            return super().field(table, name, use)
        except PeError:
            self.failed.append(name)
            raise

    def _tell(self, context: Context, use: str) -> None:
        del use
        if context.notes:
            self.heard.setdefault(context.name, []).extend(context.notes)


class PixelTable(ListTable):
    """A table in which cells may be pictures, which are given as their pixels."""

    def cells(self, name: str) -> Cells:
        """Return a column; see `Table.cells`."""
        found = super().cells(name)
        # All cells of a column are alike: pixels were made of each of them before.
        return PixelCells(name, found.values) if isinstance(found, ListCells) and isinstance(found.values[0], np.ndarray) else found


class PixelCells(ListCells):
    """Pictures of one size, uint8 [height, width, channels] each."""

    def array(self) -> Array:
        """Return all of them, uint8 [rows, height, width, channels]."""
        return np.stack([value for value in self.values if isinstance(value, np.ndarray)])
