"""From the data sections of a run to samples: sources are opened and split, columns are fitted on the training rows and encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pe_cli.config.nodes import to_data
from pe_cli.config.spec import DataSpec, Preparation
from pe_cli.config.words import option_errors
from pe_cli.core.errors import ExitCode, PeError, PeErrors, Span, did_you_mean
from pe_cli.data.arrays import DatasetTable, Subset, is_table
from pe_cli.data.cells import Table
from pe_cli.data.column import ColumnOptions, ColumnType, Context, discover
from pe_cli.data.dataset import Batch, Dataset, sequence_fields
from pe_cli.data.fields import ArrayField, Field, FieldDataset, Rows
from pe_cli.data.fitted import Fitted, FittedColumn
from pe_cli.data.infer import infer
from pe_cli.data.origin import Look, Origin
from pe_cli.data.registry import open_reader
from pe_cli.data.room import room
from pe_cli.data.split import describe, split_rows


@dataclass(frozen=True)
class ColumnUse:
    """What a model does with a column.

    Args:
        target: the model is taught it.
        dtype: of the feed that takes it.
        level: levels of the feed's sequences.
        alone: whether no other column stands beside it in the feed.
        shown: whether other columns are made of it.
    """

    target: bool = False
    dtype: str | None = None
    level: int = 0
    alone: bool = True
    shown: bool = False


@dataclass(frozen=True)
class Wanted:
    """The source of a feed.

    Args:
        names: fields that are joined along their last axis; mostly one.
        at: place in the config.
    """

    names: tuple[str, ...]
    at: Span | None = None

    @property
    def field(self) -> str:
        """Name of the field that the data set has for it."""
        return joined_name(self.names)


def joined_name(names: Sequence[str]) -> str:
    """Return the name of a field that several columns make together."""
    return " + ".join(names)


def _over(implied: Mapping[str, Any], declared: Any) -> Any:
    """Return the options of a declared column; those that the reader gives to a column of that type stay where nothing is declared."""
    same = isinstance(declared, dict) and implied.get("type") == declared.get("type")
    return {**implied, **declared} if same else declared


def _spread(
    uses: Mapping[str, ColumnUse], declared: Mapping[str, tuple[str, ColumnOptions]]
) -> tuple[dict[str, ColumnUse], tuple[str, ...]]:
    """Return uses with those of columns that other columns are made of, and the names of these.

    Raises:
        PeError: USAGE; a column is made of one that is itself made of others.
    """
    found, inner = dict(uses), dict[str, None]()
    made = {name: parts for name, (kind, options) in declared.items() if (parts := discover()[kind].made_of(options))}
    for name, parts in made.items():
        use = uses.get(name, ColumnUse())
        for part in parts:
            if part in made:
                said = f"data.columns.{name} is made of '{part}', which is a {declared[part][0]} itself"
                raise PeError(said, hint="name columns of the table")
            before = found.get(part)
            one = replace(use, level=0, shown=True, alone=use.alone and len(parts) == 1)
            if before is not None:
                dtype = one.dtype if before.dtype == one.dtype else None
                one = replace(one, target=before.target or one.target, dtype=dtype, alone=before.alone and one.alone)
            found[part] = one
            inner[part] = None
    return found, tuple(inner)


class Prepared:
    """The data of a run.

    Args:
        data: its sources, by use.
        wishes: what is done with their rows.
        base: folder that relative paths start from.
        uses: column -> what the model does with it, for those that are fed.
        fitted: what the columns have learned in an earlier process; None learns it from the training rows.
        note: is told what users should know.

    Attributes:
        read: files and folders that readers have read.
        look: how far packed files are looked into; None, and whoever computes with what they hold leaves it so, for all.
    """

    def __init__(
        self,
        data: Mapping[str, DataSpec],
        wishes: Preparation,
        base: Path,
        uses: Mapping[str, ColumnUse],
        fitted: Fitted | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.data, self.wishes, self.base, self.uses = data, wishes, base, uses
        self.given = fitted is not None
        self.fitted = fitted or Fitted()
        self._note, self._said = note, set[str]()
        self._opened: dict[str, Dataset | Table] = {}
        self.read: list[Path] = []
        self.look: Look | None = None
        self._parts: dict[str, Rows] | None = None
        self._fields: dict[tuple[int, str], Field] = {}
        self._declared: dict[str, tuple[str, ColumnOptions]] | None = None
        self._datasets: dict[str, Dataset] = {}

    def tell(self, note: Callable[[str], None]) -> None:
        """Tell somebody else what users should know, from now on."""
        self._note = note

    # --- sources ------------------------------------------------------------------------------------------------------

    def dataset(self, use: str) -> Dataset:
        """Return the samples of a use; they are opened once.

        Raises:
            PeError: the files cannot be read, or do not hold what the config says.
        """
        if use not in self._datasets:
            self._datasets[use] = self._dataset(use)
        return self._datasets[use]

    def _dataset(self, use: str) -> Dataset:
        opened = self.opened(use)
        return self.of(opened, use, self.rows(use))

    def of(self, opened: Dataset | Table, use: str, rows: Rows | None = None) -> Dataset:
        """Return what a reader gave as samples of a use: a table's columns are encoded, arrays stay as they are."""
        if is_table(opened):
            return TableDataset(self, opened, rows, use)
        if self.wishes.columns:
            table = self.table(use) if opened is self.opened(use) else self._as_table(opened, use)
            return TableDataset(self, table, rows, use)
        return opened if rows is None else Subset(opened, rows)

    def _as_table(self, opened: Dataset, use: str) -> DatasetTable:
        return DatasetTable(opened, Origin(self.base, self.data[use].reader_at))

    def opened(self, use: str) -> Dataset | Table:
        """Return what the reader of a use gave; parts of one source share it."""
        spec = self.data[use]
        key = "source" if spec.split else use
        if key not in self._opened:
            self._opened[key] = open_reader(spec.reader, to_data(spec.options), self.base, spec.reader_at, self.read, self.look)
        return self._opened[key]

    def table(self, use: str) -> Table:
        """Return the source of a use as a table; a data set of arrays has its fields as columns."""
        opened = self.opened(use)
        if is_table(opened):
            return opened
        key = "source table" if self.data[use].split else f"{use} table"
        if key not in self._opened:
            self._opened[key] = self._as_table(opened, use)
        table = self._opened[key]
        assert is_table(table)
        return table

    def rows(self, use: str) -> Rows | None:
        """Return the rows of a use; None for all of them."""
        return self.parts()[use] if self.data[use].split and self.wishes.split else None

    def parts(self) -> Mapping[str, Rows]:
        """Return the rows of every part of the source.

        Raises:
            PeError: DATA; the source is not the one that the run was trained on.
        """
        if self._parts is None:
            assert self.wishes.split is not None or not any(spec.split for spec in self.data.values() if spec.name != "train")
            self._parts = {}
            if self.wishes.split is not None:
                use = next(name for name, spec in self.data.items() if spec.split)
                table = self.table(use)
                self._parts = split_rows(table, np.arange(len(table), dtype=np.int64), self.wishes.split)
                self._check_split(describe(self._parts, len(table)), use)
        return self._parts

    def _check_split(self, found: dict[str, object], use: str) -> None:
        before = self.fitted.split
        if before is not None and before != found:
            raise PeError(
                f"data.source has {found['rows']:,} rows, divided otherwise than in training, where it had {before.get('rows')}",
                at=self.data[use].reader_at,
                hint="rows that were trained on could be evaluated: bring the file back, or evaluate a file of its own: "
                "-o 'data={eval: {reader: ..., files: ...}}'",
                code=ExitCode.DATA,
            )
        self.fitted.split = found

    # --- columns ------------------------------------------------------------------------------------------------------

    def declared(self, table: Table) -> dict[str, tuple[str, ColumnOptions]]:
        """Return the columns that config and reader declare: name -> type and checked options.

        Raises:
            PeError: USAGE; a type or an option is wrong, all mistakes in one.
        """
        if self._declared is None:
            written: dict[str, tuple[Any, Span | None]] = {name: (dict(given), None) for name, given in table.implied.items()}
            for name, spec in self.wishes.columns.items():
                written[name] = (_over(table.implied.get(name, {}), to_data(spec.value)), spec.value.at)
            self._declared = check_columns(written)
        return self._declared

    def columns(self, table: Table) -> tuple[str, ...]:
        """Return the names that feeds may take: declared columns and those of the table."""
        return tuple(dict.fromkeys([*self.declared(table), *table.names]))

    def fit(self) -> Fitted:
        """Return what all columns that are fed have learned; learn it now where that has not been done.

        Raises:
            PeError: DATA; a column is not there, or has cells that it cannot take: all mistakes in one.
        """
        if self.given or self.fitted.columns:
            return self.fitted
        if "train" not in self.data:
            raise PeError(
                "columns learn from the training rows, and the config has no data.train",
                at=next((spec.at for spec in self.data.values()), None),
                hint="name a run that was trained, or add data.train",
                code=ExitCode.DATA,
            )
        table, rows = self.table("train"), self.rows("train")
        declared = self.declared(table)
        self.uses, inner = _spread(self.uses, declared)
        known = {*declared, *table.names, *inner}
        names = [name for name in dict.fromkeys([*inner, *self.uses, *declared]) if name in known]
        self._read_ahead(table, names)
        errors: list[PeError] = []
        found: dict[str, FittedColumn] = {}
        for name in names:
            try:
                column = self._fit(table, rows, name, declared.get(name))
                if column is not None and all(of in found for of in column.kind.made_of(column.checked)):
                    column = column.with_inner(found)
            except PeError as error:
                errors += error.errors if isinstance(error, PeErrors) else [error]
                continue
            if column is not None:
                found[name] = column
        if errors:
            raise errors[0] if len(errors) == 1 else PeErrors(errors)
        self.fitted.columns = found
        return self.fitted

    def _read_ahead(self, table: Table, names: Iterable[str]) -> None:
        """Let the table read all columns in one pass."""
        views: dict[str, list[str]] = {"numbers": [], "codes": [], "": []}
        for name in names:
            found = self.fitted.columns.get(name)
            declared = (self._declared or {}).get(name)
            if found is not None:
                for column in found.inner or (found,):
                    views[column.kind.view] += [source for source in column.sources if source in table.names]
                continue
            if declared is not None:
                kind, sources = discover()[declared[0]], discover()[declared[0]].sources(name, declared[1])
            else:
                continue
            views[kind.view] += [source for source in sources if source in table.names]
        table.prepare(views["numbers"], views["codes"])

    def _fit(self, table: Table, rows: Rows | None, name: str, declared: tuple[str, ColumnOptions] | None) -> FittedColumn | None:
        use = self.uses.get(name, ColumnUse())
        context = self._context(table, name)
        if declared is None:
            if isinstance(table, DatasetTable):
                return None
            if name not in table.names:
                raise self._no_column(table, name)
            inferred = infer(replace(context, target=use.target and not use.shown), rows, use.level, use.alone)
            kind, raw = inferred.type, inferred.options
            options = discover()[kind].options.model_validate(raw)
            self._say(f"column '{name}' is taken as {inferred}")
        else:
            kind, options = declared
            raw = options.model_dump(mode="json", exclude_unset=True)
        column = discover()[kind]
        self._check_sources(table, name, column, options, context.at)
        state = column.fit(options, context, rows)
        self._tell(context, "train")
        return FittedColumn(name, kind, raw, state, use.target)

    def _context(self, table: Table, name: str) -> Context:
        use = self.uses.get(name, ColumnUse())
        written = self.wishes.columns.get(name)
        return Context(table, name, use.target, use.dtype, written.at if written else None, self.base)

    def _check_sources(
        self, table: Table, name: str, column: ColumnType[Any], options: ColumnOptions, at: Span | None = None
    ) -> None:
        for source in column.sources(name, options):
            if source not in table.names:
                shown = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
                raise PeError(
                    f"column '{name}' reads '{source}', and the data has no such column" if source != name
                    else f"the data has no column '{name}'",
                    at=at,
                    hint=did_you_mean(source, table.names) or f"it has {shown}",
                    code=ExitCode.DATA,
                )  # fmt: skip

    def field(self, table: Table, name: str, use: str) -> Field:
        """Return a column of a table, encoded with what was learned in training; once per table.

        Raises:
            PeError: DATA; the column is not there, or has cells that it cannot take.
        """
        key = (id(table), name)
        if key not in self._fields:
            found = self.fit().columns.get(name)
            if found is None:
                if not isinstance(table, DatasetTable) or name not in table.names:
                    raise self._no_column(table, name)
                self._fields[key] = table.field(name)
            else:
                options = found.checked
                written = self.wishes.columns.get(name)
                self._check_sources(table, name, found.kind, options, written.at if written else None)
                fields = {column.name: self.field(table, column.name, use) for column in found.inner}
                context = replace(self._context(table, name), target=found.target, fields=fields)
                try:
                    self._fields[key] = found.kind.encode(options, found.state, context)
                except (KeyError, IndexError, TypeError, AttributeError) as error:
                    if not self.given:
                        raise
                    raise PeError(
                        f"column '{name}': what data.json says of it is not what type {found.type} learns ({error})",
                        hint="take another checkpoint of the run",
                        code=ExitCode.DATA,
                    ) from None
                self._tell(context, use)
        return self._fields[key]

    def check_names(self, use: str, wanted: Iterable[Wanted]) -> None:
        """Compare what feeds take with the names of a source's columns; nothing is read.

        Raises:
            PeError: DATA; a column is not there.
        """
        table = self.table(use)
        known = self.columns(table)
        for want in wanted:
            for name in want.names:
                if name not in known:
                    error = self._no_column(table, name)
                    error.at = want.at
                    raise error

    def _no_column(self, table: Table, name: str) -> PeError:
        known = self.columns(table)
        hint = did_you_mean(name, known) or f"it has {', '.join(known[:20])}"
        return PeError(f"the data has no column '{name}'", hint=hint, code=ExitCode.DATA)

    def encoded(self, table: Table, wanted: Sequence[Wanted], use: str) -> dict[str, Field]:
        """Return fields of a table, joined where a feed takes several.

        Raises:
            PeError: DATA; a column is not there, or has cells that it cannot take: all mistakes in one.
        """
        self.fit()
        self._read_ahead(table, [name for want in wanted for name in want.names])
        errors: list[PeError] = []
        found: dict[str, Field] = {}
        for want in wanted:
            parts: list[Field] = []
            for name in want.names:
                try:
                    parts.append(self.field(table, name, use))
                except PeError as error:
                    for inner in error.errors if isinstance(error, PeErrors) else [error]:
                        inner.at = inner.at or want.at
                        errors.append(inner)
            if len(parts) == len(want.names):
                found[want.field] = parts[0] if len(parts) == 1 else self._joined(table, want, parts)
        if errors:
            raise errors[0] if len(errors) == 1 else PeErrors(errors)
        return found

    def _joined(self, table: Table, want: Wanted, parts: Sequence[Field]) -> Field:
        """Return several fields side by side, as one array: one look-up per sample."""
        key = (id(table), want.field)
        if key in self._fields:
            return self._fields[key]
        for name, part in zip(want.names, parts, strict=True):
            if not isinstance(part, ArrayField) or len(part.type.shape) != 1:
                raise PeError(
                    f"column '{name}' is {part.type}{' in sequences' if part.sequences else ''} and cannot stand beside others in a feed",
                    at=want.at,
                    hint="columns that are joined have one row of numbers per sample; give this one a feed of its own",
                    code=ExitCode.DATA,
                )
        arrays = [part for part in parts if isinstance(part, ArrayField)]
        dtype = np.result_type(*(part.type.numpy for part in arrays)).name
        dtype = dtype if dtype == "int64" else "float64" if any(p.type.dtype == "float64" for p in arrays) else "float32"
        out = room((len(table), sum(part.type.shape[0] for part in arrays)), dtype, f"feed of '{want.field}'")
        start = 0
        numbers: dict[str, slice] = {}
        for name, part in zip(want.names, arrays, strict=True):
            end = start + part.type.shape[0]
            out[:, start:end] = part.values
            if not self.classes([name]):
                numbers[name] = slice(start, end)
            start = end
        self._fields[key] = ArrayField(out, dtype, numbers)
        for name in want.names:  # nobody else has asked for them
            self._fields.pop((id(table), name), None)
        return self._fields[key]

    def classes(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the names of the classes of columns, for those that have any."""
        found = {name: self.fitted.columns[name].classes for name in names if name in self.fitted.columns}
        return {name: classes for name, classes in found.items() if classes}

    def _tell(self, context: Context, use: str) -> None:
        self.note_all(use, context.notes)

    def note_all(self, use: str, notes: Iterable[str]) -> None:
        """Tell what users should know of the data of a use; each sentence once."""
        for text in notes:
            self._say(f"data.{use}: {text}")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._note(text)


class TableDataset:
    """The rows of a table as samples; columns are encoded when they are first asked for.

    Args:
        prepared: says what the columns mean.
        table: the rows.
        rows: int64, those that are samples; all when None.
        use: for messages.
    """

    def __init__(self, prepared: Prepared, table: Table, rows: Rows | None, use: str) -> None:
        self.prepared, self.table, self.rows, self.use = prepared, table, rows, use
        self._all: FieldDataset | None = None
        self._made: tuple[Table, Rows | None] | None = None

    def __len__(self) -> int:
        table, rows = self._samples()
        return len(table) if rows is None else len(rows)

    def _samples(self) -> tuple[Table, Rows | None]:
        """Return the table whose rows are samples, and which: a table may make its samples of rows once its columns are fitted."""
        if self._made is None:
            regroup = getattr(self.table, "regroup", None)
            self._made = (self.table, self.rows) if regroup is None else regroup(self.rows, self.prepared.fit())
            self.prepared.note_all(self.use, getattr(self.table, "notes", ()))
        return self._made

    def only(self, wanted: Sequence[Wanted]) -> FieldDataset:
        """Return the samples with some fields.

        Raises:
            PeError: DATA; see `Prepared.encoded`.
        """
        table, rows = self._samples()
        fields = self.prepared.encoded(table, wanted, self.use)
        return FieldDataset(fields, rows, self.prepared.classes(fields))

    def _whole(self) -> FieldDataset:
        if self._all is None:
            known = self.prepared.columns(self.table)
            names = [name for name in self.prepared.fit().columns if name in known] or list(known)
            self._all = self.only([Wanted((name,)) for name in names])
        return self._all

    @property
    def fields(self) -> dict[str, Any]:
        """Type of every column's field; see `Dataset.fields`."""
        return self._whole().fields

    @property
    def sequences(self) -> frozenset[str]:
        """Columns whose samples are sequences."""
        return self._whole().sequences

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes of columns, for those that have any."""
        return self.prepared.classes(self.prepared.fit().columns)

    def take(self, indices: Rows) -> Batch:
        """Return copies of some samples, with all columns; see `Dataset.take`."""
        return self._whole().take(indices)


class Joined:
    """A data set with fields that join others along their last axis.

    Args:
        dataset: has the fields that are joined.
        groups: new field -> those that make it.
    """

    def __init__(self, dataset: Dataset, groups: Mapping[str, Wanted]) -> None:
        self._dataset, self._groups = dataset, groups
        self.classes: dict[str, tuple[str, ...]] = getattr(dataset, "classes", {})
        self.sequences = sequence_fields(dataset)
        self.fields = dict(dataset.fields)
        for name, want in groups.items():
            for part in want.names:
                if part not in self.fields or part in self.sequences:
                    said = "holds sequences" if part in self.sequences else "is not there"
                    hint = did_you_mean(part, self.fields) or f"there are {', '.join(self.fields)}"
                    raise PeError(f"field '{part}' {said}, and cannot be joined", at=want.at, hint=hint, code=ExitCode.DATA)
            sample = {part: np.zeros((1, *self.fields[part].shape), self.fields[part].numpy) for part in want.names}
            try:
                found = self._join(sample, want)
            except ValueError:
                shapes = ", ".join(f"{part} is {self.fields[part]}" for part in want.names)
                raise PeError(f"fields that differ cannot be joined: {shapes}", at=want.at, code=ExitCode.DATA) from None
            self.fields[name] = replace(self.fields[want.names[0]], shape=found.shape[1:], dtype=found.dtype.name)

    @staticmethod
    def _join(batch: Mapping[str, Any], want: Wanted) -> Any:
        return np.concatenate([batch[name] for name in want.names], axis=-1)

    def __len__(self) -> int:
        return len(self._dataset)

    def take(self, indices: Rows) -> Batch:
        """Return copies of some samples; see `Dataset.take`."""
        batch = self._dataset.take(indices)
        return batch | {name: self._join(batch, want) for name, want in self._groups.items()}


def select(dataset: Dataset, wanted: Sequence[Wanted]) -> Dataset:
    """Return a data set with the fields that feeds take.

    Raises:
        PeError: DATA; a column is not there, or cannot be encoded.
    """
    if isinstance(dataset, TableDataset):
        return dataset.only(wanted)
    groups = {want.field: want for want in wanted if len(want.names) > 1}
    return Joined(dataset, groups) if groups else dataset


def check_columns(written: Mapping[str, tuple[Any, Span | None]]) -> dict[str, tuple[str, ColumnOptions]]:
    """Return declared columns with their options checked.

    Args:
        written: name -> what stands there, and where.

    Raises:
        PeError: USAGE; all mistakes in one.
    """
    kinds = discover()
    errors: list[PeError] = []
    found: dict[str, tuple[str, ColumnOptions]] = {}
    for name, (value, at) in written.items():
        where = f"data.columns.{name}"
        if isinstance(value, str):
            value = {"type": value}
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            listed = f"one of {', '.join(sorted(kinds))}"
            said = f"{where} needs a type" if kind is None else f"{where}: there is no column type '{kind}'"
            errors.append(PeError(said, at=at, hint=(did_you_mean(str(kind), kinds) if kind else None) or listed))
            continue
        try:
            options = kinds[kind].options.model_validate({key: inner for key, inner in value.items() if key != "type"})
        except ValidationError as failure:
            errors += option_errors(f"{where}: type {kind}", kinds[kind].options, failure, at)
            continue
        found[name] = (kind, options)
    if errors:
        raise errors[0] if len(errors) == 1 else PeErrors(errors)
    return found
