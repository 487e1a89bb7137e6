"""PyReader and DataLoader: feed programs from readers, with or without the script's own loop."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.decorators import batch
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.program.defaults import default_main_program
from pe_cli.program.ir import Program, Variable


class EOFException(Exception):
    """A reader that feeds a program has no more batches."""


def to_feed(variables: Sequence[Variable], samples: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return name -> batch for samples with one entry per variable; sequences become LoDTensors.

    Raises:
        FluidValueError: a sample with another number of entries, or sizes that do not fit; a ValueError.
    """
    rows = [tuple(s) if isinstance(s, (list, tuple)) else (s,) for s in samples]
    for row in rows:
        if len(row) != len(variables):
            raise FluidValueError(f"a sample has {len(row)} entries, the feed list has {len(variables)} variables")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(variables)
    return {v.name: _column(v, column) for v, column in zip(variables, columns, strict=True)}


def _column(v: Variable, values: Sequence[Any]) -> Any:
    levels = getattr(v, "lod_level", 0)
    if levels:
        return _sequences(v, values, levels)
    # An empty batch needs some size where -1 is declared: abs makes it 1.
    array = np.asarray(values, dtype=v.type.numpy) if values else np.zeros((0, *map(abs, v.shape[1:])), v.type.numpy)
    return _shaped(v, array)


