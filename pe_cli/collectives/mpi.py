"""Collectives of several processes over MPI, by non-blocking messages that are polled, so that a lost process is an error and no deadlock.

Sums are made here and not by the library, whose order of addition is its own affair (`tree_reduce.py`), on a thread of their own
(`communication_thread.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pe_cli.collectives import hydra
from pe_cli.collectives.communication_thread import CommunicationThread
from pe_cli.collectives.process_supervisor import BEGUN, LEFT, tell
from pe_cli.collectives.protocol import Array, Failure, Join, Parts, PeerError, Pending
from pe_cli.collectives.startup_watch import check_manager, check_size, watched_startup
from pe_cli.collectives.tree_reduce import gather, scan, seat, small_sum
from pe_cli.core.errors import ExitCode, PeError

#: Kinds of messages: of known length, of any, signs of life, and why a process ends.
PART, MESSAGE, ALIVE, FAILURE = range(1, 5)
#: Looks without a pause, and seconds between later ones.
EAGER, PAUSE = 200, 1e-4
#: Looks between two looks for signs of life and failures.
SELDOM = 16
#: Seconds between two signs of life, a quarter of the timeout where that is less, and those that a process takes to say why it ends.
LIFE, LAST_WORDS = 1.0, 1.0
#: Where processes of a machine share memory, and bytes there without which MPICH 4 ends with SIGBUS or SIGSEGV: measured for 2 to 8
#: processes, with room to spare.
SHARED, SHARED_BASE, SHARED_EACH = Path("/dev/shm"), 24 << 20, 4 << 20
INSTALL = (
    "pip install mpi4py mpich, or in a checkout pip install '.[mpi]'; mpich may be any MPI library that is installed"
)


class _Transfer(Protocol):
    """Something under way, with the process at its other end."""

    peer: int

    def done(self) -> bool:
        """Whether the transfer is over; MPI moves it on when it is asked."""


def _check_shared_memory() -> None:
    """Refuse a machine on which MPICH would end with a signal: it takes shared memory without a look at how much there is.

    The first process of each machine decides for all, and ends the others once it has told: were each to look for itself, one could find
    too little where MPI has taken some for another already, which would wait for it until the timeout.
    """
    local = os.environ.get("MPI_LOCALNRANKS", "")  # of MPICH's mpiexec
    if not local.isdigit() or os.environ.get("MPI_LOCALRANKID", "0") != "0" or not SHARED.is_dir():
        return
    facts = os.statvfs(SHARED)
    free, wanted = facts.f_bavail * facts.f_frsize, SHARED_BASE + int(local) * SHARED_EACH
    if free < wanted:
        atexit.register(hydra.abort, ExitCode.DEVICE)  # once the error is told
        raise PeError(
            f"MPI needs about {wanted >> 20} MiB in {SHARED} for {local} processes, and {free >> 20} MiB are free",
            hint="give more: mount -o remount,size=256m /dev/shm, or docker run --shm-size=256m",
            code=ExitCode.DEVICE,
        )


def _version_of_wheel() -> str:
    """Return the version of MPICH that was installed by pip; empty for none."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("mpich")
    return ""


