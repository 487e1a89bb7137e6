"""A queue of gradients that a thread sends while the trainer goes on; it merges those of one parameter, and fetches parameters."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import Message
from pe_cli.core.errors import PeError
from pe_cli.core.threads import Thread
from pe_cli.graph.servers.server_program import ROWS

Array = np.ndarray[Any, Any]
#: host:port -> name -> gradient, and rows of row-sparse ones.
Push = Mapping[str, Mapping[str, Array]]


class GradientQueue:
    """Sends gradients from a thread.

    Args:
        servers: connections.
        merges: steps whose gradients become one, at most: of each its mean.
        size: steps that may wait to be sent; a trainer that is further ahead waits.
        every: steps that are sent between two times that parameters are asked for.
    """

    def __init__(self, servers: Servers, merges: int, size: int, every: int) -> None:
        self._servers, self._merges, self._every = servers, merges, every
        # A bounded queue: a trainer that is faster than the network waits, instead of filling memory with gradients.
        self._queue: queue.Queue[Push | None] = queue.Queue(size)
        self._lock = threading.Lock()
        self._wanted: dict[str, list[str]] = {}
        self._answers: dict[str, Message] = {}
        self._sent = 0
        self._error: PeError | None = None
        self._thread = Thread(target=self._run, name="gradients", daemon=True)
        self._thread.start()

    def put(self, push: Push) -> None:
        """Leave gradients to be sent.

        Raises:
            PeerError: a server was lost.
        """
        self._check()
        self._queue.put(push)

    def take(self, wanted: Mapping[str, Sequence[str]]) -> Mapping[str, Message]:
        """Return the parameters that have come since this was last asked.

        Args:
            wanted: host:port -> names, which are asked for from now on.

        Raises:
            PeerError: a server was lost.
        """
        self._check()
        with self._lock:
            self._wanted = {endpoint: list(names) for endpoint, names in wanted.items()}
            # Taken and emptied under one lock, so that no answer is taken twice, and none that comes meanwhile is lost.
            found, self._answers = self._answers, {}
        return found

    def flush(self) -> None:
        """Wait until everything has been sent; parameters are asked for then.

        Raises:
            PeerError: a server was lost.
        """
        self._queue.join()
        self._check()
        self._pull()

    def close(self) -> None:
        """Send what is left, and end the thread.

        Raises:
            PeerError: a server was lost.
        """
        # The end travels behind everything that was queued, so that nothing is dropped.
        self._queue.put(None)
        self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        over = False
        while not over:
            found = [self._queue.get()]
            while len(found) < self._merges and found[-1] is not None:
                try:
                    found.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            over = found[-1] is None
            try:
                # After an error the queue is emptied all the same, or who waits for it would wait for ever.
                if self._error is None:
                    self._send([push for push in found if push is not None])
            except PeError as error:
                self._error = error
            finally:
                for _ in found:
                    self._queue.task_done()

    def _send(self, pushes: Sequence[Push]) -> None:
        if not pushes:
            return
        endpoints = dict.fromkeys(endpoint for push in pushes for endpoint in push)
        merged = {e: Message("push", {}, merged_of([push[e] for push in pushes if e in push])) for e in endpoints}
        self._servers.ask(merged, "sends gradients")
        self._sent += len(pushes)
        if self._sent >= self._every:
            self._pull()

    def _pull(self) -> None:
        self._sent = 0
        with self._lock:
            wanted = dict(self._wanted)
        if wanted:
            answers = self._servers.ask({e: Message("pull", {"names": names}) for e, names in wanted.items()}, "takes parameters")
            with self._lock:
                self._answers = answers


def merged_of(pushes: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the mean of gradients of several steps; of row-sparse ones all rows, each divided by the number of steps."""
    if len(pushes) == 1:
        return dict(pushes[0])
    found: dict[str, Array] = {}
    for name in dict.fromkeys(name for push in pushes for name in push if not name.endswith(ROWS)):
        parts = [push[name] for push in pushes if name in push]
        share = parts[0].dtype.type(len(parts))
        if name + ROWS in pushes[0] or any(name + ROWS in push for push in pushes):
            # Rows that several steps touched go once, with the sum of their gradients.
            rows, where = np.unique(np.concatenate([push[name + ROWS] for push in pushes if name in push]), return_inverse=True)
            total = np.zeros((len(rows), *parts[0].shape[1:]), parts[0].dtype)
            np.add.at(total, where.ravel(), np.concatenate(parts))
            found[name], found[name + ROWS] = total / share, rows
        else:
            found[name] = sum(parts[1:], parts[0]) / share
    return found
