"""Surveys a run's data before training: columns, parts, warnings, and rows as the model will see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.nodes import to_data
from pe_cli.config.sections.data import USES
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.survey_figures import ClassShare, ColumnFacts, PartFacts, RowFacts, Survey
from pe_cli.core.types import FLOATS
from pe_cli.data import Dataset
from pe_cli.data.array_dataset import DatasetTable, is_table
from pe_cli.data.column import discover
from pe_cli.data.column_figures import Part, column_facts, cut, field_facts
from pe_cli.data.column_inference import read_ahead
from pe_cli.data.feed_samples import TableDataset, select
from pe_cli.data.fields import FieldDataset
from pe_cli.data.raw_cells import Table
from pe_cli.data.tables.stream import StreamTable
from pe_cli.ops.define.lod import offsets_name
from pe_cli.session.data.contact_sheet import contact_sheet_of
from pe_cli.session.data.diagnostics import class_counts, diagnose_data

if TYPE_CHECKING:
    from pe_cli.data.fitted_columns import FittedColumn
    from pe_cli.session.job import Job

#: How many columns are described, and how many numbers of a sample and characters of a cell are shown.
MOST_COLUMNS, NUMBERS, CELL = 500, 12, 80


def survey(job: Job, rows: int = 10) -> tuple[Survey, PeError | None]:
    """Look at a job's data.

    Args:
        job: whose data is opened.
        rows: training rows that are shown as the model will see them.

    Returns:
        What there is, and what is wrong with the data so that it cannot be trained on; then figures of cells are told, and nothing
        that needs what columns have learned.

    Raises:
        PeError: the files cannot be read, or the config has no training data.
    """
    if "train" not in job.run.data:
        raise PeError(
            "the config has no data.train and no data.source",
            at=job.run.at_of("data"),
            hint="add one",
            code=ExitCode.DATA,
        )
    notes: list[str] = []
    job.data.prepared.tell(notes.append)
    found = _Looked(job)
    error = found.fitted()
    made = Survey(job.run.name, tuple(found.columns()), tuple(found.parts(error)))
    if error is not None:
        return replace(made, notes=tuple(notes)), error
    try:
        warnings = tuple(diagnose_data(job, thorough=True))
        shown = tuple(found.rows(rows))
        sheet, sheet_note = contact_sheet_of(job, "train")
    except PeError as failure:
        return replace(made, notes=tuple(notes)), failure
    return replace(made, warnings=warnings, rows=shown, notes=tuple(notes), sheet=sheet, sheet_note=sheet_note), None


class _Looked:
    """The data of a job, with its tables."""

    def __init__(self, job: Job) -> None:
        self.job, self.prepared = job, job.data.prepared
        self.uses = [use for use in USES if use in job.run.data]
        self.tables: dict[str, Table] = {}
        for use in self.uses:
            opened = self.prepared.sources.opened(use)
            if is_table(opened):
                self.tables[use] = opened.sample if isinstance(opened, StreamTable) else opened
            elif self.prepared.wishes.columns:
                self.tables[use] = self.prepared.sources.table(use)

    def fitted(self) -> PeError | None:
        """Fit the columns; return what is wrong with them."""
        try:
            if "train" in self.tables:
                self.prepared.fit()
            for use in self.uses:
                select(self.job.data.dataset(use), self._fed(use))
        except PeError as error:
            return error
        return None

    def _fed(self, use: str) -> list[Any]:
        """Return the sources of feeds; data for prediction may do without labels."""
        return (
            []
            if use == "predict"
            else [want for feed, want in self.job.data.sources.items() if feed in self.job.built.feeds]
        )

    # --- columns ------------------------------------------------------------------------------------------------------

    def columns(self) -> Iterator[ColumnFacts]:
        """Yield the columns: those that the model reads first, then the others."""
        if "train" not in self.tables:
            yield from self._fields()
            return
        table = self.tables["train"]
        parts = [Part(use, self.tables[use], self._rows(use)) for use in self.uses if use in self.tables]
        declared = self.prepared.declared(table)
        learned = self.prepared.fitted.columns
        uses = list(self.prepared.uses)
        read: set[str] = set()
        for name in list(dict.fromkeys([*uses, *declared, *learned]))[:MOST_COLUMNS]:
            column = learned.get(name)
            kind = column.type if column is not None else declared[name][0] if name in declared else ""
            options = column.checked if column is not None else declared[name][1] if name in declared else None
            sources = discover()[kind].sources(name, options) if options is not None else (name,)
            sources = tuple(source for source in sources if source in table.names)
            if not sources and name in table.names:
                sources = (name,)
            read.update(sources)
            facts = self._start(name, kind, options, column)
            for source in sources:
                part = facts if len(sources) == 1 else replace(facts, name=source, options={}, note=f"part of {name}")
                yield column_facts(part, source, parts, column)
            shown = discover()[kind].made_of(options) if options is not None else ()
            if shown:
                yield replace(facts, note=f"{column.state['steps']} rows of a series" if column is not None else "")
            elif not sources:
                yield replace(facts, note="the data has no such column")
        unread = [name for name in table.names if name not in read][:MOST_COLUMNS]
        # Columns that nothing has read so far are read together, with one pass over the file.
        read_ahead(table, [name for name in unread if table.cells(name).array() is None])
        for name in unread:
            yield column_facts(ColumnFacts(name, "", "unused"), name, parts, None)

    def _rows(self, use: str) -> Any:
        return self.prepared.sources.rows(use)

    def _start(self, name: str, kind: str, options: Any, column: FittedColumn | None) -> ColumnFacts:
        table = self.tables["train"]
        if name in self.prepared.wishes.columns:
            how = "declared"
        elif name in table.implied:
            how = "by the reader"
        else:
            how = "inferred" if kind else "as it is" if isinstance(table, DatasetTable) else "unknown"
        feeds = tuple(feed for feed, want in self.job.data.sources.items() if name in want.names)
        within = [outer.name for outer in self.prepared.fitted.columns.values() if name in [inner.name for inner in outer.inner]]
        how = how if feeds else f"{how}, in {', '.join(within)}" if within else f"{how}, unused"
        said = dict(options.model_dump(mode="json", exclude_unset=True)) if options is not None else {}
        shape = self._kind(name, feeds)
        target = (
            column.target
            if column is not None
            else self.prepared.uses[name].target
            if name in self.prepared.uses
            else False
        )
        return ColumnFacts(name, kind or "array", how, feeds, target, said, shape)

    def _kind(self, name: str, feeds: Sequence[str]) -> str:
        """Return the type of a column's field, where it is a field of its own."""
        if not feeds:
            return ""
        dataset = self.job.data.dataset("train")
        assert isinstance(dataset, TableDataset)
        want = self.job.data.sources[feeds[0]]
        try:
            found = dataset.only([want])
        except PeError:
            return ""
        field = found.columns[want.field]
        said = f"{field.type}{' in sequences' if field.sequences else ''}"
        return said if len(want.names) == 1 else f"in {said}"

    def _fields(self) -> Iterator[ColumnFacts]:
        """Yield the fields of a data set of arrays."""
        dataset = self.job.data.dataset("train")
        taught = {name for name, use in self.prepared.uses.items() if use.target}
        for name in dataset.fields:
            feeds = tuple(feed for feed, want in self.job.data.sources.items() if name in want.names)
            yield field_facts(
                ColumnFacts(name, "array", "as it is" if feeds else "unused", feeds, name in taught), dataset
            )

    # --- parts --------------------------------------------------------------------------------------------------------

    def parts(self, error: PeError | None) -> Iterator[PartFacts]:
        """Yield the parts with the classes of their labels."""
        for use in self.uses:
            spec = self.job.run.data[use]
            where = _named(to_data(spec.options))
            if error is not None:
                table = self.tables.get(use)
                rows = self._rows(use)
                count = (
                    len(rows) if rows is not None else len(table) if table is not None else len(self.job.data.dataset(use))
                )
                yield PartFacts(use, f"{spec.reader} {where}", count)
                continue
            counted = class_counts(self.job, use) if use != "predict" else {}
            shown = {
                name: tuple(
                    ClassShare(label, int(number)) for label, number in zip(names, counts.tolist(), strict=True)
                )
                for name, (names, counts) in counted.items()
            }
            yield PartFacts(use, f"{spec.reader} {where}", len(self.job.data.dataset(use)), shown)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def rows(self, count: int) -> Iterator[RowFacts]:
        """Yield the first training rows, raw and as feeds."""
        job = self.job
        loader = job.data.loader("train", job.built.programs or (job.built.eval,), max(1, count), shuffle=False)
        batch = loader.first()
        dataset = select(job.data.dataset("train"), self._fed("train"))
        where = _table_rows(dataset, count)
        table = self._table_of(dataset)
        for i in range(min(count, len(dataset))):
            row = int(where[i])
            feeds = {
                name: self._shown(name, batch, i, dataset) for name in batch if not name.endswith(offsets_name("", 0))
            }
            yield RowFacts(row, self._cells(table, row), feeds)

    def _table_of(self, dataset: Dataset) -> Table | None:
        """Return the table whose rows are the samples; None where samples are made of several of its rows, or there is none."""
        table = self.tables.get("train")
        return None if table is None or hasattr(table, "regroup") or isinstance(table, DatasetTable) else table

    def _cells(self, table: Table | None, row: int) -> dict[str, str]:
        if table is None:
            return {}
        learned, found = self.prepared.fitted.columns, {}
        for name in dict.fromkeys(name for want in self.job.data.sources.values() for name in want.names):
            sources = [source for source in learned[name].sources if source in table.names] if name in learned else []
            for source in sources:
                found[name if len(sources) == 1 else source] = cut(table.cells(source).text(row), CELL)
        return found

    def _shown(self, feed: str, batch: Mapping[str, NDArray[Any]], i: int, dataset: Dataset) -> str:
        """Return one sample of a feed as text."""
        values, offsets = batch[feed], batch.get(offsets_name(feed, 0))
        want = self.job.data.sources.get(feed)
        names = (
            self.prepared.classes(want.names).get(want.names[0], ())
            if want is not None and len(want.names) == 1
            else ()
        )
        if offsets is not None:
            values = values[offsets[i] : offsets[i + 1]]
            return f"{numbers_text(values)} {self._words(feed, values)}".strip()
        sample = values[i]
        if names and sample.size == 1 and 0 <= int(sample.reshape(-1)[0]) < len(names):
            index = int(sample.reshape(-1)[0])
            return f"{index} ({cut(names[index], CELL)})"
        return f"{numbers_text(sample)} {self._words(feed, sample)}".strip()

    def _words(self, feed: str, ids: NDArray[Any]) -> str:
        """Return the tokens of ids; empty where they are none."""
        want = self.job.data.sources.get(feed)
        if want is None or len(want.names) != 1 or ids.dtype.name in FLOATS:
            return ""
        columns = self.prepared.fitted.columns
        column = columns.get(want.names[0])
        if column is not None and "tokens" not in column.state and column.type == "blocks":
            column = columns.get(str(column.options.get("of")))
        if column is None or "tokens" not in column.state:
            return ""
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        return f"'{cut(open_tokens(column.state['tokens']).decode(ids.reshape(-1)[:200].tolist()), CELL)}'"


