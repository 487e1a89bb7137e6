"""Predicts rows that are at hand, such as those of a request, without a data file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from pe_cli.config.nodes import to_data
from pe_cli.core.errors import ExitCode, PeError, as_one
from pe_cli.core.types import TensorType
from pe_cli.data import Loader
from pe_cli.data.columns.image import ImageOptions
from pe_cli.data.dataset import Array
from pe_cli.data.fields import FieldDataset, Rows
from pe_cli.data.fitted_columns import Fitted, FittedColumn
from pe_cli.data.pictures.decode import CHANNELS, Recipe
from pe_cli.data.raw_cells import ListTable, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.windows import WindowsOptions
from pe_cli.data.registry import check_options, find_reader
from pe_cli.graph.lod_resolution import declared_levels
from pe_cli.ops.define.lod import offsets_name
from pe_cli.ops.define.traits import Random
from pe_cli.program.prune import prune
from pe_cli.program.region import every_op
from pe_cli.session.evaluation.joined import how_joined
from pe_cli.session.evaluation.output_meaning import Answer, answers, said
from pe_cli.session.evaluation.unbatching import SequenceEnds, unbatch
from pe_cli.session.job import Job
from pe_cli.session.serving.request_encoding import Encoded, Hearing, PixelTable

Row = Mapping[str, Any]
#: What a cell of a row may be.
_CELLS = {str, int, float, bool, NoneType}


class Predictor:
    """Answers for rows of cells, by the columns that a run has learned.

    Args:
        job: with values, and with what its columns have learned.
        fetches: outputs; what the model is taught to say when there are none.

    Attributes:
        columns: column of a row -> the fitted column that reads it, for those that the outputs need.
        windows: how windows are cut, where the rows of a request are those of series; else None. Then there is an answer per series.
        bytes: that a row takes until it is answered, besides its cells.
        memory: bytes that the items of sequences may take in a step; None for any. A step with more is an error.
        pictured: whether a row has pictures.
        separate: whether the answer for a row depends on no other row of its batch.

    Raises:
        PeError: USAGE; the run has no columns, as its data are arrays, or has none of rows.
    """

    def __init__(self, job: Job, fetches: Sequence[str] = ()) -> None:
        self._job = job
        self._answers = answers(job, fetches)
        self._variables = list(dict.fromkeys(v for answer in self._answers for v in answer.variables))
        program = prune(job.built.eval, self._variables)
        self._executor = job.executor(program)
        read = {name for op in self._executor.program.top_ops for name in op.input_names()}
        self._types = {
            v.name: TensorType(v.shape[1:], v.dtype)
            for v in job.built.eval.list_vars()
            if v.is_data and v.name in read and v.name in job.data.sources
        }
        self._hows = {v: how_joined(v, job.built.eval.var(v).shape) for v in self._variables}
        lods = self._executor.sequences.lods
        kinds = [TensorType(v.shape[1:], v.dtype) for v in self._executor.program.list_vars() if v.name in lods]
        self._item = sum(math.prod(max(1, n) for n in kind.shape) * kind.numpy.itemsize for kind in kinds)
        self.memory: int | None = None
        self._ends = SequenceEnds(job, self._executor, {v: v for v in self._variables})
        self.bytes = 4 * sum(math.prod(max(1, n) for n in kind.shape) * kind.numpy.itemsize for kind in self._types.values())
        self._wanted = [job.data.sources[name] for name in self._types]
        self._fitted = Fitted({name: _of_pixels(column) for name, column in job.data.fitted.columns.items()}, job.data.fitted.split)
        fitted = job.data.fitted.columns
        names = list(dict.fromkeys(name for want in self._wanted for name in want.names))
        absent = [name for name in names if name not in fitted]
        if absent:
            raise PeError(
                f"the feed '{absent[0]}' is an array of a file, and no column that a request could fill",
                hint="declare the fields under data.columns, or use pe predict",
            )
        blocks = [name for name in names if fitted[name].type == "blocks"]
        if blocks:
            hint = "use pe generate, or pe predict with a file"
            raise PeError(f"the column '{blocks[0]}' is cut from one long text, and a request has rows", hint=hint)
        self.columns: dict[str, FittedColumn] = {}
        for name in names:
            for column in fitted[name].inner or (fitted[name],):
                self.columns |= dict.fromkeys(column.sources, column)
        drawn = any(op.definition.has(Random) and not op.attrs.get("is_test") for op in every_op(self._executor.program))
        # Rows of several requests may share a batch where an answer depends on its own row alone: nothing is drawn, no output is a mean
        # over the batch, and rows are no parts of series.
        self.separate = not drawn and set(self._hows.values()) <= {"concat"} and not any(fitted[name].type == "window" for name in names)
        self.pictured = any(column.type == "image" for column in self.columns.values())
        self.windows = _windows(job) if any(fitted[name].type == "window" for name in names) else None
        # Windows are cut by key and time, whether the model reads them or not.
        if self.windows is not None:
            for option, kind in ((self.windows.key, "category"), (self.windows.time, "date"), (self.windows.observed, "number")):
                if option is not None:
                    self.columns.setdefault(option, FittedColumn(option, kind, {}, {}))

    @property
    def image(self) -> str | None:
        """The column that takes a picture, where it is the only one."""
        names = [name for name, column in self.columns.items() if column.type == "image"]
        return names[0] if len(names) == 1 == len(self.columns) else None

    def recipe(self, name: str) -> Recipe:
        """Return how a picture becomes the pixels of a column's cell."""
        column = self.columns[name]
        options = column.checked
        assert isinstance(options, ImageOptions)
        height, width = options.crop_from or column.state["size"]
        return Recipe(None if options.size is None else (height, width), options.mode, options.resize)

    @property
    def text(self) -> str | None:
        """The column that takes a text, where it is the only one."""
        names = [name for name, column in self.columns.items() if column.type == "text"]
        return names[0] if len(names) == 1 == len(self.columns) else None

    def rows(self, rows: Sequence[Row], where: str = "") -> list[dict[str, Any]]:
        """Return an answer for every row; see `encode` and `answers`."""
        encoded = self.encode(rows, where)
        return self.answers(encoded, 0, len(encoded))

    def encode(self, rows: Sequence[Row], where: str = "", failed: list[str] | None = None) -> Encoded:
        """Return rows as the model takes them.

        Args:
            rows: column -> cell: text, a number, true, false, None where it is missing, or the pixels of a picture, uint8
                [height, width, channels], as `recipe` says; other columns are not read.
            where: names the rows in messages.
            failed: is given the names of the columns that have cells which they cannot take.

        Raises:
            PeError: DATA; a row lacks a column, or has a cell that the column cannot take.
        """
        table, which = self._samples(self._table(rows, where))
        prepared = self._prepared(failed)
        fields = prepared.encoded(table, self._wanted, "request")
        known = (
            {} if which is None
            else {name: list(map(table.cells(name).text, which.tolist())) for name in table.sample_names}  # type: ignore[attr-defined]
        )  # fmt: skip
        return Encoded(FieldDataset(fields, which, prepared.classes(fields)), known, prepared.heard)

    def notes(self, rows: Sequence[Row], columns: Iterable[str]) -> list[str]:
        """Return what who sent some rows should know of some columns, of which the rows of a batch have told something.

        Raises:
            PeError: DATA; a row lacks a column, or has a cell that one of these cannot take: all mistakes in one.
        """
        prepared, table, errors = self._prepared(), self._table(rows, "the request"), list[PeError]()
        for name in columns:
            try:
                prepared.field(table, name, "request")
            except PeError as error:
                errors += error.each
        if errors:
            raise as_one(errors)
        return [text for texts in prepared.heard.values() for text in texts]

    def _prepared(self, failed: list[str] | None = None) -> Hearing:
        job = self._job
        made = Hearing({}, job.run.preparation, job.run.path.parent, job.data.prepared.uses, self._fitted)
        made.failed = failed if failed is not None else []
        return made

    def answers(self, encoded: Encoded, begin: int, end: int) -> list[dict[str, Any]]:
        """Return the answers of some encoded rows: as many; of series one for each, with its key and the time of its last row.

        An answer has the same bits in every batch. Batches of other sizes than powers of two are filled up with their last row, so that
        a few plans serve them all.
        """
        job, dataset = self._job, encoded.dataset
        count = end - begin
        size = 1 << (count - 1).bit_length() if self.separate and not self._ends else count
        rows = dataset.table_rows(np.minimum(np.arange(begin, begin + size), end - 1))
        feeds = {name: job.data.feed(name) for name in self._types}
        chosen, levels = FieldDataset(dataset.columns, rows, dataset.classes), declared_levels(job.built.eval)
        # The only batch is in memory already, so there is nothing to read ahead.
        feed = Loader(chosen, feeds, self._types, size, prefetch=0, levels=levels).first()
        self._check_items(feed)
        result = self._executor.run(feed, self._variables)
        batch = {v: result.merged(v, self._hows[v]) for v in self._variables}
        batch |= {v: unbatch(batch[v], rows) for v, rows in self._ends.lengths(feed).items()}
        if size > count:
            batch = {v: values[:count] for v, values in batch.items()}
        found = {name: values[begin:end] for name, values in encoded.names.items()} | said(self._answers, batch)
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]

    def _check_items(self, feed: Mapping[str, Array]) -> None:
        """Compare the memory that the items of sequences take in a step with what there is for it.

        Raises:
            PeError: DATA; it is more.
        """
        if self.memory is None:
            return
        items = 0
        for name in self._executor.sequences.lods:
            if (offsets := feed.get(offsets_name(name, 0))) is not None:  # all may be made as long as the longest
                items = max(items, (len(offsets) - 1) * int(np.diff(offsets).max()))
        if items * self._item > self.memory:
            said = f"sequences of {items:,} items together take {items * self._item >> 20:,} MiB, and there are {self.memory >> 20:,}"
            raise PeError(said, hint="send shorter ones", code=ExitCode.DATA)

    def warm(self, batch: int) -> None:
        """Make the plans of all batches up to a size, so that no request waits for one; nothing is done where rows have no known length."""
        if self.separate and not self._ends:
            encoded = self.encode(self._with_pixels(self.schema()["example"]["rows"]) * batch)
            if not encoded.dataset.sequences:
                for size in sorted({1 << k for k in range(batch.bit_length())} | {batch}):
                    self.answers(encoded, 0, min(size, batch))

    def _with_pixels(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows with black pictures."""
        pixels = {}
        for name, column in self.columns.items():
            if column.type == "image":
                size, recipe = column.state["size"], self.recipe(name)
                pixels[name] = np.zeros((*(recipe.size or size), CHANNELS[recipe.mode]), np.uint8)
        return [{**row, **pixels} for row in rows]

    def _table(self, rows: Sequence[Row], where: str) -> ListTable:
        origin = Origin(Path())
        columns = {}
        for name, column in self.columns.items():
            try:
                cells = columns[name] = [row[name] for row in rows]
            except KeyError:
                row = next(i for i, row in enumerate(rows) if name not in row)
                hint = f"a row has {', '.join(self.columns)}; null stands for a missing cell"
                raise origin.error(f"{where + ', ' if where else ''}row {row + 1}: there is no column '{name}'", hint) from None
            kinds = {np.ndarray} if column.type == "image" else _CELLS
            if not {type(cell) for cell in cells} <= kinds:
                row = next(i for i, cell in enumerate(cells) if type(cell) not in kinds)
                raise origin.error(f"{where + ', ' if where else ''}row {row + 1}, column '{name}': {_no_cell(column, cells[row])}")
        return PixelTable(columns, origin, where)

    def _samples(self, given: ListTable) -> tuple[Table, Rows | None]:
        """Return the table whose rows are answered, and which of them; all when None."""
        if self.windows is None:
            return given, None
        return self.windows.model_copy(update={"ends": True}).windows(given, Origin(Path())).regroup(None, None)

    def schema(self) -> dict[str, Any]:
        """Return what a row has, with an example that the model takes, and what an answer says: JSON values."""
        columns = self.columns.items()
        found = {name: {"type": column.type, **column.kind.cell(name, column.checked, column.state)} for name, column in columns}
        example = {name: column["example"] for name, column in found.items()}
        windows = self.windows
        return {
            "columns": found,
            "example": {"rows": [example] if windows is None else _series(example, windows)},
            "answers": [_answer(a) for a in self._answers],
            **({"series": {"rows": windows.length, "key": windows.key, "time": windows.time}} if windows else {}),
        }


def _answer(answer: Answer) -> dict[str, Any]:
    plain = answer.column is not None and not (answer.classes or answer.boxes or answer.pixels)
    unit = {"unit": "that of the training data"} if plain else {}
    thresholds = answer.decision.thresholds if answer.decision is not None else ()
    decided = {"thresholds": dict(zip(answer.classes[-len(thresholds) :], thresholds, strict=True))} if thresholds else {}
    return {"name": f"{answer.name}{answer.suffix}", "classes": list(answer.classes), **unit, **decided}


def _series(row: Row, windows: WindowsOptions) -> list[dict[str, Any]]:
    """Return as many rows of one series as an answer takes, a day from each to the next, with those that are yet to come."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    ahead = windows.gap + windows.horizon if windows.observed else 0
    days = [(first + timedelta(days=i)).date().isoformat() for i in range(windows.length + ahead)]
    times = [{windows.time: day} if windows.time else {} for day in days]
    empty: dict[str, Any] = {windows.observed: None} if windows.observed else {}
    return [{**row, **time, **(empty if i >= windows.length else {})} for i, time in enumerate(times)]


def _of_pixels(column: FittedColumn) -> FittedColumn:
    """Return a column that takes pictures as their pixels, in rows of [height, width, channels]."""
    return replace(column, options={**column.options, "stored": "hwc"}) if column.type == "image" else column


def _no_cell(column: FittedColumn, cell: object) -> str:
    if column.type == "image":
        return "a cell is a picture"
    return f"a cell is text or a number, not {'a list' if isinstance(cell, list) else 'an object'}"


def _windows(job: Job) -> WindowsOptions:
    """Return how the training data was cut into windows."""
    spec = next(job.run.data[use] for use in ("train", "eval", "test") if use in job.run.data)
    found = check_options(find_reader(spec.reader, spec.reader_at), to_data(spec.options), spec.reader_at)
    assert isinstance(found, WindowsOptions), "columns of windows are made by the reader windows"
    return found
