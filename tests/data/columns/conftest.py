"""What the tests of column types share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import Span
from pe_cli.data.column import Context, discover
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin

AT = Span("run.yaml", 3, 5)


class Column:
    """A column of a table, fitted on some rows and encoded.

    Attributes:
        state: what it has learned.
        values: of all rows, and offsets where they are sequences.
        notes: sentences for the log.
    """

    def __init__(self, kind: str, cells: Sequence[Any], rows: Sequence[int] | None, facts: dict[str, Any], **options: Any) -> None:
        self.type = discover()[kind]
        self.options = self.type.options.model_validate(options)
        self.context = Context(ListTable({"c": cells}, Origin(Path(), AT)), "c", **facts)
        given = None if rows is None else np.array(rows, np.int64)
        self.state = self.type.fit(self.options, self.context, given)
        if self.type.learned is not None:
            self.type.learned.model_validate(self.state)

    @property
    def notes(self) -> list[str]:
        return self.context.notes

    def encode(self, cells: Sequence[Any] | None = None) -> Any:
        """Return the field of all rows, or of other cells, with what was learned: an array, or a list of lists of sequences."""
        if cells is not None:
            self.context.table = ListTable({"c": cells}, Origin(Path(), AT))
        field = self.type.encode(self.options, self.state, self.context)
        values, offsets = field.take(np.arange(len(field), dtype=np.int64))
        assert values.dtype.name == field.type.dtype
        assert values.shape[1:] == field.type.shape
        if offsets is None:
            return values
        return [values[a:b].reshape(-1).tolist() for a, b in itertools.pairwise(offsets)]


@pytest.fixture
def column():
    """Fit a column: column("number", cells, rows=[...], target=True, scale="standard")."""

    def make(kind: str, cells: Sequence[Any], rows: Sequence[int] | None = None, **options: Any) -> Column:
        facts = {name: options.pop(name) for name in ("target", "dtype_of_feed") if name in options}
        if "dtype_of_feed" in facts:
            facts["dtype"] = facts.pop("dtype_of_feed")
        return Column(kind, cells, rows, facts, **options)

    return make
