"""Threads that say so where the system has no memory to begin them."""

from __future__ import annotations

import threading

#: How often a thread that does not begin is waited for, and how many seconds each time; a process may stand still meanwhile.
TRIES, SECONDS = 4, 10.0


class _Begun(threading.Event):
    """That a thread has begun, which is not waited for without end."""

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
