"""Handles large requests and pictures in a thread of their own, the cheapest first, within a memory limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.threads import Thread


@dataclass
class Work:
    """Something that takes memory until it is ended.

    Args:
        cost: bytes.
        begin: does it, or begins it; called by the thread of `LargeRequests`.
    """

    cost: int
    begin: Callable[[], None]


@dataclass
class LargeRequests:
    """Does work whose memory fits beside that which has begun, the cheapest first.

    Args:
        limit: bytes of all that has begun together; no work costs more.
    """

    limit: int
    used: int = 0
    _waiting: list[Work] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _over: bool = False

    def __post_init__(self) -> None:
        self._thread = Thread(target=self._run, name="large requests", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Works that have not begun."""
        return len(self._waiting)

    def submit(self, work: Work) -> None:
        """Queue work; who began it calls `ended` once, from any thread."""
        # The thread sleeps until something changes: nobody polls.
        with self._changed:
            self._waiting.append(work)
            self._changed.notify()

    def ended(self, work: Work) -> None:
        """Release the memory of finished work."""
        with self._changed:
            self.used -= work.cost
            self._changed.notify()

    def close(self) -> None:
        """End; what waits is not begun."""
        with self._changed:
            self._over = True
            self._changed.notify()
        # The request that is under way is answered: its thread ends only between two.
        self._thread.join()

    def _next(self) -> Work | None:
        # The cheapest first: one that is waiting for much memory does not hold up those that need little.
        cheapest = min(self._waiting, key=lambda work: work.cost, default=None)
        return cheapest if cheapest is not None and self.used + cheapest.cost <= self.limit else None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._next() is not None)
                if self._over:
                    return
                work = self._next()
                assert work is not None
                self._waiting.remove(work)
                # Taken before it begins, so that two large requests can never both count on the same memory.
                self.used += work.cost
            # Outside of the lock: work takes seconds, and others end meanwhile.
            work.begin()
