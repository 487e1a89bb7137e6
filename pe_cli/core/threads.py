"""Threads that report when the system has no memory to start them, and reusable threads for short pieces of work."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

#: How often, and for how many seconds each, a new thread is waited for. Several tries, as the whole process may be stopped meanwhile.
TRIES, SECONDS = 4, 10.0


class _Begun(threading.Event):
    """The event that a thread has started; waiting for it ends after `TRIES` times `SECONDS`, as the thread may never start."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout) if timeout is not None else any(super(_Begun, self).wait(SECONDS) for _ in range(TRIES))


class Thread(threading.Thread):
    """A thread whose `start` fails where it cannot begin.

    `threading.Thread.start` waits until the new thread runs. One that is refused memory before that cannot say so, and who started it
    would wait for ever.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take what `threading.Thread` takes."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._started = _Begun()

    def start(self) -> None:
        """Start the thread.

        Raises:
            MemoryError: the thread has not begun within 40 s, which is so where it got no memory.
            RuntimeError: the system begins no more threads, or this one was started before.
        """
        super().start()
        if not self._started.is_set():
            raise MemoryError("a thread does not begin")


#: Name of a thread that waits for work, and how many such threads are kept.
IDLE, KEPT = "idle", 4


class Work:
    """A function that runs on a reused thread; it has started when the constructor returns.

    A thread gives memory back to the system when it ends. The library that MPICH brings notes every such place and forgets none: 275
    bytes for each thread, which a run of many epochs or checkpoints would see. So threads are used again.

    Args:
        act: what is done; it raises nothing.
        name: of the thread meanwhile, for debuggers.

    Raises:
        MemoryError, RuntimeError: as `Thread.start`.
    """

    def __init__(self, act: Callable[[], None], name: str) -> None:
        self._over = threading.Event()
        # Popping is atomic, so that two callers never get one thread.
        try:
            thread = _idle.pop()
        except IndexError:
            thread = _Kept()
            thread.start()
        self._ident = thread.ident
        thread.given.put((act, name, self._over))

    @property
    def over(self) -> bool:
        """Whether it is done."""
        return self._over.is_set()

    @property
    def is_mine(self) -> bool:
        """Whether the thread that asks is the one that does it."""
        return threading.get_ident() == self._ident and not self.over

    def wait(self) -> None:
        """Wait until it is done."""
        self._over.wait()


class _Kept(Thread):
    """A thread that runs one piece of work after another; a daemon, so that a hanging read cannot keep the process from ending."""

    def __init__(self) -> None:
        super().__init__(name=IDLE, daemon=True)
        self.given: queue.SimpleQueue[tuple[Callable[[], None], str, threading.Event]] = queue.SimpleQueue()

    def run(self) -> None:
        """Do what is given."""
        while self._do(*self.given.get()):
            pass

    def _do(self, act: Callable[[], None], name: str, over: threading.Event) -> bool:
        """Do one work, and return whether this thread is kept; nothing of it is held while the thread is idle."""
        self.name = name
        try:
            act()
            # Few are kept: each holds a stack, and more are needed only in bursts.
            kept = len(_idle) < KEPT
            self.name = IDLE
            if kept:
                _idle.append(self)  # before others know, so that who has waited finds it
        finally:
            over.set()
        return kept


_idle: list[_Kept] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads stay with the parent