def load_mpi() -> Any:
    """Return the module mpi4py.MPI, which starts MPI when it is first imported.

    Raises:
        PeError: it is not there, or finds no MPI library, or that is not made for threads; DEVICE, there is too little shared memory.
    """
    _check_shared_memory()
    check_manager(os.environ, _version_of_wheel())
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # with a lost process that would wait for ever: `close` does it
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise PeError("executor.processes: auto needs the package mpi4py, which is not installed", hint=INSTALL) from None
    except (ImportError, RuntimeError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise PeError(f"mpi4py cannot be used: {why}", hint=INSTALL) from None
    # The communication thread sums while the main one may ask for other things: calls come from two threads, one at a time.
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise PeError("this MPI library allows calls from one thread only", hint="use one that has MPI_THREAD_SERIALIZED")
    return MPI


class MpiPeers:
    """A `Summing` over all processes that mpiexec has started.

    Args:
        timeout: seconds that the others may be silent while this process waits for them.
        by_machine: number the processes of a machine one after the other, the machines by their first process.
    """

    def __init__(self, timeout: float, *, by_machine: bool = False) -> None:
        # The launcher has to know before MPI is loaded, as that is where a start may hang.
        tell(BEGUN, f"{timeout:g}")
        with watched_startup(timeout):
            self._mpi = load_mpi()
        self._world = self._mpi.COMM_WORLD
        self._timeout = timeout
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        check_size(self.size)
        self.doing, self.advice = "at the start", ""
        self._calls = threading.RLock()  # the library may be called by one thread at a time
        self._near = seat(self.rank, self.size).near
        self._others = [r for r in range(self.size) if r != self.rank]
        self._kept: list[_Transfer] = []
        self._left = False
        self._beaten = 0.0
        self._heard: dict[int, float] = {}  # when a process last gave a sign of life
        self._failures: dict[int, Failure] = {}
        self._world_rank = list(range(self.size))  # of each process, the number that the launcher gave it
        self._number = list(range(self.size))  # of each of the launcher's numbers, that of the process here
        _outlive_the_lost()
        if by_machine:
            self._renumber()
        self._lane = CommunicationThread(self, self._beat, self._rhythm)

    def _renumber(self) -> None:
        """Number the processes machine by machine: then those of one are neighbours in the tree, and sum among themselves first."""
        # By machine in the order of their first process, so that all processes find the same numbers without asking again.
        machines = gather(self, socket.gethostname().encode())
        first = {machine: r for r, machine in reversed([*enumerate(machines)])}
        self._world_rank = sorted(range(self.size), key=lambda r: (first[machines[r]], r))
        self._number = np.argsort(self._world_rank).tolist()
        self.rank = self._number[self.rank]
        self._near = seat(self.rank, self.size).near
        self._others = [r for r in range(self.size) if r != self.rank]

    @property
    def _rhythm(self) -> float:
        """Seconds between two signs of life."""
        return min(LIFE, self._timeout / 4)

    # --- messages -----------------------------------------------------------------------------------------------------

    def gather(self, message: bytes) -> list[bytes]:
        """Give every process a message; see `Communicator`."""
        self._guarded(self._near, self._look)
        return gather(self, message)

    def total(self, values: Array) -> Array:
        """Return the sum of a small array; see `Communicator`."""
        self._guarded(self._near, self._look)
        return small_sum(self, values)

    def scan(self, values: Array, join: Join) -> tuple[Array, Array]:
        """Put small arrays together; see `Summing`."""
        self._guarded(self._near, self._look)
        return scan(self, values, join)

    def reserve(self, nbytes: int) -> None:
        """Have room for sums; see `Summing`."""
        self._lane.reserve(nbytes)

    def begin(self, values: Array, most: int, halved: bool = False) -> Pending:
        """Begin a sum; see `Summing`."""
        return self._lane.begin(values, most, halved)

    def reserve_parts(self, nbytes: int) -> None:
        """Have room for exchanges of parts; see `Summing`."""
        self._lane.reserve_parts(nbytes)

    def begin_scatter(self, parts: Parts, most: int, halved: bool = False) -> Pending:
        """Begin a sum of which each process keeps its part; see `Summing`."""
        return self._lane.begin_scatter(parts, most, halved)

    def begin_gather(self, parts: Parts, most: int) -> Pending:
        """Begin to give all processes the parts of each; see `Summing`."""
        return self._lane.begin_gather(parts, most)

    def swap(self, peer: int, out: Array | None, into: Array | None) -> None:
        """Send an array while another comes; see `Links`."""

        def begin() -> list[_Transfer]:
            made: list[_Transfer] = []
            # The receive is posted first: what arrives has a place, and the library need not keep a copy.
            if into is not None and into.size:
                made.append(_Request(peer, self._world.Irecv(_bytes(into), self._world_rank[peer], PART)))
            if out is not None and out.size:
                made.append(self._send(_bytes(out), peer, PART))
            return made

        self._finish(self._guarded((peer,), begin))

    def swap_block(self, peer: int, out: bytes | None, wanted: bool) -> bytes:
        """Send bytes while others come; see `Links`."""
        incoming = _Incoming(self._mpi, peer, self._world_rank[peer]) if wanted else None
        sends = [] if out is None else [self._guarded((peer,), lambda: self._send(out, peer, MESSAGE))]
        self._finish([*([incoming] if incoming else []), *sends])
        return incoming.message if incoming else b""

    def _send(self, message: Any, to: int, tag: int) -> _Transfer:
        return _Request(to, self._world.Isend([message, self._mpi.BYTE], self._world_rank[to], tag))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _finish(self, transfers: Iterable[_Transfer]) -> None:
        """Wait until all are over.

        Raises:
            PeerError: a process has been silent for too long, the library says that it is gone, or it has ended.
        """
        waiting = list(transfers)
        begin = dict.fromkeys({t.peer for t in waiting}, time.monotonic())
        for looks in itertools.count():
            left = self._guarded({t.peer for t in waiting}, partial(_unfinished, waiting))
            if not left:
                return
            waiting = left
            # looking for heartbeats and failures costs several calls of the library, so it is done once in many polls
            if looks % SELDOM == SELDOM - 1:
                self._beat()
                awaited = {t.peer for t in waiting}
                self._guarded(awaited, self._look)
                silent = {r for r in awaited if time.monotonic() - max(begin[r], self._heard.get(r, 0.0)) >= self._timeout}
                if silent:
                    raise self._lost(silent, f"did not answer for {self._timeout:g} seconds")
            # a blocking wait would never return where the other process is lost, and would keep the lock from other threads
            time.sleep(0 if looks < EAGER else PAUSE)

    def _guarded(self, peers: Collection[int], act: Callable[[], Any]) -> Any:
        """Do something with the library; what it says of other processes is an error with a place and a remedy."""
        try:
            with self._calls:
                return act()
        except self._mpi.Exception as error:
            why = str(error).strip().rpartition("\n")[2].strip()
            raise self._lost(peers, f"cannot be reached any more ({why})") from None

    def _listen(self) -> None:
        """Note who has given a sign of life."""
        while (status := self._probe(ALIVE)) is not None:
            self._world.Recv([bytearray(0), self._mpi.BYTE], status.Get_source(), ALIVE)
            self._heard[self._number[status.Get_source()]] = time.monotonic()

    def _look(self) -> None:
        """Note who has given a sign of life.

        Raises:
            PeerError: a process has told that it ends.
        """
        self._listen()
        self._take_failures()
        for rank, failure in self._failures.items():
            if not failure.met:
                continue  # the process that has met it tells all
            raise PeerError.ended(rank, failure)

    def _probe(self, tag: int) -> Any:
        status = self._mpi.Status()
        return status if self._world.Iprobe(self._mpi.ANY_SOURCE, tag, status) else None

    def _lost(self, ranks: Collection[int], what: str) -> PeerError:
        listed = f"process {min(ranks)}" if len(ranks) == 1 else f"processes {', '.join(map(str, sorted(ranks)))}"
        return PeerError(f"{listed} of {self.size} {what}, {self.doing}; this is process {self.rank}", hint=self.advice)

    # --- life and end -------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Give those that may wait for this process a sign of life, where the last was some time ago."""
        # Asked for at every look, and sent once a second: signs of life are for silence, not for traffic.
        if time.monotonic() - self._beaten < self._rhythm:
            return
        self._beaten = time.monotonic()
        with contextlib.suppress(self._mpi.Exception), self._calls:  # who waits for a lost process says so
            self._kept.extend(self._send(b"", r, ALIVE) for r in self._near)
            self._kept = _unfinished(self._kept)
            self._listen()  # so that they do not pile up where nobody waits

    def fail(self, failure: Failure) -> None:
        """Tell the others why this process ends; who does not listen for a second is left alone."""
        text = json.dumps(asdict(failure)).encode()
        until = time.monotonic() + LAST_WORDS
        try:
            with self._calls:
                sends = [self._send(text, r, FAILURE) for r in self._others]
            while sends and time.monotonic() < until:
                with self._calls:
                    sends = _unfinished(sends)
                time.sleep(PAUSE)
        except self._mpi.Exception:
            return  # whoever is gone needs no message

    def take_leave(self) -> bool:
        """Let the others go on when this process ends; see `Communicator`."""
        if not self._left and hydra.take_leave():
            self._left = True
            tell(LEFT)
        return self._left

    def abort(self, code: int) -> None:
        """End all processes, and the launcher with this exit code."""
        time.sleep(hydra.DRAIN)
        with contextlib.suppress(self._mpi.Exception), self._calls:
            self._world.Abort(code)

    def failures(self) -> Mapping[int, Failure]:
        """Return why the others end; see `Communicator`."""
        until = time.monotonic() + self._timeout
        with contextlib.suppress(self._mpi.Exception):
            while len(self._failures) < len(self._others) and time.monotonic() < until:
                with self._calls:
                    self._take_failures()
                time.sleep(PAUSE)
        return self._failures

    def _take_failures(self) -> None:
        while (status := self._probe(FAILURE)) is not None:
            text = bytearray(status.Get_count(self._mpi.BYTE))
            self._world.Recv([text, self._mpi.BYTE], status.Get_source(), FAILURE)
            said = json.loads(text)
            self._failures[self._number[status.Get_source()]] = Failure(**said | {"code": ExitCode(said["code"])})

    def close(self) -> None:
        """End together; see `Communicator`."""
        self.gather(b"")
        self._lane.end()
        self._beaten = math.inf  # no more signs of life, which nobody would take
        self.gather(b"")
        self._guarded(self._near, self._look)
        self._mpi.Finalize()
        if hydra.way() is not None:
            self._left = True
            tell(LEFT)


def _outlive_the_lost() -> None:
    """Ignore SIGUSR1, by which MPICH's mpiexec tells that a process is gone: its default would end this one without a word."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _unfinished(transfers: Iterable[_Transfer]) -> list[_Transfer]:
    return [t for t in transfers if not t.done()]


class _Request:
    """A message of known length."""

    def __init__(self, peer: int, request: Any) -> None:
        self.peer, self._request = peer, request

    def done(self) -> bool:
        return bool(self._request.Test())


class _Incoming:
    """A message whose length its sender knows."""

    def __init__(self, mpi: Any, peer: int, source: int) -> None:
        self.peer, self._source = peer, source
        self._mpi = mpi
        self._request: Any = None
        self._room = bytearray()

    def done(self) -> bool:
        if self._request is None:
            status = self._mpi.Status()
            found = self._mpi.COMM_WORLD.Improbe(self._source, MESSAGE, status)
            if found is None:
                return False
            self._room = bytearray(status.Get_count(self._mpi.BYTE))
            self._request = found.Irecv([self._room, self._mpi.BYTE])
        return bool(self._request.Test())

    @property
    def message(self) -> bytes:
        return bytes(self._room)


def _bytes(values: Array) -> Any:
    """Return the memory of an array without gaps."""
    return values.view(np.uint8)
