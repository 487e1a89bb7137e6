"""An iterator that prefetches items in a thread."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from pe_cli.core.threads import Work

Item = TypeVar("Item")


class _Buffer(Generic[Item]):
    """What the two threads share. The producer holds no reference to the iterator, so that dropping it ends both."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.items: deque[Item] = deque()
        self.changed = threading.Condition()
        self.stopped = False
        self.finished = False
        self.failure: BaseException | None = None

    def produce(self, source: Iterator[Item]) -> None:
        """Fill the buffer until the source ends, fails, or the consumer stops."""
        failure: BaseException | None = None
        try:
            for item in source:
                if not self.put(item):
                    break
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the consumer's thread
            failure = error
        with self.changed:
            self.finished = True
            self.failure = None if self.stopped else failure
            self.changed.notify_all()

    def put(self, item: Item) -> bool:
        """Wait for room and add an item; False once the consumer has stopped."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or len(self.items) < self.depth)
            if self.stopped:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def get(self) -> Item:
        """Wait for an item.

        Raises:
            Exception: the failure of the source, once, after its last item.
            StopIteration: there are no more items.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.items or self.finished or self.stopped)
            if self.items and not self.stopped:
                item = self.items.popleft()
                self.changed.notify_all()
                return item
            failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        raise StopIteration

    def stop(self) -> None:
        """Tell the producer to end after the item that it is making."""
        with self.changed:
            self.stopped = True
            self.items.clear()
            self.changed.notify_all()


class Prefetch(Iterator[Item]):
    """Make items ahead in a thread; it is done at the end of the source, with `close`, or when the iterator is dropped.

    Args:
        source: makes the items; it runs in the thread only.
        depth: items kept ready, at least 1.
        name: of the thread, for debuggers.
    """

    def __init__(self, source: Iterator[Item], depth: int, name: str = "prefetch") -> None:
        assert depth >= 1
        self._buffer: _Buffer[Item] = _Buffer(depth)
        self._work = Work(partial(self._buffer.produce, source), name)

    def __next__(self) -> Item:
        try:
            return self._buffer.get()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop making items and wait until the thread is done; further calls do nothing."""
        self._buffer.stop()
        if not self._work.is_mine:
            self._work.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # the constructor may have failed before the thread was there; at the interpreter's end none can be waited for
        if hasattr(self, "_work") and not sys.is_finalizing():
            self.close()
