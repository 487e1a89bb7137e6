"""Processes that are threads: the same trees and the same communication thread as over MPI, on queues that count."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pe_cli.collectives.communication_thread import CommunicationThread
from pe_cli.collectives.tree_reduce import gather, scan, small_sum

SECONDS = 200


class Network:
    """Ways between so many processes.

    Attributes:
        messages, nbytes: sent, by rank.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.messages: Counter[int] = Counter()
        self.nbytes: Counter[int] = Counter()
        self.ways = {(a, b, block): queue.SimpleQueue() for a in range(size) for b in range(size) for block in (False, True)}
        self.failed: BaseException | None = None

    def take(self, way: tuple[int, int, bool]) -> Any:
        """Return what has come, or comes in time; nobody waits for a process that has failed."""
        for _ in range(SECONDS):
            try:
                return self.ways[way].get(timeout=1)
            except queue.Empty:
                if self.failed is not None:
                    break
        raise TimeoutError(f"nothing has come to process {way[1]} from process {way[0]}")

    def run(self, process: Callable[[Simulated], Any]) -> list[Any]:
        """Call a function for each process, all at once, and return what it returns for each."""

        def one(rank: int) -> Any:
            peers = Simulated(rank, self)
            try:
                return process(peers)
            except BaseException as error:
                self.failed = self.failed or error
                raise
            finally:
                peers.close()

        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(one, rank) for rank in range(self.size)]
        if self.failed is not None:
            raise self.failed
        return [each.result() for each in futures]


class Simulated:
    """A `Summing` of a process that is a thread."""

    doing = advice = ""

    def __init__(self, rank: int, network: Network) -> None:
        self.rank, self.size, self._network = rank, network.size, network
        self._lane = CommunicationThread(self, lambda: None, SECONDS)
        self.reserve, self.begin = self._lane.reserve, self._lane.begin
        self.reserve_parts, self.begin_scatter, self.begin_gather = (
            self._lane.reserve_parts, self._lane.begin_scatter, self._lane.begin_gather
        )  # fmt: skip

    def _send(self, peer: int, message: bytes, block: bool = False) -> None:
        self._network.messages[self.rank] += 1
        self._network.nbytes[self.rank] += len(message)
        self._network.ways[self.rank, peer, block].put(message)

    def swap(self, peer, out, into):
        if out is not None and out.size:
            self._send(peer, out.tobytes())
        if into is not None and into.size:
            came = self._network.take((peer, self.rank, False))
            assert len(came) == into.nbytes
            into.view("uint8")[:] = bytearray(came)

    def swap_block(self, peer, out, wanted):
        if out is not None:
            self._send(peer, out, True)
        return self._network.take((peer, self.rank, True)) if wanted else b""

    def gather(self, message):
        return gather(self, message)

    def total(self, values):
        return small_sum(self, values)

    def scan(self, values, join):
        return scan(self, values, join)

    def close(self):
        self._lane.end()