# Sizes that are not declared are taken as the samples have them.
def _shaped(v: Variable, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    kind = v.type
    sizes = kind.shape[1:] if len(kind.shape) > 1 else ()
    alike = array.ndim == len(kind.shape)
    if -1 in sizes or (alike and (array.shape[1:] == sizes or getattr(v, "any_sizes", False))):
        return array
    # A sample of other axes may hold several rows, as in the original: one of eight numbers is eight rows of a vector.
    wanted = (len(array), *sizes) if array.size == len(array) * math.prod(sizes) else kind.shape
    if not alike:
        with contextlib.suppress(ValueError):
            return array.reshape(wanted)
    raise FluidValueError(f"feed '{v.name}' should be {kind}, got {list(array.shape)}", hint="reshape it")


def _sequences(v: Variable, values: Sequence[Any], levels: int) -> LoDTensor:
    lengths: list[list[int]] = []
    flat: Sequence[Any] = values
    # One level after the other is opened; each says how many parts its sequences have.
    for _ in range(levels):
        lengths.append([len(s) for s in flat])
        flat = [item for s in flat for item in s]
    array = np.asarray(flat, dtype=v.type.numpy)
    return LoDTensor(_shaped(v, array), lengths)


def next_feed(program: Program) -> dict[str, Any]:
    """Return the next batch of the readers that were started for a program; nothing where there is none.

    Raises:
        EOFException: a started reader has no more batches.
    """
    out: dict[str, Any] = {}
    for reader in getattr(program, "readers", ()):
        out |= reader.next_batch()
    return out


class ReadyBatches:
    """The batches of a reader that are there before anybody asks for them: none, as each is read when a step asks for it.

    Args:
        reader: of which.
        most: its capacity.
    """

    def __init__(self, reader: GeneratorLoader, most: int) -> None:
        self._reader, self._most = reader, most

    def size(self) -> int:
        """Return how many are there, as scripts print them."""
        return 0

    def capacity(self) -> int:
        """Return the reader's capacity."""
        return self._most

    def is_closed(self) -> bool:
        """Return whether the reader feeds nothing."""
        return self._reader.stopped

    def close(self) -> None:
        """Stop feeding the program."""
        self._reader.reset()

    kill = close


class GeneratorLoader:
    """Feeds variables from a generator.

    Args:
        feed_list: variables, in the order of the generator's entries.
        capacity: batches kept ready; without effect here.
        iterable: the script loops over it; otherwise the executor takes batches after `start`.
        return_list: the script gets lists instead of dicts.
        drop_last: leave out a last batch that is shorter.

    Attributes:
        queue: of batches that are ready.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
    ) -> None:
        self.queue = ReadyBatches(self, capacity or 0)
        self.feed_list = list(feed_list or [])
        self.iterable, self.return_list, self.drop_last = iterable, return_list, drop_last
        self._batches: Callable[[], Iterable[Any]] | None = None
        self._running: Iterator[Any] | None = None
        self._looped: Iterator[Any] | None = None
        # A reader that is not iterable belongs to the program that it feeds, which asks it in every run.
        if not iterable:
            program = self.feed_list[0].block.program if self.feed_list else default_main_program()
            getattr(program, "readers", []).append(self)

    def set_sample_generator(self, reader: Any, batch_size: int, drop_last: bool = True, places: Any = None) -> Any:
        """Take a generator of samples, and make batches of them."""
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Any, places: Any = None) -> Any:
        """Take a generator of lists of samples."""
        self._batches = lambda: (to_feed(self.feed_list, samples) for samples in reader())
        return self

    def set_batch_generator(self, reader: Any, places: Any = None) -> Any:
        """Take a generator of batches: dicts, or one array per variable."""

        def batches() -> Iterator[Any]:
            for given in reader():
                if isinstance(given, dict):
                    yield given
                else:
                    arrays = given if isinstance(given, (list, tuple)) else [given]
                    yield {v.name: a for v, a in zip(self.feed_list, arrays, strict=True)}

        self._batches = batches
        return self

    decorate_sample_generator = set_sample_generator
    decorate_sample_list_generator = decorate_paddle_reader = set_sample_list_generator
    decorate_batch_generator = decorate_tensor_provider = set_batch_generator

    def __iter__(self) -> Iterator[Any]:
        if self._batches is None:
            raise FluidValueError("the reader has no generator yet", hint="call set_sample_list_generator first")
        for feed in self._batches():
            # As the original returns them: a list with one feed for each device, a list of arrays, or the feed itself.
            yield list(feed.values()) if self.return_list else [feed] if self._wraps() else feed

    def __call__(self) -> GeneratorLoader:
        """Return the loader itself, over which scripts loop and which they give their generators by this, too."""
        return self

    def __next__(self) -> Any:
        """Return the next batch of a pass over all of them; the pass after its end begins anew."""
        self._looped = self._looped or iter(self)
        try:
            return next(self._looped)
        except StopIteration:
            self._looped = None
            raise

    def _wraps(self) -> bool:
        return self.iterable

    def start(self) -> None:
        """Begin to feed the program.

        Raises:
            FluidValueError: it has no generator yet.
        """
        if self._batches is None:
            raise FluidValueError("the reader has no generator yet", hint="call set_sample_list_generator first")
        self._running = iter(self._batches())

    def reset(self) -> None:
        """Stop feeding the program."""
        self._running = None

    @property
    def stopped(self) -> bool:
        """Whether it feeds nothing."""
        return self._running is None

    def next_batch(self) -> dict[str, Any]:
        """Return the next batch for the executor.

        Raises:
            EOFException: there is none.
        """
        if self._running is None:
            return {}
        found = next(self._running, None)
        if found is None:
            # An exception and not an end: scripts of the original catch it to end an epoch.
            raise EOFException("the reader has no more batches: call reset, then start")
        return dict(found)


class PyReader(GeneratorLoader):
    """The older name; arguments of `GeneratorLoader`."""

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, use_double_buffer, iterable, return_list)

    def decorate_sample_generator(self, sample_generator: Any, batch_size: int, drop_last: bool = True, places: Any = None) -> Any:
        """Take a generator of samples, and make batches of them."""
        return self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def next(self) -> Any:
        """Return the next batch of a started reader, or of a loop; `GeneratorLoader.next_batch` has the errors."""
        return next(self) if self.iterable else self.next_batch()


def default_collate_fn(batch: Sequence[Any]) -> list[Any]:
    """Return one array [samples, ...] for each part of the samples.

    Args:
        batch: samples, each a tuple or list of arrays or numbers, or one of them.

    Raises:
        FluidTypeError: another kind of sample; a TypeError.
    """
    parts = zip(*(s if isinstance(s, (tuple, list)) else (s,) for s in batch), strict=True)
    out = []
    for values in parts:
        if not isinstance(values[0], (np.ndarray, np.generic, bool, int, float)):
            raise FluidTypeError(f"a sample has a {type(values[0]).__name__}", hint="give arrays or numbers")
        out.append(np.stack([np.asarray(v) for v in values]))
    return out


class DataLoader:
    """Makes loaders."""

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """Return a loader that is given a generator later."""
        return GeneratorLoader(feed_list, capacity, use_double_buffer, iterable, return_list, drop_last)

    @staticmethod
    def from_dataset(dataset: Any, places: Any, drop_last: bool = True) -> Any:
        """Return a loader over a dataset's batches; with drop_last, without those of fewer instances than a batch has."""
        made = GeneratorLoader(dataset.use_vars)

        def whole() -> Iterator[Any]:
            return (batch for batch in dataset.batches() if all(_samples_of(v) == dataset.batch_size for v in batch.values()))

        made.set_batch_generator(whole if drop_last else dataset.batches)
        return made


def _samples_of(value: Any) -> int:
    """Return how many samples a fed value has: sequences, or rows of one without."""
    lengths = value.recursive_sequence_lengths() if isinstance(value, LoDTensor) else []
    return len(lengths[0]) if lengths else len(np.asarray(value))
