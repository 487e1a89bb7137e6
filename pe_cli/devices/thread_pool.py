"""A pool of native threads that park between steps; they never hold the GIL."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import secrets
import threading
from collections.abc import Collection, Sequence

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.threads import Thread
from pe_cli.devices import native_loops
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.cpu.python_calls import inside_host

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: Pauses before a worker parks: 0.1 ms or more, long enough to bridge the gap between two steps of a training loop. Waking costs far more.
SPIN = 10_000
#: Steps between two looks at which cores the threads are on.
LOOK = 16


def native_function(kernel: object) -> ctypes._FuncPointer:
    """Return a kernel of `native` as a ctypes function of a record's address; calling it releases the GIL."""
    instance = Instance(kernel)  # type: ignore[arg-type]
    return _FUNCTION(addresses([instance])[instance])


def runners(threads: int) -> list[Instance]:
    """Return the kernels that run steps with a number of threads, to be compiled along with a plan's own."""
    return [Instance(k) for k in (native_loops.run_tape, *((native_loops.run_step, native_loops.pool_worker) if threads > 1 else ()))]


def moves(cores: Sequence[int], usable: Collection[int]) -> dict[int, int]:
    """Return which threads should go to which core so that no two share one: thread 0 stays, and so do the first on each core.

    Args:
        cores: that each thread was on.
        usable: cores of the process.
    """
    free = sorted(set(usable).difference(cores))
    again = [t for t, core in enumerate(cores) if core in cores[:t]]
    return dict(zip(again, free, strict=False))


def semaphore(libc: ctypes.CDLL, room: int) -> int:
    """Return the address of a semaphore of the C library at 0: in the room given, or elsewhere on systems such as macOS, which name them.

    Args:
        libc: the C library.
        room: address of a line of memory.

    Raises:
        PeError: DEVICE, the system gives none.
    """
    if libc.sem_init(ctypes.c_void_p(room), 0, 0) == 0:
        return room
    # Of a function of a variable number of arguments, as ARM's Macs pass them elsewhere, ctypes has to know the fixed ones.
    libc.sem_open.argtypes, libc.sem_open.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    name = f"/pe-{os.getpid()}-{secrets.token_hex(4)}".encode()
    found = libc.sem_open(name, os.O_CREAT | os.O_EXCL, ctypes.c_uint(0o600), ctypes.c_uint(0))
    if found in (None, ctypes.c_void_p(-1).value):
        raise PeError(
            "this system gives no semaphores, on which threads wait", hint="set exec_strategy.num_threads: 1", code=ExitCode.DEVICE
        )
    libc.sem_unlink(name)  # the name is for this process alone; the semaphore stays until it ends
    return int(found)


class Pool:
    """Threads 1..size-1; thread 0 is the caller's.

    Some systems leave two busy threads on one core for seconds while another is idle, and a step then takes twice as long. So every few
    steps threads that share a core are moved apart; they are not bound to where they go.

    Args:
        size: threads in all, at least 1.

    Attributes:
        identities: `threading.get_ident()` of each thread but the caller's -> its index.
    """

    def __init__(self, size: int) -> None:
        # Semaphores of the C library: native threads park and wake there without a word to the interpreter.
        libc = ctypes.CDLL(None)
        self.size = size
        self.lock = threading.Lock()
        self.identities: dict[int, int] = {}
        words = native_loops.P_SLOTS + size * 2 * native_loops.LINE // 8 + 16
        raw = np.zeros(words, np.int64)
        skip = (-raw.ctypes.data % native_loops.LINE) // 8
        self.block = raw[skip:]
        for word, name in ((native_loops.P_WAIT, "sem_wait"), (native_loops.P_POST, "sem_post"), (native_loops.P_YIELD, "sched_yield")):
            self.block[word] = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0
        self.block[native_loops.P_SPIN] = SPIN
        self._core = getattr(libc, "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None
        if self._core is not None:
            self.block[native_loops.P_CORE] = ctypes.cast(self._core, ctypes.c_void_p).value or 0
        self._cores = self.block[native_loops.P_SLOTS + 1 :: 2 * native_loops.LINE // 8]
        self._steps = 0
        self._threads: list[int] = [0]
        self._run = native_function(native_loops.run_step)
        serve = native_function(native_loops.pool_worker)
        self._records = [np.array([self.block.ctypes.data, t], np.int64) for t in range(size)]
        for t in range(1, size):
            slot = native_loops.P_SLOTS + 2 * t * native_loops.LINE // 8
            self.block[slot + native_loops.S_SEMAPHORE] = semaphore(libc, self.block.ctypes.data + 8 * slot + native_loops.LINE)
            thread = Thread(
                target=serve, args=(self._records[t].ctypes.data,), daemon=True, name=f"pe-worker-{t}"
            )
            thread.start()
            self.identities[thread.ident or 0] = t
            self._threads.append(thread.native_id or 0)
        # Made once: a step then writes one word, and makes no Python object.
        self._record = np.array([self.block.ctypes.data, 0, size - 1], np.int64)
        self._record_at = int(self._record.ctypes.data)
        self._words = self._record.data

    def run(self, schedule: int) -> None:
        """Run one step of a schedule (its address) on all threads and return when every thread has left it.

        Raises:
            PeError: it is called by a kernel of another step.
        """
        # From inside of a step the lock is held by that very step: waiting for it would never end.
        if not self.lock.acquire(blocking=not inside_host()):
            raise PeError(
                "a step with several threads cannot run inside a py_func of another", hint="set num_threads to 1"
            )
        try:
            self._words[1] = schedule
            self._run(self._record_at)
            self._steps += 1
            if self._steps % LOOK == 0 and self._core is not None:
                self._part()
        finally:
            self.lock.release()

    def _part(self) -> None:
        """Move threads that share a core to cores without one."""
        assert self._core is not None
        cores = [self._core(), *self._cores[1 : self.size].tolist()]
        if len(set(cores)) == self.size:
            return
        usable = os.sched_getaffinity(0)
        for t, core in moves(cores, usable).items():
            with contextlib.suppress(OSError):
                # binding moves the thread at once; releasing it right after leaves later moves to the system
                os.sched_setaffinity(self._threads[t], {core})
                os.sched_setaffinity(self._threads[t], usable)


@functools.cache
def pool(size: int) -> Pool:
    """Return the process's pool of a size; it lives until the process ends."""
    return Pool(size)
