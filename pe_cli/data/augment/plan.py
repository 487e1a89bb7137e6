"""What a config's `data.augment` means for a data set: every entry is checked before training, then applied batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from pydantic import ValidationError

from pe_cli.config.pydantic_messages import option_errors
from pe_cli.core.errors import PeError, Span, as_one, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import (
    AugmentOptions,
    BatchKind,
    Column,
    ColumnKind,
    Kind,
    PictureKind,
    discover,
)
from pe_cli.data.dataset import Batch, Dataset
from pe_cli.data.feed import Feed
from pe_cli.data.fields import FieldDataset, PictureField, Rows, is_picture
from pe_cli.data.pictures.transform_programs import Program, Shape, Step, middle
from pe_cli.ops.define.lod import offsets_name


@dataclass(frozen=True)
class Entry:
    """An augmentation of a list, checked.

    Args:
        kind: of it.
        options: checked.
        place: of it in the list; with its name it tells its draws apart.
        at: place in the config.
    """

    kind: Kind[Any]
    options: AugmentOptions
    place: str
    at: Span | None

    def error(self, message: str, hint: str | None = None) -> PeError:
        """Return an error of this entry."""
        return PeError(f"data.augment: {self.kind.name}: {message}", at=self.at, hint=hint)


@dataclass(frozen=True)
class Stage:
    """A kind of picture augmentation, with the shape that it begins with."""

    entry: Entry
    shape: Shape


@dataclass(frozen=True)
class Change:
    """An augmentation of a field's array.

    Args:
        entry: of the list.
        field: of the data set.
        part: which elements of the last axis, where several columns are joined.
    """

    entry: Entry
    field: str
    part: slice | None


@dataclass(frozen=True)
class Mix:
    """An augmentation of whole batches."""

    entry: Entry
    picture: str


@dataclass
class Augmentation:
    """What is done with the training samples of a data set.

    Args:
        seed: another one draws other numbers.
    """

    seed: int
    _stages: dict[str, list[Stage]] = field(default_factory=dict)
    _shapes: dict[str, list[Shape]] = field(default_factory=dict)
    _changes: list[Change] = field(default_factory=list)
    _mixes: list[Mix] = field(default_factory=list)
    _feeds: frozenset[str] = frozenset()

    @classmethod
    def make(
        cls,
        entries: Iterable[tuple[Any, Span | None]],
        dataset: Dataset,
        feeds: Mapping[str, Feed],
        types: Mapping[str, TensorType],
        seed: int,
    ) -> Augmentation:
        """Check a list of augmentations.

        Args:
            entries: what stands in `data.augment`, as plain values, each with its place: `flip`, or `{flip: {p: 0.5}}`.
            dataset: of the training samples, with the fields that feeds take.
            feeds: feed of the model -> how it is made of a field.
            types: feed of the model -> type of one sample.
            seed: of the run.

        Raises:
            PeError: USAGE; an entry cannot be done with this data and this model: all mistakes in one.
        """
        made = cls(seed)
        errors: list[PeError] = []
        checked: list[Entry] = []
        for i, (value, at) in enumerate(entries):
            try:
                checked.append(check_entry(value, i, at))
            except PeError as error:
                errors += error.each
        # All entries are checked, so that all mistakes are told at once.
        for entry in checked:
            try:
                made._add(entry, dataset, feeds, types)
            except PeError as error:
                errors.append(error)
        if not errors:
            # Whether pictures end in the right size is known only when all entries have passed.
            errors += made._unfinished(dataset)
        if errors:
            raise as_one(errors)
        return made

    # --- checks -------------------------------------------------------------------------------------------------------

    def _add(self, entry: Entry, dataset: Dataset, feeds: Mapping[str, Feed], types: Mapping[str, TensorType]) -> None:
        if isinstance(entry.kind, PictureKind):
            self._add_picture(entry, dataset)
        elif isinstance(entry.kind, ColumnKind):
            self._add_change(entry, entry.kind, dataset)
        else:
            assert isinstance(entry.kind, BatchKind)
            self._add_mix(entry, entry.kind, dataset, feeds, types)

    def _add_picture(self, entry: Entry, dataset: Dataset) -> None:
        name = _picture(entry, dataset)
        column = _pictures(dataset)[name]
        assert isinstance(entry.kind, PictureKind)
        options = entry.options
        if "size" in type(options).model_fields and getattr(options, "size") is None:  # noqa: B009 - options of several kinds
            options = options.model_copy(update={"size": (column.shown.height, column.shown.width)})
        shapes = self._shapes.setdefault(name, [column.stored])
        try:
            after = entry.kind.plan(options, shapes[-1])
        except ValueError as error:
            # The kind raises the sentence and its hint; where it stands in the config is known here.
            raise entry.error(f"column '{name}': {error.args[0]}", *error.args[1:]) from None
        stage = Stage(Entry(entry.kind, options, entry.place, entry.at), shapes[-1])
        self._stages.setdefault(name, []).append(stage)
        shapes.append(after)

    def _add_change(self, entry: Entry, kind: ColumnKind[Any], dataset: Dataset) -> None:
        columns = _columns(dataset)
        given = entry.options.column
        pictures = _pictures(dataset)
        fitting = [name for name, (_, _, column) in columns.items() if kind.fits(column) and name not in pictures]
        whole = [name for name in fitting if name in dataset.fields]
        if given is None:
            if len(whole) != 1:
                listed = ", ".join(dict.fromkeys(fitting)) or "none"
                raise entry.error(
                    f"which column is meant is not clear: {listed} could be changed" if fitting else f"no column holds {kind.needs}",
                    f"name it: {{{kind.name}: {{column: {fitting[0]}}}}}" if fitting else None,
                )
            given = whole[0]
        if given not in columns:
            hint = did_you_mean(given, columns) or f"there are {', '.join(columns)}"
            raise entry.error(f"no feed takes a column '{given}'", hint)
        name, part, column = columns[given]
        if not kind.fits(column) or given in pictures:
            said = f"{column.type}{' in sequences' if column.sequences else ''}{', classes' if column.classes else ''}"
            raise entry.error(f"column '{given}' is {said}, and it needs {kind.needs}", f"one of {', '.join(fitting)}" if fitting else None)
        try:
            kind.check(entry.options, column)
        except ValueError as error:
            raise entry.error(f"column '{given}': {error.args[0]}", *error.args[1:]) from None
        inner = [found for found in columns.values() if found[0] == name and found[1] is not None]
        # of columns that stand side by side, classes are no numbers
        parts = [place for _, place, _ in inner] if part is None and inner else [part]
        self._changes += [Change(entry, name, place) for place in parts]

    def _add_mix(
        self, entry: Entry, kind: BatchKind[Any], dataset: Dataset, feeds: Mapping[str, Feed], types: Mapping[str, TensorType]
    ) -> None:
        source = entry.options.column if entry.options.column in dataset.fields else _picture(entry, dataset)
        # A mixed batch changes one feed; a column that makes two would be mixed in one of them alone.
        pictures = [name for name, feed in feeds.items() if feed.from_ == source and name in types]
        if len(pictures) != 1:
            raise entry.error(f"column '{source}' makes {len(pictures)} feeds, and one is mixed", "feed it once")
        classes = getattr(dataset, "classes", {})
        for name, feed in feeds.items():
            if name not in types:
                continue
            source_type = dataset.fields.get(feed.from_)
            if feed.from_ in getattr(dataset, "sequences", ()):
                raise entry.error(f"feed '{name}' has sequences, which cannot be mixed", "leave it out of such a model")
            number = len(classes[feed.from_]) if feed.from_ in classes else "CLASSES"
            # Classes as indices cannot be mixed: the mean of two indices is another class.
            hard = source_type is not None and source_type.dtype not in FLOATS and feed.from_ in classes and feed.one_hot is None
            if types[name].dtype not in FLOATS or hard:
                raise entry.error(
                    f"feed '{name}' has class indices, which cannot be mixed",
                    f"feeds: {name}: {{from: {feed.from_}, one_hot: {number}}}, a float32 feed [{number}] in the model, and "
                    "soft_label: true in its loss",
                )
        column = _pictures(dataset).get(source)
        try:
            kind.check(entry.options, types, pictures[0], bool(getattr(column, "last", False)))
        except ValueError as error:
            raise entry.error(*error.args) from None
        self._mixes.append(Mix(entry, pictures[0]))
        self._feeds = frozenset(types)

    def _unfinished(self, dataset: Dataset) -> list[PeError]:
        """Return errors of columns whose pictures do not end with the size of a sample."""
        errors = []
        columns = _pictures(dataset)
        for name, shapes in self._shapes.items():
            shown, end = columns[name].shown, shapes[-1]
            if end != shown and end != columns[name].stored:
                last = [stage for stage, after in zip(self._stages[name], shapes[1:], strict=True) if stage.shape != after][-1]
                errors.append(
                    last.entry.error(
                        f"pictures of column '{name}' end as {end}, and a sample is {shown}",
                        f"set size: {shown} there, or on the column size: {end} (with crop_from: {columns[name].stored})",
                    )
                )
        return errors

    @property
    def mixes(self) -> bool:
        """Whether samples of a batch are mixed, so that what becomes of one depends on the others."""
        return bool(self._mixes)

    # --- work ---------------------------------------------------------------------------------------------------------

    def take(self, dataset: Dataset, indices: Rows, epoch: int, times: Rows | None = None) -> tuple[Batch, Draws]:
        """Return samples, changed, and the draws that belong to them.

        Args:
            dataset: that this was made for.
            indices: int64 [batch].
            epoch: from 0.
            times: int64 [batch], how often each sample was drawn before in this epoch; None for never.
        """
        rows = dataset.table_rows(indices) if isinstance(dataset, FieldDataset) else indices
        # By rows of the table and the epoch, so that a row gets the same draws whatever batch it is in.
        draws = Draws(self.seed, epoch, rows, times)
        if isinstance(dataset, FieldDataset):
            columns = _pictures(dataset)
            programs = {name: self._program(name, columns[name], draws) for name in self._stages}
            batch = dataset.take(indices, programs)
        else:
            batch = dataset.take(indices)
        for change in self._changes:
            kind = change.entry.kind
            assert isinstance(kind, ColumnKind)
            values = batch[change.field] if change.part is None else batch[change.field][..., change.part]
            # Parts of one field draw apart, as two columns would.
            place = change.entry.place if change.part is None else f"{change.entry.place} {change.part.start}"
            kind.change(change.entry.options, values, batch.get(offsets_name(change.field, 0)), draws.at(place))
        return batch, draws

    def _program(self, name: str, column: PictureField, draws: Draws) -> Program:
        steps: list[Step] = []
        for stage in self._stages[name]:
            kind = stage.entry.kind
            assert isinstance(kind, PictureKind)
            steps.append(kind.draw(stage.entry.options, stage.shape, draws.at(stage.entry.place)))
        shapes = list(self._shapes[name])
        if shapes[-1] != column.shown:
            # What augmentation leaves larger than a sample is cut in the middle, as in evaluation.
            steps.append(middle(shapes[-1], column.shown, len(draws)))
            shapes.append(column.shown)
        return Program(steps, shapes)

    def finish(self, batch: Batch, draws: Draws) -> None:
        """Mix the feeds of a batch, in place; a batch of one sample is left as it is."""
        # A batch of one has nobody to be mixed with.
        if len(draws) < 2:
            return
        for mix in self._mixes:
            kind = mix.entry.kind
            assert isinstance(kind, BatchKind)
            feeds = {name: values for name, values in batch.items() if name in self._feeds}
            kind.mix(mix.entry.options, feeds, mix.picture, draws.at(mix.entry.place))
            batch.update(feeds)


def check_entry(value: Any, i: int, at: Span | None) -> Entry:
    """Return an entry of the list, its options checked; no data is needed.

    Args:
        value: as written, in plain values.
        i: place in the list, from 0.
        at: place in the config.

    Raises:
        PeError: USAGE; all mistakes of the entry in one.
    """
    kinds = discover()
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1 or not isinstance(next(iter(value.values())), dict | None):
        raise PeError(
            f"data.augment: entry {i + 1} is no augmentation with its options", at=at, hint="such as - flip: {p: 0.5}, one per entry"
        )
    name, options = next(iter(value.items()))
    if name not in kinds:
        hint = did_you_mean(str(name), kinds) or f"one of {', '.join(sorted(kinds))}"
        if name == "normalize":
            hint = "numbers are made of pictures alike in training and evaluation: image: {type: image, scale: standard} under data.columns"
        raise PeError(f"data.augment: there is no augmentation '{name}'", at=at, hint=hint)
    kind = kinds[name]
    try:
        return Entry(kind, kind.options.model_validate(options or {}), f"{i} {name}", at)
    except ValidationError as failure:
        errors = option_errors(f"data.augment: {kind.name}", kind.options, failure, at)
    raise as_one(errors)


def _pictures(dataset: Dataset) -> dict[str, PictureField]:
    """Return the columns of pictures."""
    columns = dataset.columns if isinstance(dataset, FieldDataset) else {}
    return {name: column for name, column in columns.items() if is_picture(column)}


def _picture(entry: Entry, dataset: Dataset) -> str:
    """Return the column of pictures that an entry means.

    Raises:
        PeError: there is none, or there are several.
    """
    found, given = _pictures(dataset), entry.options.column
    # A column of this name may have other things than pictures.
    if given is not None and given in found:
        return given
    if given is not None:
        hint = did_you_mean(given, found) or f"declare {given}: {{type: image}} under data.columns"
        raise entry.error(f"column '{given}' has no pictures, or no feed takes it", hint)
    if not found:
        raise entry.error("no feed takes a column of pictures", "declare it under data.columns: image: {type: image}")
    if len(found) > 1:
        names = ", ".join(found)
        raise entry.error(f"several columns have pictures: {names}", f"name one: {{{entry.kind.name}: {{column: {next(iter(found))}}}}}")
    return next(iter(found))


def _columns(dataset: Dataset) -> dict[str, tuple[str, slice | None, Column]]:
    """Return what can be changed: field -> itself, and a column that is joined with others -> its part of a field."""
    sequences, classes = getattr(dataset, "sequences", ()), getattr(dataset, "classes", {})
    found: dict[str, tuple[str, slice | None, Column]] = {}
    fields = dataset.columns if isinstance(dataset, FieldDataset) else {}
    for name, kind in dataset.fields.items():
        number = len(classes[name]) if name in classes else None
        found[name] = (name, None, Column(kind, name in sequences, number))
        joined = fields.get(name)
        for part, place in getattr(joined, "parts", {}).items():
            # A part of a joined field is changed where it lies in the batch.
            shape = (*kind.shape[:-1], place.stop - place.start)
            found.setdefault(part, (name, place, Column(TensorType(shape, kind.dtype), False, None)))
    return found

