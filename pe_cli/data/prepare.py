"""Prepares the samples of a run: opens and splits sources, fits columns on the training rows, and encodes all."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pe_cli.collectives.protocol import Communicator
from pe_cli.config.nodes import to_data
from pe_cli.config.spec import DataSpec, Preparation
from pe_cli.core.errors import ExitCode, PeError, Span, as_one, did_you_mean
from pe_cli.data.array_dataset import DatasetTable, Subset, is_table
from pe_cli.data.column import ColumnOptions, ColumnType, Context, discover
from pe_cli.data.column_declarations import check_columns, declared_over, paths_given, spread
from pe_cli.data.column_inference import infer
from pe_cli.data.column_sharding import encode_sharded, fit_sharded
from pe_cli.data.column_usage import ColumnUsage, ColumnUse
from pe_cli.data.data_sources import Sources
from pe_cli.data.dataset import Dataset
from pe_cli.data.feed_samples import TableDataset
from pe_cli.data.fields import Field, Rows
from pe_cli.data.fitted_columns import Fitted, FittedColumn
from pe_cli.data.joined_columns import joined
from pe_cli.data.machine_processes import MachineProcesses
from pe_cli.data.notation import Notation
from pe_cli.data.raw_cells import Table
from pe_cli.data.spill_storage import bound_memory
from pe_cli.data.stream_fields import learned_from, streamed
from pe_cli.data.tables.stream import StreamTable


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
        sources: the opened sources and the rows of their parts.
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
        self.wishes, self.uses = wishes, uses
        self.given = fitted is not None
        self.fitted = fitted or Fitted()
        self._note, self._said = note, set[str]()
        bound_memory(wishes.memory.bytes if wishes.memory else None)
        self._heard: list[str] | None = None
        self.sources = Sources(data, wishes, base, self.fitted)
        self._fields: dict[tuple[int, str], Field] = {}
        self._names: tuple[Sequence[str], frozenset[str]] = (), frozenset()
        self._declared: dict[str, tuple[str, ColumnOptions]] | None = None
        self._datasets: dict[str, Dataset] = {}

    @contextlib.contextmanager
    def shared(self, peers: Communicator | None) -> Iterator[None]:
        """Prepare what is asked for meanwhile together with other processes, all of which ask for the same.

        Raises:
            PeError: DATA; another process has read other files.
        """
        if peers is not None:
            self.sources.together = MachineProcesses(peers)
            self._take_learned(self.sources.together)
        try:
            yield
        finally:
            self.sources.together = None

    def _take_learned(self, together: MachineProcesses) -> None:
        """Take over what columns have learned in an earlier process, where another of these processes knows it: who resumes a run does."""
        mine = {name: data.decode() for name, data in self.fitted.to_files().items()} if self.given else None
        files = together.first("what columns have learned before", mine)
        if files is not None and not self.given:
            known = Fitted.from_files({name: text.encode() for name, text in files.items()}, "the first process")
            self.given, self.fitted.columns, self.fitted.split = True, known.columns, known.split

    def tell(self, note: Callable[[str], None]) -> None:
        """Tell somebody else what users should know, from now on."""
        self._note = note

    # --- samples ------------------------------------------------------------------------------------------------------

    def dataset(self, use: str) -> Dataset:
        """Return the samples of a use; they are opened once.

        Raises:
            PeError: the files cannot be read, or do not hold what the config says.
        """
        if use not in self._datasets:
            self._datasets[use] = self.of(self.sources.opened(use), use, self.sources.rows(use))
        return self._datasets[use]

    def of(self, opened: Dataset | Table, use: str, rows: Rows | None = None) -> Dataset:
        """Return what a reader gave as samples of a use: a table's columns are encoded, arrays stay as they are."""
        if is_table(opened):
            return TableDataset(self, opened, rows, use)
        if self.wishes.columns:
            table = self.sources.table(use) if opened is self.sources.opened(use) else self.sources.as_table(opened, use)
            return TableDataset(self, table, rows, use)
        return opened if rows is None else Subset(opened, rows)

    # --- columns ------------------------------------------------------------------------------------------------------

    def declared(self, table: Table) -> dict[str, tuple[str, ColumnOptions]]:
        """Return the columns that config and reader declare: name -> type and checked options.

        Raises:
            PeError: USAGE; a type or an option is wrong, all mistakes in one.
        """
        if self._declared is None:
            written: dict[str, tuple[Any, Span | None]] = {name: (dict(given), None) for name, given in table.implied.items()}
            for name, spec in self.wishes.columns.items():
                written[name] = (declared_over(table.implied.get(name, {}), to_data(spec.value)), spec.value.at)
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
        if "train" not in self.sources.data:
            raise PeError(
                "columns learn from the training rows, and the config has no data.train",
                at=next((spec.at for spec in self.sources.data.values()), None),
                hint="name a run that was trained, or add data.train",
                code=ExitCode.DATA,
            )
        table, rows = self.sources.table("train"), self.sources.rows("train")
        table = learned_from(table, self._say)
        declared = self.declared(table)
        self.uses, inner = spread(self.uses, declared)
        known = {*declared, *table.names, *inner}
        names = [name for name in dict.fromkeys([*inner, *self.uses, *declared]) if name in known]
        self._read_ahead(table, names)
        errors: list[PeError] = []
        found: dict[str, FittedColumn] = {}
        dealt = self._deal_fits(table, rows, names, declared)
        for name in names:
            try:
                column, notes = dealt.get(name) or (self._fit(table, rows, name, declared.get(name)), ())
                for text in notes:
                    self._say(text)
                if column is not None and all(of in found for of in column.kind.made_of(column.checked)):
                    column = column.with_inner(found)
            except PeError as error:
                errors += error.each
                continue
            if column is not None:
                found[name] = column
        if errors:
            raise as_one(errors)
        self.fitted.columns = found
        return self.fitted

    def _deal_fits(
        self, table: Table, rows: Rows | None, names: Iterable[str], declared: Mapping[str, tuple[str, ColumnOptions]]
    ) -> dict[str, tuple[FittedColumn, list[str]]]:
        """Return what columns have learned, each fitted by one process, with the messages of that process."""
        if self.sources.together is None:
            return {}

        def fit(name: str) -> tuple[FittedColumn | None, list[str]]:
            with self._overheard() as said:
                return self._fit(table, rows, name, declared.get(name), alone=True), said

        several = {name for name, (kind, options) in declared.items() if discover()[kind].shares or discover()[kind].made_of(options)}
        return fit_sharded(self.sources.together, [name for name in names if name not in several], fit)

    def _read_ahead(self, table: Table, names: Iterable[str]) -> None:
        """Let the table read all columns in one pass."""
        views: dict[str, dict[str, Notation]] = {"numbers": {}, "codes": {}, "": {}}
        known = self._known(table)
        for name in names:
            found = self.fitted.columns.get(name)
            declared = (self._declared or {}).get(name)
            if found is not None:
                for column in found.inner or (found,):
                    views[column.kind.view] |= dict.fromkeys(
                        (source for source in column.sources if source in known), column.kind.notation(column.checked)
                    )
                continue
            if declared is not None:
                kind, sources = discover()[declared[0]], discover()[declared[0]].sources(name, declared[1])
            else:
                continue
            views[kind.view] |= dict.fromkeys((source for source in sources if source in known), kind.notation(declared[1]))
        table.prepare(views["numbers"], list(views["codes"]), self.sources.together)

    def _fit(
        self, table: Table, rows: Rows | None, name: str, declared: tuple[str, ColumnOptions] | None, *, alone: bool = False
    ) -> FittedColumn | None:
        use = self.uses.get(name, ColumnUse())
        context = replace(self._context(table, name), peers=self.sources.together.peers if self.sources.together and not alone else None)
        if declared is None:
            if isinstance(table, DatasetTable):
                return None
            if name not in table.names:
                raise self._no_column(table, name)
            inferred = infer(replace(context, target=use.target and not use.shown), rows, use.level)
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

    def _known(self, table: Table) -> frozenset[str]:
        """Return the names of a table's columns, of which each column asks for its own."""
        if self._names[0] is not table.names:
            self._names = table.names, frozenset(table.names)
        return self._names[1]

    def _context(self, table: Table, name: str) -> Context:
        use = self.uses.get(name, ColumnUse())
        written = self.wishes.columns.get(name)
        return Context(table, name, use.target, use.dtype, written.at if written else None, self.sources.base)

    def _check_sources(
        self, table: Table, name: str, column: ColumnType[Any], options: ColumnOptions, at: Span | None = None
    ) -> None:
        known = self._known(table)
        for source in column.sources(name, options):
            if source not in known:
                shown = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
                said = f"column '{name}' reads '{source}', and the data has no such column"
                said = said if source != name else f"the data has no column '{name}'"
                raise PeError(said, at=at, hint=did_you_mean(source, table.names) or f"it has {shown}", code=ExitCode.DATA)

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
                written = self.wishes.columns.get(name)
                options = found.checked.model_copy(update=paths_given(written, found.checked))
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

    def check_names(self, use: str, wanted: Iterable[ColumnUsage]) -> None:
        """Compare what feeds take with the names of a source's columns; nothing is read.

        Raises:
            PeError: DATA; a column is not there.
        """
        table = self.sources.table(use)
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

    def encoded(self, table: Table, wanted: Sequence[ColumnUsage], use: str) -> dict[str, Field]:
        """Return fields of a table, joined where a feed takes several.

        Raises:
            PeError: DATA; a column is not there, or has cells that it cannot take: all mistakes in one.
        """
        self.fit()
        if isinstance(table, StreamTable):
            return streamed(self.alone, self.fitted, table, wanted, use)
        found = {want.field: self._fields[id(table), want.field] for want in wanted if (id(table), want.field) in self._fields}
        wanted = [want for want in wanted if want.field not in found]
        self._read_ahead(table, [name for want in wanted for name in want.names])
        self._deal_fields(table, wanted, use)
        errors: list[PeError] = []
        for want in wanted:
            parts: list[Field] = []
            for name in want.names:
                try:
                    parts.append(self.field(table, name, use))
                except PeError as error:
                    for inner in error.each:
                        inner.at = inner.at or want.at
                        errors.append(inner)
            if len(parts) == len(want.names):
                found[want.field] = parts[0] if len(parts) == 1 else self._joined(table, want, parts)
        if errors:
            raise as_one(errors)
        return found

    def alone(self) -> Prepared:
        """Return the same with nothing encoded yet, for this process alone, which tells nobody anything."""
        found = copy.copy(self)
        found.sources, found._fields, found._names, found._heard = self.sources.alone(), {}, ((), frozenset()), []
        return found

    def _deal_fields(self, table: Table, wanted: Sequence[ColumnUsage], use: str) -> None:
        """Encode columns that have not been encoded yet, each in one process of a machine, where several prepare the same."""
        if self.sources.together is None or isinstance(table, DatasetTable):
            return

        def encode(name: str) -> tuple[Field, list[str]]:
            with self._overheard() as said:
                return self.field(table, name, use), said

        columns = [self.fitted.columns[name] for want in wanted for name in want.names if name in self.fitted.columns]
        plain = dict.fromkeys(inner.name for column in columns for inner in column.inner or (column,) if not inner.kind.shares)
        new = [name for name in plain if (id(table), name) not in self._fields]
        for name, (field, notes) in encode_sharded(self.sources.together, new, encode).items():
            self._fields[id(table), name] = field
            for text in notes:
                self._say(text)

    def _joined(self, table: Table, want: ColumnUsage, parts: Sequence[Field]) -> Field:
        """Return several fields side by side, as one array: one look-up per sample."""
        field = joined(want, parts, {name for name in want.names if not self.classes([name])}, self.sources.together)
        self._fields[id(table), want.field] = field
        for name in want.names:  # nobody else has asked for them
            self._fields.pop((id(table), name), None)
        return field

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

    @contextlib.contextmanager
    def _overheard(self) -> Iterator[list[str]]:
        """Collect what users should know, and tell nobody."""
        before, self._heard = self._heard, []
        try:
            yield self._heard
        finally:
            self._heard = before

    def _say(self, text: str) -> None:
        if self._heard is not None:
            self._heard.append(text)
            return
        if text not in self._said:
            self._said.add(text)
            self._note(text)