def numbers_text(values: NDArray[Any]) -> str:
    """Return numbers for people: a few of them, or of many what they span.

    >>> numbers_text(np.array([1.0, 0.25])), numbers_text(np.zeros((3, 4, 4), "float32"))
    ('[1, 0.25]', 'float32[3, 4, 4] from 0 to 0, mean 0')
    """
    flat = np.asarray(values).reshape(-1)
    if flat.size > 3 * NUMBERS and np.squeeze(values).ndim > 1:
        shape = ", ".join(map(str, values.shape))
        return f"{values.dtype.name}[{shape}] from {flat.min():.4g} to {flat.max():.4g}, mean {flat.mean(dtype=np.float64):.4g}"
    shown = ", ".join(f"{float(value):.4g}" if value.dtype.kind == "f" else str(value) for value in flat[:NUMBERS])
    return f"[{shown}, ...] ({flat.size})" if flat.size > NUMBERS else f"[{shown}]" if flat.size != 1 else shown


def _named(options: Mapping[str, Any]) -> str:
    """Return the files that a reader reads, as the config names them."""
    found = next((options[key] for key in ("files", "file", "folder", "table") if key in options), "")
    if isinstance(found, Mapping):
        found = ", ".join(map(str, found.values()))
    named = ", ".join(map(str, found)) if isinstance(found, list) else str(found)
    window = ", ".join(f"{key} {options[key]:,}" for key in ("skip", "limit") if isinstance(options.get(key), int))
    return cut(f"{named} ({window})" if window else named, CELL)


def _table_rows(dataset: Dataset, count: int) -> NDArray[np.int64]:
    first = np.arange(min(count, len(dataset)), dtype=np.int64)
    if isinstance(dataset, FieldDataset):
        return dataset.table_rows(first)
    rows = getattr(dataset, "rows", None)
    return first if rows is None else np.asarray(rows[: len(first)], np.int64)
