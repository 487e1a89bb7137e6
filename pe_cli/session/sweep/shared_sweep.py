"""A sweep in several processes under a launcher: which folder they share, and which of them prints."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import atomic, lock
from pe_cli.session.sweep.record import RECORD, Sweep, read_sweep
from pe_cli.session.sweep.sweep import open_sweep
from pe_cli.session.sweep.trial_locks import can_share

Launcher = Literal["mpi", "slurm"]
#: Seconds between tries for the lock on the folder of all runs, where the tasks of a job meet; and tries: to check all trials takes long.
_PAUSE, _TRIES = 0.1, 6000
#: Key of what a sweep was started with.
_JOB = "job"


@dataclass(frozen=True)
class Joined:
    """A sweep, and this process's part in it.

    Args:
        sweep: as it is now.
        leads: whether this process tells what came of the whole.
        shared: processes on this machine that share its cores.
    """

    sweep: Sweep
    leads: bool = True
    shared: int = 1


@contextlib.contextmanager
def joined(launcher: Launcher | None, run: RunSpec, begin: Callable[[], Sweep], *, fresh: bool) -> Iterator[Joined]:
    """Have a sweep together with the processes that a launcher has started, and end with them.

    Args:
        launcher: None for this process alone.
        run: the config, checked.
        begin: makes a sweep, or opens the one to go on with.
        fresh: whether it makes one.

    Raises:
        PeError: USAGE, there is no such launcher around this process, or the file system cannot lock.
    """
    if launcher is None:
        yield Joined(begin())
    elif launcher == "mpi":
        with _over_mpi(begin) as found:
            yield found
    else:
        sweep = _of_job(run, begin) if fresh else begin()
        _check_sharing(sweep.folder)
        yield Joined(sweep)


# --- MPI --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _over_mpi(begin: Callable[[], Sweep]) -> Iterator[Joined]:
    """The first process begins, and the others are told the folder."""
    from pe_cli.collectives.mpi import load_mpi

    mpi = load_mpi()
    world = mpi.COMM_WORLD
    shared = world.Split_type(mpi.COMM_TYPE_SHARED).Get_size()
    if world.Get_size() == 1:
        raise PeError("--launcher mpi: this process is alone", hint="mpiexec -n 4 pe sweep CONFIG --launcher mpi")
    sweep: Sweep | None = None
    error: PeError | None = None
    if world.Get_rank() == 0:
        try:
            sweep = begin()
            _check_sharing(sweep.folder)
        except PeError as failure:
            error = failure
    # As text: mpi4py's lower-case calls pickle.
    # text, and no Python objects: those would be unpickled
    said = json.loads(_told(world, json.dumps({"folder": sweep and str(sweep.folder.absolute()), "code": error and error.code})))
    if error is None and said["code"] is None:
        yield Joined(sweep or read_sweep(Path(said["folder"])), world.Get_rank() == 0, shared)
        # All come here, also those that found nothing to train: MPI ends for all at once.
        world.Barrier()
    mpi.Finalize()
    if error is not None:
        raise error
    if said["code"] is not None:
        raise PeError("the first process could not begin the sweep", code=ExitCode(said["code"]))


def _told(world: Any, text: str) -> str:
    """Return the text of the first process."""
    import numpy as np

    size = np.array([len(text.encode())], np.int64)
    # The size first, so that every process has room for the text.
    world.Bcast(size, 0)
    room = np.zeros(int(size[0]), np.uint8)
    if world.Get_rank() == 0:
        room[:] = np.frombuffer(text.encode(), np.uint8)
    world.Bcast(room, 0)
    return room.tobytes().decode()


# --- Slurm ------------------------------------------------------------------------------------------------------------


def _of_job(run: RunSpec, begin: Callable[[], Sweep]) -> Sweep:
    """Return the sweep of this job: the task that comes first begins it, the others find it in `output.dir`.

    Raises:
        PeError: USAGE, there is no job of Slurm's around this process, or another config has become of the sweep's.
    """
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if not job:
        hint = "sbatch --array=0-7 --wrap 'pe sweep CONFIG --launcher slurm'"
        raise PeError("--launcher slurm: neither SLURM_ARRAY_JOB_ID nor SLURM_JOB_ID is set", hint=hint)
    parent = Path(run.output.dir)
    atomic.make_folder(parent)
    # Tasks of a job meet in the folder of runs: the first makes the sweep, the others find it by the job's number.
    with _alone(parent):
        for path in parent.glob(f"sweep-{glob.escape(run.name)}-*/{RECORD}"):
            if read_sweep(path.parent).asked.get(_JOB) == job:
                return _opened(run, path.parent)
        made = begin()
        made.asked = {**made.asked, _JOB: job}
        made.write()
        return made


def _opened(run: RunSpec, folder: Path) -> Sweep:
    """Return the sweep that another task of the job has begun.

    Raises:
        PeError: USAGE; the config says something else now.
    """
    try:
        found = open_sweep(run, folder)
    except PeError as error:
        hint = "write the config as it was when the job began; for another sweep in the same job, give it another output.name"
        raise PeError(error.message, hint=hint, code=error.code) from None
    assert found is not None
    return found


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep the other tasks of a job out of a folder for a moment.

    Raises:
        PeError: DEVICE; another process does not let go of it.
    """
    with contextlib.ExitStack() as stack:
        # Bounded, because a lock that nobody gives back is told as what it is.
        for left in reversed(range(_TRIES)):
            try:
                stack.enter_context(lock.held(folder))
                break
            except BlockingIOError:
                if not left:
                    raise PeError(f"{folder}: another process keeps it locked", hint="stop that process", code=ExitCode.DEVICE) from None
                time.sleep(_PAUSE)
        yield


def _check_sharing(folder: Path) -> None:
    """Refuse to share a sweep on a file system that cannot lock: a trial would be trained twice.

    Raises:
        PeError: USAGE; it cannot.
    """
    if not can_share(folder):
        raise PeError(f"{folder}: its file system cannot lock, and --launcher needs that", hint="put output.dir on another file system")
