"""The watchdog: one thread that checks running steps periodically and ends those without progress."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Hashable
from typing import Protocol

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.threads import Thread

#: Seconds between two looks, at most; a quarter of the shortest limit where that is less.
LOOK = 1.0
#: Seconds that a step gets to end after it was aborted: at least this, or its own limit up to GRACE_MOST.
GRACE, GRACE_MOST = 0.5, 5.0


class Watched(Protocol):
    """What can be watched."""

    def progress(self) -> Hashable:
        """Return something that changes whenever the step gets on."""

    def stall(self, seconds: float) -> PeError:
        """Return the error that says what hangs, after so long; called from the watchdog's thread while the step runs."""

    def stop(self) -> None:
        """Ask the step to end as soon as it can."""


class Guard:
    """Watches the steps of one plan.

    Args:
        seconds: without progress, after which a step counts as stalled.
        watched: the step.
    """

    def __init__(self, seconds: float, watched: Watched) -> None:
        self.seconds = seconds
        self._watched = watched
        self._runs = 0
        self._seen: Hashable = None
        self._since = 0.0
        self._error: PeError | None = None

    def run(self, step: Callable[[], None]) -> None:
        """Run a step under watch.

        Raises:
            PeError: it stalled and could be ended (exit code 7). One that cannot be ended takes the process with it, after the message.
        """
        self._runs += 1
        self._since = time.monotonic()
        self._error = None
        _MONITOR.add(self)
        try:
            step()
        finally:
            _MONITOR.remove(self)
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Compare with the last look; called from the monitor's thread."""
        now = time.monotonic()
        # The number of the run counts, too: two short steps may look alike from one look to the next.
        seen = self._runs, self._watched.progress()
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif self._error is None and now - self._since >= self.seconds:
            self._error = self._watched.stall(now - self._since)
            self._watched.stop()
            self._since = now
        elif self._error is not None and now - self._since >= min(max(GRACE, self.seconds), GRACE_MOST):
            _end(self._error)


def _end(error: PeError) -> None:
    """End the process: a thread inside a kernel can't be interrupted, and nothing else would."""
    sys.stdout.flush()
    sys.stderr.write(f"{error.render()}\nnote: a thread is stuck inside that kernel, so the process ends\n")
    sys.stderr.flush()
    # An ordinary exit would wait for the thread that is stuck.
    os._exit(ExitCode.STALLED)


class _Monitor:
    """The thread, started with the first guard and asleep while no step runs."""

    def __init__(self) -> None:
        self._guards: set[Guard] = set()
        self._work = threading.Event()
        self._sooner = threading.Event()
        self._pause = LOOK
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, guard: Guard) -> None:
        with self._lock:
            self._guards.add(guard)
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._watch, daemon=True, name="pe-watchdog")
                self._thread.start()
        # Every step comes by here: a look is cheaper than to set what is set.
        if not self._work.is_set():
            self._work.set()
        if guard.seconds / 4 < self._pause:
            self._sooner.set()

    def remove(self, guard: Guard) -> None:
        with self._lock:
            self._guards.discard(guard)

    def _watch(self) -> None:
        while True:
            self._work.wait()
            with self._lock:
                guards = list(self._guards)
                if not guards:
                    self._work.clear()
            for guard in guards:
                guard.look()
            if guards:
                self._pause = min(LOOK, min(g.seconds for g in guards) / 4)
                self._sooner.wait(self._pause)
                self._sooner.clear()


_MONITOR = _Monitor()
