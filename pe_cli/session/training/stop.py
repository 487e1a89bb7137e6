"""What ends training before its time: signals, and limits of this call."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

from pe_cli.collectives.launcher_environment import one_request
from pe_cli.core.errors import ExitCode
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.signals import SIGNALS
from pe_cli.core.threads import Thread


@dataclass(frozen=True)
class Limits:
    """After what this call ends with a checkpoint, to be resumed; None for no limit.

    Args:
        seconds: of training, from when it begins.
        steps: of this call.
    """

    seconds: float | None = None
    steps: int | None = None


class StopRequest:
    """Turns the first SIGINT or SIGTERM into a request to stop after the step; the second ends the process at once, see `one_request`.

    Signals are read from a pipe by a thread, because Python's own handlers wait for the native step that is running.

    Args:
        limits: of this call.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._signalled = False
        self._until, self._one = 0.0, one_request(os.environ)
        self._begin = time.monotonic()
        self._steps = 0
        self._before: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup = -1

    def __enter__(self) -> StopRequest:
        self._begin = time.monotonic()
        if threading.current_thread() is not threading.main_thread():
            # Python handles signals in the main thread, which a long native step keeps for seconds: a second thread reads them from a pipe.
            return self  # whoever runs us there handles signals
        self._pipe = os.pipe()
        # A full pipe must not block a signal handler.
        os.set_blocking(self._pipe[1], False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        # The handlers do nothing: they are there so that the signal does not end the process.
        for number in SIGNALS:
            self._before[number] = signal.signal(number, lambda *_: None)
        Thread(target=self._listen, args=(self._pipe[0],), name="signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is None:
            return
        signal.set_wakeup_fd(self._wakeup)
        # A terminal and a launcher may both send one.
        late = time.monotonic() < self._until  # the rest of one request may still come
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if late else handler)
        os.close(self._pipe[1])  # which ends the thread

    def _listen(self, pipe: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(pipe, 16):
                for number in data:
                    if number not in SIGNALS:
                        continue
                    if self._signalled and time.monotonic() >= self._until:
                        # Somebody asks a second time, so the process ends at once: a step may hang.
                        os._exit(ExitCode.INTERRUPTED)
                    if not self._signalled:
                        self._until = time.monotonic() + self._one
                    self._signalled = True
        os.close(pipe)

    def count(self) -> None:
        """Count a finished step."""
        self._steps += 1

    @property
    def asked(self) -> bool:
        """Whether to stop: a signal came, or a limit is reached."""
        steps = self._limits.steps
        return self.now or (steps is not None and self._steps >= steps)

    @property
    def now(self) -> bool:
        """Whether to leave an evaluation too: a signal came, or the time is over."""
        seconds = self._limits.seconds
        return self._signalled or (seconds is not None and time.monotonic() - self._begin >= seconds)


class SharedStop(StopRequest):
    """A request to stop that holds when all processes know of it: they tell each other with every step."""

    agreed = False

    @property
    def here(self) -> bool:
        """Whether this process was asked."""
        return super().now

    @property
    def now(self) -> bool:
        """Whether all processes have agreed to stop."""
        # All processes stop at a step that they have agreed on: alone, one would leave the others in a sum.
        return self.agreed
