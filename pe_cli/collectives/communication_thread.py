"""The communication thread: it computes collectives in the background, one after the other, and sends heartbeats when idle."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from pe_cli.collectives.protocol import Array, Parts
from pe_cli.collectives.reduce_scatter import all_gather, reduce_scatter
from pe_cli.collectives.tree_reduce import Halved, Links, all_reduce, pieces, room_for
from pe_cli.core.threads import Thread


class Job:
    """A collective that has been started; see `Pending`.

    Args:
        works: the sums of its pieces, in order.
    """

    def __init__(self, works: list[Callable[[], None]]) -> None:
        self._works = works
        self._over = threading.Event()
        self._error: BaseException | None = None
        self.spans: list[tuple[int, int]] = []

    def run(self) -> None:
        """Compute the job; an error is kept and raised by `wait`."""
        try:
            for work in self._works:
                begin = time.perf_counter_ns()
                work()
                self.spans.append((begin, time.perf_counter_ns()))
        except BaseException as error:  # noqa: BLE001 (whoever waits raises it)
            self._error = error
        self._over.set()

    def wait(self) -> None:
        """Return when the sum is done; see `Pending`."""
        self._over.wait()
        if self._error is not None:
            raise self._error


class CommunicationThread:
    """A thread that runs jobs in the order in which they are submitted.

    Args:
        links: to the other processes.
        beat: sends a heartbeat; called whenever no job has come for `seconds`.
        seconds: of idleness between two heartbeats.
    """

    def __init__(self, links: Links, beat: Callable[[], None], seconds: float) -> None:
        self._links, self._beat, self._seconds = links, beat, seconds
        # One queue and one thread: all processes begin their sums in the same order, so none waits for one that another has behind its own.
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._room = np.empty(0, np.uint8)
        self._rooms = np.empty(0, np.uint8), np.empty(0, np.uint8)
        self._halved = Halved(links)
        self._thread = Thread(target=self._serve, name="communication", daemon=True)
        self._thread.start()

    def reserve(self, nbytes: int) -> None:
        """Reserve the buffer for pieces of at most `nbytes` bytes; see `Summing`."""
        needed = room_for(nbytes) + 8  # half of an odd number of elements, rounded up
        if needed > len(self._room):
            self._room = np.empty(needed, np.uint8)

    def begin(self, values: Array, most: int, halved: bool = False) -> Job:
        """Begin a sum; see `Summing`."""
        room = self._room[: len(self._room) // values.itemsize * values.itemsize].view(values.dtype)
        links = self._halved if halved else self._links
        # Pieces bound the room, and let the first of them be used while later ones are on the way.
        cuts = pieces(len(values), most)
        assert room_for(max(cut.stop - cut.start for cut in cuts)) <= len(room), "room was reserved"
        job = Job([partial(all_reduce, links, values[cut], room) for cut in cuts])
        self._jobs.put(job)
        return job

    def reserve_parts(self, nbytes: int) -> None:
        """Reserve the buffers for messages of at most `nbytes` bytes; see `Summing`."""
        if nbytes > len(self._rooms[0]):
            self._rooms = np.empty(nbytes, np.uint8), np.empty(nbytes, np.uint8)

    def begin_scatter(self, parts: Parts, most: int, halved: bool = False) -> Job:
        """Begin a sum of which each process keeps its part; see `Summing`."""
        return self._begin(partial(reduce_scatter, self._halved if halved else self._links), parts, most)

    def begin_gather(self, parts: Parts, most: int) -> Job:
        """Begin to give all processes the parts of each; see `Summing`."""
        return self._begin(partial(all_gather, self._links), parts, most)

    def _begin(self, work: Callable[[Parts, tuple[Array, Array]], None], parts: Parts, most: int) -> Job:
        dtype = next((a.dtype for part in parts for a in part), np.dtype(np.float32))
        rooms = self._rooms[0][: most * dtype.itemsize].view(dtype), self._rooms[1][: most * dtype.itemsize].view(dtype)
        assert len(rooms[0]) == most, "room was reserved"
        job = Job([partial(work, parts, rooms)])
        self._jobs.put(job)
        return job

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._seconds)
            except queue.Empty:
                # a process that computes for long sends nothing by itself: without heartbeats others would take it for lost
                self._beat()
                continue
            if job is None:
                return
            job.run()

    def end(self) -> None:
        """End the thread, after what has been begun."""
        self._jobs.put(None)
        self._thread.join()
