"""Inspects a step that hangs: which kernels run, and which tasks wait for what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.devices.protocol import Stalled
from pe_cli.devices.timestamps import BEGIN, END, THREAD, StampedTape


class StampedStep:
    """A stamped tape as the watchdog sees it.

    Args:
        tape: that runs.
        waits: works that each work waits for.
        tell: makes the error of what hangs.
    """

    def __init__(
        self, tape: StampedTape, waits: Sequence[Collection[int]], tell: Callable[[Stalled], PeError]
    ) -> None:
        self._tape = tape
        self._tell = tell
        real = set(tape.work.tolist())
        self._waits: list[set[int]] = []
        for found in waits:  # a work without a kernel stands for those that it waits for
            self._waits.append({v for w in found for v in ({w} if w in real else self._waits[w])})

    def progress(self) -> Hashable:
        """Return the newest stamp."""
        return int(self._tape.stamps[:, :THREAD].max())

    def stall(self, seconds: float) -> PeError:
        """Return the error that says what hangs."""
        return self._tell(self.look(seconds))

    def stop(self) -> None:
        """Stop the step: no further kernel is started."""
        self._tape.abort()

    def look(self, idle: float) -> Stalled:
        """Return what runs and what waits, now.

        Args:
            idle: seconds since it last got on.
        """
        tape = self._tape
        # Threads go on stamping while this looks: a copy is of nearly one moment.
        stamps = tape.stamps[: len(tape.work)].copy()
        begun, ended = stamps[:, BEGIN] >= tape.started, stamps[:, END] >= np.maximum(stamps[:, BEGIN], tape.started)
        lanes = tape.lanes()
        now, scale = tape.clock.now(), tape.clock.scale()[2]
        running = []
        for i in np.flatnonzero(begun & ~ended).tolist():
            kernel = tape.instructions[i].instance.kernel.name.rpartition(":")[2]
            seconds = float(now - stamps[i, BEGIN]) * scale / 1e9
            running.append((int(tape.work[i]), kernel, lanes.get(int(stamps[i, THREAD]), 0), seconds))
        unfinished = set(tape.work[~ended].tolist())
        started = set(tape.work[begun].tolist())
        waiting = [(w, tuple(sorted(unfinished & self._waits[w]))) for w in sorted(unfinished - started)]
        return Stalled(
            idle,
            tuple(running),
            tuple(waiting),
            len(set(tape.work.tolist())) - len(unfinished),
        )
