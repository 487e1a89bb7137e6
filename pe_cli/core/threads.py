"""Threads that say so where the system has no memory to begin them."""

from __future__ import annotations

import threading


class Thread(threading.Thread):
    """A thread whose `start` fails where it cannot begin.

    `threading.Thread.start` waits until the new thread runs. One that is refused memory before that never says that it does,
    and who started it would wait for ever.
    """

    _refused: BaseException | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            MemoryError: the thread could not begin for want of memory.
            RuntimeError: the system begins no more threads, or this one was started before.
        """
        super().start()
        if self._refused is not None:
            raise self._refused

    def _bootstrap(self) -> None:
        try:
            super()._bootstrap()  # type: ignore[misc]
        except BaseException as error:
            begun: threading.Event = self._started  # type: ignore[attr-defined]
            if begun.is_set():
                raise
            self._refused = error
            begun.set()
