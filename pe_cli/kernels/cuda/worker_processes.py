"""Compiles kernels for CUDA on all cores: child processes each compile a share into the cache, from which this one reads."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Sequence

from pe_cli.kernels.cuda.compiler import Capability, cubin, is_kept
from pe_cli.kernels.cuda.language import Built

#: Kernels from which on copies pay.
FEW = 4
#: Seconds between two looks at what has been compiled.
EVERY = 0.05


def compile_ahead(kernels: Sequence[Built], capability: Capability, progress: Callable[[int, int, str], None] | None = None) -> None:
    """Compile kernels that are not in the cache; what a copy fails at, or cannot keep, is compiled when it is asked for, which says why.

    Args:
        kernels: each once.
        capability: that they are compiled for.
        progress: is told how many are done, of how many, and the name of one that is not.

    Raises:
        PeError: the compiler is not installed or does not know the capability (exit code 5).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    count = min(cores, len(kernels))
    if len(kernels) < FEW or count < 2 or not hasattr(os, "fork"):
        for done, built in enumerate(kernels):
            if progress:
                progress(done, len(kernels), built.kernel.name)
            cubin(built, capability)
        return
    cubin(kernels[0], capability)  # imports the compiler, once for all copies, and says what is wrong with it
    shares = [kernels[i::count] for i in range(count)]
    running = {_forked(share, capability) for share in shares}
    try:
        left = list(kernels)
        while running:
            running = {child for child in running if not os.waitpid(child, os.WNOHANG)[0]}
            left = [built for built in left if not is_kept(built, capability)]
            if progress and left:
                progress(len(kernels) - len(left), len(kernels), left[0].kernel.name)
            time.sleep(EVERY)
    finally:
        for child in running:  # this process is being stopped; the number of one that was waited for may be another's by now
            _end(child)


def _forked(share: Sequence[Built], capability: Capability) -> int:
    """Return the number of a copy of this process that compiles some kernels and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of this process that read data do not hold what compilers need
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # What a copy fails at is compiled again by the parent, which reports the error once.
        silent = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(silent, stream)
        for built in share:
            cubin(built, capability)
        code = 0
    finally:
        os._exit(code)  # nothing of the process that it is a copy of may happen twice


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return
