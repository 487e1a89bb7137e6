"""Batches of a data set, in an order that can be repeated and resumed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError, as_one, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.data.counter_random import permutation, stream_key
from pe_cli.data.dataset import Batch, Dataset, sequence_fields
from pe_cli.data.feed import Conversion, Feed, check_feed, check_level
from pe_cli.data.prefetch import Prefetch
from pe_cli.data.sampling import Sampler, Weights, repetitions
from pe_cli.data.stream_fields import stretches_of
from pe_cli.data.window_order import StoredOrder, WindowOrder
from pe_cli.ops.define.lod import offsets_name

if TYPE_CHECKING:
    from pe_cli.data.augment import Augmentation

#: Bytes of small batches that are made together and cut afterwards: what Python needs for one, they share. At most 64 batches.
TOGETHER = 1 << 18
#: Batches that were made together, and the samples of each.
Group = tuple[Batch, list[int]]
#: Samples of a batch -> those that are taken.
Share = Callable[[int], Sequence[slice]]


class Loader:
    """Batches for a model's feeds.

    Args:
        dataset: where samples come from.
        feeds: feed of the model -> how it is made of a field.
        types: feed of the model -> type of one sample, without the batch axis; a size of -1 takes any. Of a feed with
            sequences, the type of a row.
        batch_size: samples.
        shuffle: whether each epoch has its own order; else samples come as stored.
        window: samples that change places, where they are shuffled so; see `WindowOrder`. None for all of them.
        seed: another seed gives other orders.
        drop_last: whether to leave out a last batch that is smaller.
        prefetch: batches made ahead by a thread; 0 makes them in the caller's.
        levels: feed of the model -> levels of its sequences, for those that have any.
        augment: changes samples; made for this data set. Only for training.
        weights: float64 [samples]; samples are drawn by them, with replacement, instead of each once per epoch. Only for training.
        share: for a batch of so many samples, those of them that are taken, as slices in order; default: all. Nothing else is read,
            but where samples of a batch are mixed.

    Raises:
        PeError: with `ExitCode.DATA`, when a feed does not fit its field (all of them in one `PeErrors`), or there is
            no full batch and `drop_last` is set; with `ExitCode.USAGE`, when batch_size or prefetch is no such number.
    """

    def __init__(  # noqa: PLR0913 (what a batch depends on)
        self,
        dataset: Dataset,
        feeds: Mapping[str, Feed],
        types: Mapping[str, TensorType],
        batch_size: int,
        *,
        shuffle: bool = False,
        window: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
        levels: Mapping[str, int] | None = None,
        augment: Augmentation | None = None,
        weights: Weights | None = None,
        share: Share | None = None,
    ) -> None:
        if batch_size < 1:
            raise PeError(f"batch_size must be at least 1 sample, got {batch_size}")
        if prefetch < 0:
            raise PeError(f"prefetch must be at least 0 batches, got {prefetch}")
        if len(dataset) < 1:
            raise PeError("the data has no samples", hint="check skip and limit", code=ExitCode.DATA)
        if drop_last and batch_size > len(dataset):
            raise PeError(
                f"batch_size {batch_size} is more than the {len(dataset)} samples, and drop_last leaves no batch",
                hint=f"set batch_size to at most {len(dataset)}, or drop_last: false",
                code=ExitCode.DATA,
            )
        self.batch_size, self.types = batch_size, dict(types)
        self._dataset, self._shuffle, self._window, self._seed = dataset, shuffle, window, seed
        self._drop_last, self._prefetch = drop_last, prefetch
        self._sequences = sequence_fields(dataset)
        self._conversions = _check_feeds(dataset, feeds, types, levels or {})
        used = Counter(conversion.feed.from_ for conversion in self._conversions)
        self._repeated = {field for field, times in used.items() if times > 1}
        size = sum(conversion.target.nbytes for conversion in self._conversions) * batch_size
        self._together = max(1, TOGETHER // max(size, TOGETHER // 64))
        self._augment = augment
        if augment is not None and augment.mixes:
            self._together = 1  # which samples are mixed must not depend on where a run was resumed
        assert weights is None or len(weights) == len(dataset)
        self._sampler = None if weights is None else Sampler(weights, seed)
        self._share = share

    @property
    def samples(self) -> int:
        """Samples of an epoch; without those of a dropped last batch."""
        total = len(self._dataset)
        return total - total % self.batch_size if self._drop_last else total

    def __len__(self) -> int:
        return -(-self.samples // self.batch_size)

    def size_of(self, batch: int) -> int:
        """Return the samples of a batch of an epoch, also where a share of them is taken."""
        return min(self.batch_size, self.samples - batch * self.batch_size)

    def order(self, e: int) -> NDArray[np.int64] | WindowOrder | StoredOrder:
        """Return the order of an epoch's samples, int64 [samples]; a function of seed and e only, and with a window of the batch size.

        Of an order that is an array, or gives one for a range of places or an array of them, not all need be in memory.

        Where samples have weights, a sample may be in it several times, or not at all.
        """
        if self._sampler is not None:
            return self._sampler.draw(e)[: self.samples]
        if not self._shuffle:
            return StoredOrder(self.samples)
        if self._window is not None:
            return WindowOrder(stretches_of(self._dataset), self.batch_size, self._window, self._seed, e, self.samples)
        return permutation(stream_key("shuffle", self._seed, e), len(self._dataset))[: self.samples]

    def epoch(self, e: int, start_batch: int = 0) -> Iterator[Batch]:
        """Give the batches of an epoch.

        Leaving the loop early, or dropping the iterator, ends the prefetch thread.

        Args:
            e: which epoch, from 0.
            start_batch: batches to leave out at the start, because a resumed run has done them.

        Returns:
            Batches: feed -> C-contiguous [batch, *shape], or the rows of all sequences and the feed of their offsets; what a
            reader raises is raised here, once.

        Raises:
            PeError: start_batch is not in [0, batches of an epoch].
        """
        if not 0 <= start_batch <= len(self):
            raise PeError(
                f"cannot start at batch {start_batch}: an epoch has {len(self)} batches of {self.batch_size} samples",
                hint="resume with the data and batch_size that the run was started with",
                code=ExitCode.DATA,
            )
        made = self._groups(e, start_batch)
        if not self._prefetch:
            return self._cut(made)
        ahead = Prefetch(made, max(1, self._prefetch // self._together), f"prefetch epoch {e}")
        return _Parts(ahead, self._cut(ahead))

    def of_batch(self, e: int, number: int) -> tuple[Dataset, NDArray[np.int64]]:
        """Return the data set, and which of its samples a batch of an epoch has, int64 [batch]."""
        return self._dataset, self.order(e)[number * self.batch_size : (number + 1) * self.batch_size]

    def first(self) -> Batch:
        """Return the first batch, without a thread that makes those after it; see `epoch` for what it is and raises."""
        return self._made(self.order(0)[: self.batch_size], 0, None)

    def _groups(self, e: int, start_batch: int) -> Iterator[Group]:
        """Make so many batches at a time that a group is worth the work around it."""
        order = self.order(e)
        drawn = self._augment is not None and self._sampler is not None
        times = repetitions(order) if drawn and isinstance(order, np.ndarray) else None

        def made_at(places: slice | NDArray[np.int64]) -> Batch:
            return self._made(order[places], e, None if times is None else times[places])

        def made_of(first: int, count: int) -> Group:
            last = min(first + count * self.batch_size, len(order))
            begins = range(first, last, self.batch_size)
            if self._share is None:
                return made_at(slice(first, last)), [min(self.batch_size, last - begin) for begin in begins]
            taken = [self._taken(begin, len(order)) for begin in begins]
            places = np.concatenate([np.arange(s.start, s.stop) for row in taken for s in row])
            mixed = self._augment is not None and self._augment.mixes  # of one batch at a time, which depends on all of it
            made = made_at(slice(first, last) if mixed else places if len(places) else slice(first, first + 1))
            if not len(places):
                made = self._part(made, 0, 0)
            elif mixed:
                made = _joined([self._part(made, s.start - first, s.stop - first) for s in taken[0]])
            return made, [sum(s.stop - s.start for s in row) for row in taken]

        step = self.batch_size * self._together
        for start in range(start_batch * self.batch_size, len(order), step):
            try:
                made = [made_of(start, self._together)]
            except PeError:
                # the batches before the bad one are good
                parts = range(start, min(start + step, len(order)), self.batch_size)
                yield from (made_of(first, 1) for first in parts)
                raise
            yield from made

    def _taken(self, begin: int, end: int) -> list[slice]:
        """Return the places in an epoch's order that are taken of the batch that begins at one; at least one slice, perhaps empty."""
        share = self._share(min(self.batch_size, end - begin)) if self._share else ()
        return [slice(begin + s.start, begin + s.stop) for s in share] or [slice(begin, begin)]

    def _cut(self, groups: Iterator[Group]) -> Iterator[Batch]:
        """Cut groups into batches."""
        for made, sizes in groups:
            if len(sizes) == 1:
                yield made
                continue
            for last, size in zip(itertools.accumulate(sizes), sizes, strict=True):
                yield self._part(made, last - size, last)

    def _made(self, indices: NDArray[np.int64], e: int, times: NDArray[np.int64] | None) -> Batch:
        """Return some samples as feeds.

        Args:
            indices: int64 [batch].
            e: the epoch, which augmentation depends on.
            times: int64 [batch], how often each was drawn before in this epoch; None for never.
        """
        if self._augment is None:
            return self._converted(indices, self._dataset.take(indices))
        taken, draws = self._augment.take(self._dataset, indices, e, times)
        batch = self._converted(indices, taken)
        self._augment.finish(batch, draws)
        return batch

    def _converted(self, indices: NDArray[np.int64], taken: Batch) -> Batch:
        batch: Batch = {}
        for conversion in self._conversions:
            field, rows = conversion.feed.from_, indices
            if field in self._sequences:
                offsets = taken[offsets_name(field, 0)]
                batch[offsets_name(conversion.name, 0)] = offsets
                rows = np.repeat(indices, np.diff(offsets))
            # what is fed twice is copied, so that no two feeds share memory
            batch[conversion.name] = conversion.apply(taken[field], rows, copy=field in self._repeated)
        return batch

    def _part(self, made: Batch, first: int, last: int) -> Batch:
        """Return neighbouring samples of a batch, as views."""
        part: Batch = {}
        for conversion in self._conversions:
            start, end = first, last
            if conversion.feed.from_ in self._sequences:
                name = offsets_name(conversion.name, 0)
                offsets = made[name][first : last + 1]
                start, end = int(offsets[0]), int(offsets[-1])
                part[name] = offsets - start
            part[conversion.name] = made[conversion.name][start:end]
        return part


