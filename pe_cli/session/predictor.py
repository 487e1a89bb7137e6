"""What a trained model says of rows that are at hand, such as those of a request; no data file is read."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pe_cli.config.nodes import to_data
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.data import Loader
from pe_cli.data.cells import ListTable, Table
from pe_cli.data.fields import FieldDataset, Rows
from pe_cli.data.fitted import FittedColumn
from pe_cli.data.origin import Origin
from pe_cli.data.prepare import Prepared
from pe_cli.data.readers.windows import WindowsOptions
from pe_cli.data.registry import check_options, find_reader
from pe_cli.data.windows import WindowTable
from pe_cli.graph.sequences import declared_levels
from pe_cli.program.prune import prune
from pe_cli.session.answers import answers, said
from pe_cli.session.apart import Ends, apart
from pe_cli.session.job import Job

Row = Mapping[str, Any]


class Predictor:
    """Answers for rows of cells, by the columns that a run has learned.

    Args:
        job: with values, and with what its columns have learned.
        fetches: outputs; what the model is taught to say when there are none.

    Attributes:
        columns: column of a row -> the fitted column that reads it, for those that the outputs need.
        windows: how windows are cut, where the rows of a request are those of series; else None. Then there is an answer per series.

    Raises:
        PeError: USAGE; the run has no columns, as its data are arrays.
    """

    def __init__(self, job: Job, fetches: Sequence[str] = ()) -> None:
        self._job = job
        self._answers = answers(job, fetches)
        self._variables = list(dict.fromkeys(v for answer in self._answers for v in answer.variables))
        program = prune(job.built.eval, self._variables)
        self._executor = job.executor(program)
        block = self._executor.program.global_block()
        read = {name for op in block.ops for name in op.input_names()}
        self._types = {
            v.name: TensorType(v.shape[1:], v.dtype)
            for v in job.built.eval.list_vars()
            if v.is_data and v.name in read and v.name in job.data.sources
        }
        self._hows = {v: "concat" if job.built.eval.global_block().var(v).shape[:1] == (-1,) else "mean" for v in self._variables}
        self._ends = Ends(job, self._executor, {v: v for v in self._variables})
        self._wanted = [job.data.sources[name] for name in self._types]
        fitted = job.data.fitted.columns
        names = list(dict.fromkeys(name for want in self._wanted for name in want.names))
        absent = [name for name in names if name not in fitted]
        if absent:
            raise PeError(
                f"the feed '{absent[0]}' is an array of a file, and no column that a request could fill",
                hint="declare the fields under data.columns, or use pe predict",
            )
        self.columns: dict[str, FittedColumn] = {}
        for name in names:
            for column in fitted[name].inner or (fitted[name],):
                self.columns |= dict.fromkeys(column.sources, column)
        self.windows = _windows(job) if any(fitted[name].type == "window" for name in names) else None
        if self.windows is not None:
            for option, kind in ((self.windows.key, "category"), (self.windows.time, "date")):
                if option is not None:
                    self.columns.setdefault(option, FittedColumn(option, kind, {}, {}))

    @property
    def image(self) -> str | None:
        """The column that takes a picture, where it is the only one."""
        names = [name for name, column in self.columns.items() if column.type == "image"]
        return names[0] if len(names) == 1 == len(self.columns) else None

    @property
    def text(self) -> str | None:
        """The column that takes a text, where it is the only one."""
        names = [name for name, column in self.columns.items() if column.type == "text"]
        return names[0] if len(names) == 1 == len(self.columns) else None

    def rows(self, rows: Sequence[Row], where: str = "") -> list[dict[str, Any]]:
        """Return an answer for every row.

        Args:
            rows: column -> cell: text, a number, true, false, or None where it is missing; other columns are not read.
            where: names the rows in messages.

        Returns:
            As many; of series one for each, with its key and the time of its last row.

        Raises:
            PeError: DATA; a row lacks a column, or has a cell that the column cannot take.
        """
        table = self._table(rows, where)
        return self._run(table)

    def picture(self, content: bytes) -> dict[str, Any]:
        """Return the answer for a picture.

        Raises:
            PeError: DATA; it is none that can be read.
        """
        assert self.image is not None
        with tempfile.TemporaryDirectory(prefix="pe-serve-") as folder:
            (Path(folder) / "picture").write_bytes(content)
            table = ListTable({self.image: ["picture"]}, Origin(Path(folder)), "the request")
            table.folder = Path(folder)  # type: ignore[attr-defined]
            return self._run(table)[0]

    def _table(self, rows: Sequence[Row], where: str) -> ListTable:
        origin = Origin(Path())
        for i, row in enumerate(rows):
            for name in self.columns:
                if name not in row:
                    hint = f"a row has {', '.join(self.columns)}; null stands for a missing cell"
                    raise origin.error(f"{where + ', ' if where else ''}row {i + 1}: there is no column '{name}'", hint)
                if not isinstance(row[name], str | int | float | bool | None):
                    kind = "a list" if isinstance(row[name], list) else "an object"
                    raise origin.error(f"row {i + 1}, column '{name}': a cell is text or a number, not {kind}")
        return ListTable({name: [row[name] for row in rows] for name in self.columns}, origin, where)

    def _run(self, given: ListTable) -> list[dict[str, Any]]:
        job = self._job
        table, rows = self._samples(given)
        prepared = Prepared({}, job.run.preparation, job.run.path.parent, job.data.prepared.uses, job.data.fitted)
        fields = prepared.encoded(table, self._wanted, "request")
        feeds = {name: job.data.feed(name) for name in self._types}
        dataset = FieldDataset(fields, rows, prepared.classes(fields))
        loader = Loader(dataset, feeds, self._types, max(1, len(dataset)), prefetch=0, levels=declared_levels(job.built.eval))
        feed = loader.first()
        result = self._executor.run(feed, self._variables)
        batch = {v: result.merged(v, self._hows[v]) for v in self._variables}
        batch |= {v: apart(batch[v], rows) for v, rows in self._ends.lengths(feed).items()}
        known = {} if rows is None else {name: list(map(table.cells(name).text, rows.tolist())) for name in table.sample_names}  # type: ignore[attr-defined]
        found = known | said(self._answers, batch)
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]

    def _samples(self, given: ListTable) -> tuple[Table, Rows | None]:
        """Return the table whose rows are answered, and which of them; all when None."""
        if self.windows is None:
            return given, None
        shape = replace(self.windows.shape(), ends=True)
        return WindowTable(given, shape, self.windows.key, self.windows.time, Origin(Path())).regroup(None, None)

    def schema(self) -> dict[str, Any]:
        """Return what a row has, and what an answer says: JSON values."""
        return {
            "columns": {name: _described(column) for name, column in self.columns.items()},
            "answers": [{"name": a.name, "classes": list(a.classes)} for a in self._answers],
            **({"series": {"rows": self.windows.length, "key": self.windows.key, "time": self.windows.time}} if self.windows else {}),
        }


def _windows(job: Job) -> WindowsOptions:
    """Return how the training data was cut into windows."""
    spec = next(job.run.data[use] for use in ("train", "eval", "test") if use in job.run.data)
    found = check_options(find_reader(spec.reader, spec.reader_at), to_data(spec.options), spec.reader_at)
    assert isinstance(found, WindowsOptions), "columns of windows are made by the reader windows"
    return found


def _described(column: FittedColumn) -> dict[str, Any]:
    """Return a column's type, classes and range."""
    state = column.state
    found: dict[str, Any] = {"type": column.type}
    if state.get("classes"):
        found["classes"] = list(state["classes"])
    for key in ("low", "high", "first", "last"):
        if key in state:
            found[key] = state[key]
    if column.type == "number":
        found["missing"] = "filled" if state.get("fill") is not None else "error"
    return found
