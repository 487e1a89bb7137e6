"""Runs trainings in child processes side by side: folds, and the trials of a sweep."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO

from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import usable_cores
from pe_cli.io import atomic

#: Of Linux's prctl: the signal that a process gets when its parent dies.
_PARENT_DEATH_SIGNAL = 1
#: Bytes of what a child says that are looked at.
_MOST = 1 << 16


@dataclass(frozen=True)
class Child:
    """A training in a process of its own.

    Args:
        process: that trains.
        out, err: files that it writes to; a pipe that nobody reads would stop it.
    """

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def ended(self) -> tuple[int, str, str]:
        """Return the exit code, what was said on standard output, and the error: empty where there is none."""
        code = self.process.wait()
        said, error = (_text(file) for file in (self.out, self.err))
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return code, said, (error or how) if code else ""


def new_folder(parent: Path, name: str) -> Path:
    """Return a new folder in parent, called by its name and the present time.

    Raises:
        PeError: it can't be created (USAGE), or the disk is full (DEVICE).
    """
    base = parent / f"{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for i in range(1, 1000):
        path = base if i == 1 else base.with_name(f"{base.name}-{i}")
        if not path.exists():
            return atomic.make_folder(path)
    raise PeError(f"cannot write {base}: so many runs are called like it", hint="give the run another name")


def start_training(
    run: RunSpec, overrides: Sequence[str], jobs: int, *, resume: Path | None = None, keep: Collection[int] = ()
) -> Child:
    """Start `pe train` with a config, as one of several that share the cores; with signals `held` until the caller has noted it.

    Args:
        run: whose file is trained.
        overrides: as after `-o`.
        jobs: trainings at a time; cores are divided among them where the config leaves the number of devices open.
        resume: run to go on with.
        keep: descriptors that the process inherits; where there are some, it also stops when this process dies.
    """
    environment = dict(os.environ)
    # Trials share the cores; who has set CPU_NUM has decided it.
    if jobs > 1 and run.executor.devices == "auto" and "CPU_NUM" not in environment:
        environment["CPU_NUM"] = str(max(1, usable_cores() // jobs))
    command = [sys.executable, "-m", "pe_cli", "train", str(run.path), "--quiet"]
    command += [] if resume is None else ["--resume", str(resume)]
    command += [part for override in overrides for part in ("-o", override)]
    # Files and no pipes: nobody has to read while the child writes.
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
    # a Ctrl-C in the terminal would reach it, too: it is told once, by us
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
        pass_fds=tuple(keep), preexec_fn=die_with_parent() if keep else None,
    )  # fmt: skip
    return Child(process, out, err)


def stop(children: Collection[Child]) -> None:
    """Stop trainings: they write a checkpoint and end; a second interrupt kills them at once.

    Raises:
        KeyboardInterrupt: there was one.
    """
    _signal(children)
    try:
        # Each one writes its checkpoint first.
        for child in children:
            child.process.wait()
    except KeyboardInterrupt:
        _signal(children)
        for child in children:
            child.process.wait()
        raise
    finally:
        for child in children:
            child.out.close()
            child.err.close()


def _signal(children: Collection[Child]) -> None:
    for child in children:
        child.process.send_signal(signal.SIGINT)


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """Return what a new process does so that it gets a signal when this one dies; None where the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork: between fork and exec little is safe.
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PARENT_DEATH_SIGNAL, number)


def _text(file: IO[bytes]) -> str:
    """Return the end of what was written, and close the file."""
    with file:
        file.seek(0, os.SEEK_END)
        # The end says what went wrong.
        file.seek(max(0, file.tell() - _MOST))
        return file.read().decode(errors="replace").strip()
