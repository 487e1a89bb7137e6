"""Several processes over MPI: non-blocking messages that are asked after, so that a lost process is an error and no wait for ever.

Sums are made here and not by the library, whose order of addition is its own affair: each process adds up one part of the array,
in the order of ranks, and gives the result to all. Everyone sends and receives an array about twice, whatever the number of processes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pe_cli.collectives.protocol import Array, PeerError
from pe_cli.collectives.start import check_size, watched_start
from pe_cli.core.errors import ExitCode, PeError

#: Kinds of messages: to all, parts of sums, sums, signs of life, and why a process ends.
MESSAGE, PART, SUM, ALIVE, FAILURE = range(1, 6)
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
        """Whether it is over; asking moves it on."""


def _check_shared_memory() -> None:
    """Refuse a machine on which MPICH would end with a signal: it takes shared memory without a look at how much there is."""
    local = os.environ.get("MPI_LOCALNRANKS", "")  # of MPICH's mpiexec
    if not local.isdigit() or not SHARED.is_dir():
        return
    facts = os.statvfs(SHARED)
    free, wanted = facts.f_bavail * facts.f_frsize, SHARED_BASE + int(local) * SHARED_EACH
    if free < wanted:
        raise PeError(
            f"MPI needs about {wanted >> 20} MiB in {SHARED} for {local} processes, and {free >> 20} MiB are free",
            hint="give more: mount -o remount,size=256m /dev/shm, or docker run --shm-size=256m",
            code=ExitCode.DEVICE,
        )


def load_mpi() -> Any:
    """Return the module mpi4py.MPI, which starts MPI when it is first imported.

    Raises:
        PeError: it is not there, or finds no MPI library, or that is not made for threads; DEVICE, there is too little shared memory.
    """
    _check_shared_memory()
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # with a lost process that would wait for ever: `close` does it
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise PeError(
            "executor.processes: mpi needs the package mpi4py, which is not installed", hint=INSTALL
        ) from None
    except (ImportError, RuntimeError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise PeError(f"mpi4py cannot be used: {why}", hint=INSTALL) from None
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise PeError(
            "this MPI library allows calls from one thread only", hint="use one that has MPI_THREAD_SERIALIZED"
        )
    return MPI


class MpiPeers:
    """A `Communicator` over all processes that mpiexec has started.

    Args:
        timeout: seconds that the others may be silent while this process waits for them.
    """

    def __init__(self, timeout: float) -> None:
        with watched_start(timeout):
            self._mpi = load_mpi()
        self._world = self._mpi.COMM_WORLD
        self._timeout = timeout
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        check_size(self.size)
        self.doing, self.advice = "at the start", ""
        self._others = [r for r in range(self.size) if r != self.rank]
        self._kept: list[_Transfer] = []
        self._failures: dict[int, tuple[str, int]] = {}
        _outlive_the_lost()

    # --- messages -----------------------------------------------------------------------------------------------------

    def gather(self, message: bytes) -> list[bytes]:
        """Give every process a message; see `Communicator`."""
        self._guarded(self._others, self._look)
        sends = self._guarded(self._others, lambda: [self._send(message, r, MESSAGE) for r in self._others])
        incoming = {r: _Incoming(self._mpi, r) for r in self._others}
        self._finish([*incoming.values(), *sends])
        return [message if r == self.rank else incoming[r].message for r in range(self.size)]

    def summer(self, elements: int, dtype: str) -> Callable[[Array], None]:
        """Return a function that sums arrays over the processes; see `Communicator`."""
        cuts = [slice(*cut) for cut in itertools.pairwise(elements * r // self.size for r in range(self.size + 1))]
        mine = cuts[self.rank]
        parts = np.empty((self.size, mine.stop - mine.start), dtype)

        def run(values: Array) -> None:
            parts[self.rank] = values[mine]
            self._exchange({r: parts[r] for r in self._others}, {r: values[cuts[r]] for r in self._others}, PART)
            total = parts[0]
            for part in parts[1:]:
                total += part
            values[mine] = total
            self._exchange({r: values[cuts[r]] for r in self._others}, dict.fromkeys(self._others, total), SUM)

        return run

    def _exchange(self, into: dict[int, Array], out: dict[int, Array], tag: int) -> None:
        """Receive an array from each process and send it one; both know that empty ones are left out."""

        def begin() -> list[_Transfer]:
            receives = [_Request(r, self._world.Irecv(_bytes(a), r, tag)) for r, a in into.items() if a.size]
            return [*receives, *(self._send(_bytes(a), r, tag) for r, a in out.items() if a.size)]

        self._finish(self._guarded(self._others, begin))

    def _send(self, message: Any, to: int, tag: int) -> _Transfer:
        return _Request(to, self._world.Isend([message, self._mpi.BYTE], to, tag))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _finish(self, transfers: Iterable[_Transfer]) -> None:
        """Wait until all are over.

        Raises:
            PeerError: a process has been silent for too long, the library says that it is gone, or it has ended.
        """
        waiting = list(transfers)
        heard = dict.fromkeys(self._others, time.monotonic())
        for looks in itertools.count():
            left = self._guarded({t.peer for t in waiting}, partial(_unfinished, waiting))
            if not left:
                return
            if len(left) < len(waiting):
                heard |= dict.fromkeys({t.peer for t in waiting} - {t.peer for t in left}, time.monotonic())
            waiting = left
            if looks % SELDOM == SELDOM - 1:
                awaited = {t.peer for t in waiting}
                heard |= dict.fromkeys(self._guarded(awaited, self._look), time.monotonic())
                silent = {r for r in awaited if time.monotonic() - heard[r] >= self._timeout}
                if silent:
                    raise self._lost(silent, f"did not answer for {self._timeout:g} seconds")
            time.sleep(0 if looks < EAGER else PAUSE)

    def _guarded(self, peers: Collection[int], act: Callable[[], Any]) -> Any:
        """Do something with the library; what it says of other processes is an error with a place and a remedy."""
        try:
            return act()
        except self._mpi.Exception as error:
            why = str(error).strip().rpartition("\n")[2].strip()
            raise self._lost(peers, f"cannot be reached any more ({why})") from None

    def _look(self) -> list[int]:
        """Return who has given a sign of life.

        Raises:
            PeerError: a process has told that it ends.
        """
        found = []
        while (status := self._probe(ALIVE)) is not None:
            self._world.Recv([bytearray(0), self._mpi.BYTE], status.Get_source(), ALIVE)
            found.append(status.Get_source())
        self._take_failures()
        for rank, (text, code) in self._failures.items():
            known = ExitCode(code) if code in list(ExitCode) else ExitCode.BUG
            raise PeerError(f"process {rank} has ended: {text}", code=known)
        return found

    def _probe(self, tag: int) -> Any:
        status = self._mpi.Status()
        return status if self._world.Iprobe(self._mpi.ANY_SOURCE, tag, status) else None

    def _lost(self, ranks: Collection[int], what: str) -> PeerError:
        listed = f"process {min(ranks)}" if len(ranks) == 1 else f"processes {', '.join(map(str, sorted(ranks)))}"
        return PeerError(f"{listed} of {self.size} {what}, {self.doing}; this is process {self.rank}", hint=self.advice)

    # --- life and end -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Give a sign of life now and then, from a thread: nobody else calls MPI meanwhile; see `Communicator`."""
        over = threading.Event()
        thread = threading.Thread(target=self._live, args=(over,), name="signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _live(self, over: threading.Event) -> None:
        with contextlib.suppress(self._mpi.Exception):  # who waits for a lost process says so
            while not over.wait(min(LIFE, self._timeout / 4)):
                self._kept.extend(self._send(b"", r, ALIVE) for r in self._others)
                self._kept = _unfinished(self._kept)

    def fail(self, error: PeError) -> None:
        """Tell the others why this process ends; who does not listen for a second is left alone."""
        text = json.dumps({"message": error.message, "code": int(error.code)}).encode()
        until = time.monotonic() + LAST_WORDS
        try:
            sends = [self._send(text, r, FAILURE) for r in self._others]
            while not all([t.done() for t in sends]) and time.monotonic() < until:  # noqa: C419 - each is moved on
                time.sleep(PAUSE)
        except self._mpi.Exception:
            return  # whoever is gone needs no message

    def abort(self, code: int) -> None:
        """End all processes, and the launcher with this exit code."""
        with contextlib.suppress(self._mpi.Exception):
            self._world.Abort(code)

    def failure_of(self, rank: int, seconds: float) -> tuple[str, int] | None:
        """Return the message and exit code that a process has ended with; see `Communicator`."""
        until = time.monotonic() + seconds
        try:
            while rank not in self._failures and time.monotonic() < until:
                self._take_failures()
                time.sleep(PAUSE)
        except self._mpi.Exception:
            return None
        return self._failures.get(rank)

    def _take_failures(self) -> None:
        while (status := self._probe(FAILURE)) is not None:
            text = bytearray(status.Get_count(self._mpi.BYTE))
            self._world.Recv([text, self._mpi.BYTE], status.Get_source(), FAILURE)
            said = json.loads(text)
            self._failures[status.Get_source()] = str(said["message"]), int(said["code"])

    def close(self) -> None:
        """End together; see `Communicator`."""
        self.gather(b"")
        self._mpi.Finalize()


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

    def __init__(self, mpi: Any, peer: int) -> None:
        self.peer = peer
        self._mpi = mpi
        self._request: Any = None
        self._room = bytearray()

    def done(self) -> bool:
        if self._request is None:
            status = self._mpi.Status()
            found = self._mpi.COMM_WORLD.Improbe(self.peer, MESSAGE, status)
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
