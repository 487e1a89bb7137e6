"""The data of a job: what feeds take, batches of it, and what a smoke run makes up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.build.build import Built
from pe_cli.build.class_weights import CLASS_WEIGHTS
from pe_cli.config.nodes import MapNode
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.data import Dataset, Feed, Loader, open_reader
from pe_cli.data.array_dataset import is_table
from pe_cli.data.feed_samples import select
from pe_cli.data.fields import Field
from pe_cli.data.fitted_columns import Fitted
from pe_cli.data.loader import Share
from pe_cli.data.prepare import Prepared
from pe_cli.data.stream_fields import pieces_of
from pe_cli.data.window_order import lanes_of
from pe_cli.graph.lod_resolution import declared_levels
from pe_cli.optim.gradient_accumulation import SHARE
from pe_cli.program.ir import Program
from pe_cli.session.data.capacity_checks import check_sizes
from pe_cli.session.data.class_weights import class_weights
from pe_cli.session.data.label_feeds import column_uses, labels, sources
from pe_cli.session.data.sampling import augmentation, sample_weights

Array = np.ndarray[Any, Any]
#: Samples of the data that a smoke run makes up.
SMOKE_SAMPLES = 256
#: Size of a made-up axis whose size the model leaves open.
SMOKE_LENGTH = 4


class JobData:
    """The data of a run, by use, for the feeds of its programs.

    Args:
        run: says what is read, and what feeds take of it.
        built: its programs; a job that goes on with others sets them anew.
        fitted: what the columns of the data have learned in training; they learn it from the training rows when None.
        smoke: data whose files are absent is made up.
        note: is told what users should know.

    Attributes:
        sources: feed -> the fields that it takes.
        prepared: opened sources and fitted columns.
    """

    def __init__(
        self,
        run: RunSpec,
        built: Built,
        fitted: Fitted | None = None,
        *,
        smoke: bool = False,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.run, self.built, self.smoke, self.note = run, built, smoke, note
        self.sources = sources(run)
        self.prepared = self._prepare(fitted)
        self._datasets: dict[str, Dataset] = {}
        self._class_weights: Array | None = None
        self._made_up: set[str] = set()
        self._sample_rows: dict[str, Array | None] = {}

    def _prepare(self, fitted: Fitted | None) -> Prepared:
        types = {name: TensorType(kind.shape[1:], kind.dtype) for name, kind in self.built.feeds.items()}
        uses = column_uses(self.run, types)
        return Prepared(self.run.data, self.run.preparation, self.run.path.parent, uses, fitted, self.note)

    def refit(self, fitted: Fitted) -> None:
        """Use what the columns have learned in an earlier process; only before any data is opened."""
        assert not self._datasets
        self.prepared = self._prepare(fitted)

    @property
    def fitted(self) -> Fitted:
        """What the columns of the data have learned from the training rows.

        Raises:
            PeError: the training rows cannot be read.
        """
        return self.prepared.fitted

    def dataset(self, split: str) -> Dataset:
        """Open the data of a use (train, eval, ...), once.

        Raises:
            PeError: the run file has no such data, or it cannot be read (exit code 3).
        """
        if split not in self._datasets:
            self._datasets[split] = self._open(split)
        return self._datasets[split]

    def _open(self, split: str) -> Dataset:
        spec = self.run.data.get(split)
        if spec is None:
            if self.smoke:
                return self._make_up(split, "the run file has none")
            hint = did_you_mean(split, self.run.data) or f"the run file has {', '.join(self.run.data) or 'none'}"
            raise PeError(f"there is no data '{split}'", at=self.run.at_of("data"), hint=hint)
        try:
            return self.prepared.dataset(split)
        except PeError as error:
            # A smoke run does without data that is not there; any other mistake is still one.
            if not self.smoke or error.code != ExitCode.DATA:
                raise
            return self._make_up(split, error.message)

    def made_up(self, split: str) -> bool:
        """Return whether a smoke run makes up the data of a split; opens it."""
        if self.smoke:
            self.dataset(split)
        return split in self._made_up

    def _make_up(self, split: str, why: str) -> Dataset:
        """Return data of the feeds' own names and types; class indices are 0 and 1."""
        self._made_up.add(split)
        self.note(f"data.{split}: made up, because {why}")
        fields: dict[str, Any] = {}
        levels = declared_levels(self.built.eval)
        # several sequences of a sample may have to go together, such as words and their tags: one length fits
        least = SMOKE_LENGTH if sum(map(bool, levels.values())) > 1 else 1
        for name, kind in self.types(self.built.programs or (self.built.eval,)).items():
            shape = [SMOKE_LENGTH if size < 0 else size for size in kind.shape]
            fields[name] = {"shape": shape, "dtype": kind.dtype}
            if kind.dtype in ("int64", "int32"):
                fields[name]["classes"] = 2
            if levels.get(name):
                fields[name]["lengths"] = [least, SMOKE_LENGTH]
        made = open_reader("synthetic", {"samples": SMOKE_SAMPLES, "fields": fields}, self.run.path.parent)
        assert not is_table(made), "the synthetic reader makes arrays"
        return made

    def types(self, programs: Sequence[Program]) -> dict[str, TensorType]:
        """Return the per-sample types of the feeds that programs read."""
        found: dict[str, TensorType] = {}
        for program in programs:
            read = {n for op in program.top_ops for n in op.input_names()}
            data = [v for v in program.list_vars() if v.is_data and v.name in read and not v.type.known]
            found |= {v.name: TensorType(v.shape[1:], v.dtype) for v in data}
        return found

    def fed(self, split: str) -> Dataset:
        """Return the samples of a use with the fields that feeds take; rows that cannot be fed are not among them.

        Raises:
            PeError: see `dataset`.
        """
        dataset = self.dataset(split)
        if split in self._made_up:
            return dataset
        return select(dataset, [want for name, want in self.sources.items() if name in self.built.feeds])

    def constants(self) -> dict[str, Array]:
        """Return the feeds that have a value in the run file, which is the same at every step.

        Raises:
            PeError: a value does not have the shape of its feed; with its place.
        """
        found = {}
        for name, section in self.run.feeds.items():
            if section.value is not None:
                kind = self.built.feeds.get(name, TensorType((1,)))
                value = np.asarray(section.value, kind.numpy)
                try:
                    found[name] = np.broadcast_to(value, kind.shape).copy()
                except ValueError:
                    text = f"feed '{name}' is {kind}, its value has shape {list(value.shape)}"
                    raise PeError(text, at=section.at, hint="one number, or a list of that shape") from None
        made = {v.name: v.type for program in self.built.programs for v in program.list_vars() if v.name in (SHARE, CLASS_WEIGHTS)}
        if SHARE in made:
            found[SHARE] = np.ones(made[SHARE].shape, made[SHARE].numpy)
        if CLASS_WEIGHTS in made:
            kind = made[CLASS_WEIGHTS]
            found[CLASS_WEIGHTS] = self._weights_of_classes(kind.shape[0]).astype(kind.numpy)
        return found

    def _weights_of_classes(self, count: int) -> Array:
        if self._class_weights is None:
            if self.made_up("train"):
                return np.ones((count, 1))
            dataset = select(self.dataset("train"), [self.sources[name] for name in labels(self.run.model) if name in self.sources])
            self._class_weights = class_weights(self.run, dataset, count)
        return self._class_weights

    def feed(self, name: str) -> Feed:
        """Return how a feed of the model is made of its field."""
        return self._feed(name, "")

    def _feed(self, name: str, split: str) -> Feed:
        if split in self._made_up or name not in self.sources:
            return Feed(name)
        source, section = self.sources[name], self.run.feeds.get(name)
        if section is None:
            return Feed(source.field, at=source.at)
        reshape = None if section.reshape is None else tuple(section.reshape)
        return Feed(source.field, section.scale, section.shift, reshape, section.one_hot, section.dtype, section.at, section.places)

    def _check_stream(self, fields: Mapping[str, Field], batch_size: int) -> None:
        """Refuse what needs every label of a stream before the first step.

        Raises:
            PeError: USAGE; rows are drawn, or classes are counted.
        """
        stream = pieces_of(fields)
        if stream is None:
            return
        if self.run.data["train"].window is not None:
            stream.check_room(lanes_of(batch_size), self.note)
        wishes = self.run.preparation
        for key, wish in (("sampling", wishes.sampling), ("class_weights", wishes.class_weights)):
            if wish is not None and not isinstance(wish, MapNode):
                raise PeError(
                    f"data.{key} needs all rows before training, and data.train is a stream",
                    at=self.run.at_of("data", key),
                    hint="leave stream out" + ("" if key == "sampling" else ", or write the weights: class_weights: {yes: 5, no: 1}"),
                )

    def sample_rows(self, split: str) -> Array | None:
        """Return the rows of the table that the newest predictions are for; None for all rows."""
        return self._sample_rows.get(split)

    def loader(
        self,
        split: str,
        programs: Program | Sequence[Program],
        batch_size: int,
        *,
        shuffle: bool | None = None,
        drop_last: bool = False,
        also: Sequence[str] = (),
        dataset: Dataset | None = None,
        share: Share | None = None,
    ) -> Loader:
        """Return batches of a split, or of a part of it, for the feeds that a program reads, or several do, and for those that are named.

        With shuffle None they are those that training takes: in its order, drawn and augmented as the run file says. Of a batch that
        several processes share, `share` says what this one takes.
        """
        programs = (programs,) if isinstance(programs, Program) else programs
        types = self.types(programs)
        for v in (self.built.eval.var(name) for name in also):
            types[v.name] = TensorType(v.shape[1:], v.dtype)
        spec = self.run.data.get(split)
        dataset = dataset or self.dataset(split)
        if split not in self._made_up:
            dataset = select(dataset, [self.sources[name] for name in types if name in self.sources])
            self._sample_rows[split] = getattr(dataset, "rows", None)
            for program in programs:
                check_sizes(program, self.sources, self.run.feeds, self.prepared.fitted.columns)
        feeds = {name: self._feed(name, split) for name in types}
        training = split == "train" and shuffle is None and split not in self._made_up
        if training:
            self._check_stream(getattr(dataset, "columns", {}), batch_size)
        return Loader(
            dataset,
            feeds,
            types,
            batch_size,
            shuffle=spec.shuffle if spec and shuffle is None else bool(shuffle),
            window=spec.window if spec and shuffle is None else None,
            seed=self.run.executor.seed,
            drop_last=drop_last,
            prefetch=spec.section.prefetch if spec else 2,
            levels=declared_levels(self.built.eval),
            augment=augmentation(self.run, dataset, feeds, types) if training else None,
            weights=sample_weights(self.run, self.prepared, dataset) if training else None,
            share=share,
        )