def _joined(parts: Sequence[Batch]) -> Batch:
    """Return parts as one batch; several have no sequences."""
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check_feeds(
    dataset: Dataset, feeds: Mapping[str, Feed], types: Mapping[str, TensorType], levels: Mapping[str, int]
) -> list[Conversion]:
    errors: list[PeError] = []
    conversions: list[Conversion] = []
    fields = dataset.fields
    for name in types:
        if name not in feeds:
            hint = f"add {name}: {name if name in fields else '<one of ' + ', '.join(fields) + '>'} under feeds"
            errors.append(PeError(f"the model's feed '{name}' gets no data", hint=hint, code=ExitCode.DATA))
    for name, feed in feeds.items():
        if name not in types:
            hint = did_you_mean(name, types) or f"it has {', '.join(types)}"
            errors.append(PeError(f"the model has no feed '{name}'", at=feed.at, hint=hint, code=ExitCode.DATA))
            continue
        try:
            conversions.append(check_feed(name, feed, fields, types[name]))
            check_level(name, feed, levels.get(name, 0), int(feed.from_ in sequence_fields(dataset)))
        except PeError as error:
            errors.append(error)
    if errors:
        raise as_one(errors)
    return conversions


class _Parts(Iterator[Batch]):
    """Batches cut from groups that a thread makes ahead; the thread ends with it.

    Args:
        ahead: makes groups.
        parts: cuts them.
    """

    def __init__(self, ahead: Prefetch[Group], parts: Iterator[Batch]) -> None:
        self._ahead, self._parts = ahead, parts

    def __next__(self) -> Batch:
        return next(self._parts)

    def close(self) -> None:
        """End the thread."""
        self._ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
