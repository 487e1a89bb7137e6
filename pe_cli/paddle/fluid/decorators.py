"""Functions on readers: a reader is a function without arguments that returns an iterator of samples."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty
from typing import Any

from pe_cli.paddle.errors import FluidValueError

Reader = Callable[[], Iterable[Any]]
#: Seconds between two looks at whether processes of readers still run.
LOOK = 0.5


class ComposeNotAligned(ValueError):
    """Readers that are composed have different lengths."""


def batch(reader: Reader, batch_size: float, drop_last: bool = False) -> Reader:
    """Return a reader of lists of samples; the last list may be shorter.

    Args:
        reader: gives one sample after the other.
        batch_size: samples of a list; a fraction is cut off, as scripts divide it by the number of devices.
        drop_last: whether to leave a shorter last list out.

    Raises:
        FluidValueError: batch_size is below 1.
    """
    size = int(batch_size)
    if size < 1:
        raise FluidValueError(f"batch_size must be at least 1, got {batch_size}")

    def made() -> Iterator[list[Any]]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, size)):
            if len(part) == size or not drop_last:
                yield part

    return made


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """Return a reader of func(sample of the first, sample of the second, ...)."""
    return lambda: map(func, *(r() for r in readers))


def firstn(reader: Reader, n: int) -> Reader:
    """Return a reader of the first n samples."""
    return lambda: itertools.islice(reader(), n)


def chain(*readers: Reader) -> Reader:
    """Return a reader of one reader's samples after the other's."""
    return lambda: itertools.chain(*(r() for r in readers))


def cache(reader: Reader) -> Reader:
    """Return a reader that reads once and keeps all samples."""
    kept = tuple(reader())
    return lambda: iter(kept)


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Return a reader of tuples with a sample of every reader, tuples among them flattened.

    Raises:
        ComposeNotAligned: while reading: one ends before another, and check_alignment is set.
    """

    def made() -> Iterator[tuple[Any, ...]]:
        missing = object()
        # A value of its own, since None may be a sample.
        for parts in itertools.zip_longest(*(r() for r in readers), fillvalue=missing):
            if any(p is missing for p in parts):
                if check_alignment:
                    raise ComposeNotAligned("readers that are composed have different lengths")
                return
            yield tuple(v for p in parts for v in (p if isinstance(p, tuple) else (p,)))

    return made


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Return a reader that shuffles buf_size samples at a time, in the original's order for a seed of `random`."""

    def made() -> Iterator[Any]:
        samples = iter(reader())
        while part := list(itertools.islice(samples, max(1, buf_size))):
            random.shuffle(part)
            yield from part

    return made


def buffered(reader: Reader, size: int) -> Reader:
    """Return a reader that keeps up to size samples ready."""

    def made() -> Iterator[Any]:
        samples = iter(reader())
        ready = list(itertools.islice(samples, size))
        for sample in samples:
            ready.append(sample)
            yield ready.pop(0)
        yield from ready

    return made


def xmap_readers(
    mapper: Callable[[Any], Any], reader: Reader, process_num: int, buffer_size: int, order: bool = False
) -> Reader:
    """Return a reader of mapper(sample) by a pool of threads."""
    from concurrent.futures import ThreadPoolExecutor

    def made() -> Iterator[Any]:
        with ThreadPoolExecutor(process_num) as pool:
            samples = iter(reader())
            # Parts of buffer_size: a pool would otherwise read the whole reader before the first sample is taken.
            while part := list(itertools.islice(samples, max(1, buffer_size))):
                yield from pool.map(mapper, part)

    return made


def multiprocess_reader(readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000) -> Reader:
    """Return a reader of the samples of some readers, each of which runs in a process of its own, in the order in which they come.

    Args:
        readers: at least one.
        use_pipe: without effect: there is one queue.
        queue_size: samples that wait at most.

    Raises:
        FluidValueError: when read: a reader has a sample None, fails, or its process is killed; a ValueError.
    """

    def made() -> Iterator[Any]:
        from multiprocessing import get_context

        context = get_context("fork")  # readers are functions of a script, often without a name that another process finds
        waiting = context.Queue(queue_size)
        processes = [context.Process(target=_read, args=(reader, waiting), daemon=True) for reader in readers]
        for process in processes:
            process.start()
        try:
            running = len(processes)
            while running:
                try:
                    kind, found = waiting.get(timeout=LOOK)
                except Empty:
                    # A process that was killed says nothing of its end. What the others have put in comes first.
                    if any(process.is_alive() for process in processes) or not waiting.empty():
                        continue
                    codes = ", ".join(str(process.exitcode) for process in processes)
                    raise FluidValueError(f"a reader's process ended before its reader (exit codes {codes})", hint="run it alone") from None
                if kind == "failed":
                    raise FluidValueError(f"a reader failed: {found}")
                if kind == "sample":
                    yield found
                running -= kind == "end"
        finally:
            for process in processes:
                process.terminate()

    if not readers:
        raise FluidValueError("multiprocess_reader needs readers")
    return made


def _read(reader: Reader, waiting: Any) -> None:
    """Put the samples of a reader into a queue, and how it ends."""
    try:
        for sample in reader():
            # None ends a reader in the original's queue, and so cannot be a sample.
            if sample is None:
                raise ValueError("it has a sample None")
            waiting.put(("sample", sample))
    except Exception as error:  # noqa: BLE001 - the process that reads the queue raises it
        waiting.put(("failed", f"{type(error).__name__}: {error}"))
    else:
        waiting.put(("end", None))
