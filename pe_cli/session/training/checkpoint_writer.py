"""Writes checkpoints in a thread, so that no step waits for the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.threads import Work
from pe_cli.io import atomic, checkpoint
from pe_cli.io.table_pieces import Pieces


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint that is to be written.

    Args:
        step: steps done.
        arrays: copies that nobody changes any more.
        meta: what is kept beside them.
        best: whether it is the best so far.
        files: outputs that it counts on; they are flushed to the disk before it appears.
        beside: name -> content of files that are kept beside the arrays.
        pieces: tables that servers have written already.
    """

    step: int
    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, object]
    best: bool
    files: Sequence[Path]
    beside: Mapping[str, bytes] = field(default_factory=dict)
    pieces: Pieces | None = None


class CheckpointWriter:
    """Writes one checkpoint at a time; what goes wrong is raised by the next call.

    Args:
        root: folder of the checkpoints.
        keep: newest ones that are kept.
        parameters: arrays that must be finite, because training cannot go on from others, with their places in the model file.
    """

    def __init__(self, root: Path, keep: int, parameters: Mapping[str, Span | None]) -> None:
        self._root, self._keep, self._parameters = root, keep, parameters
        self._work: Work | None = None
        self._failure: BaseException | None = None

    def save(self, snapshot: Snapshot) -> None:
        """Begin to write; waits for the write before, so that there are never more than two copies in memory.

        Raises:
            PeError: the write before failed.
        """
        # One write at a time: the next snapshot waits, or two would be in memory besides the model.
        self.wait()
        self._work = Work(partial(self._run, snapshot), f"checkpoint of step {snapshot.step}")

    def check(self) -> None:
        """Raise what went wrong in a write that is over.

        Raises:
            PeError: USAGE or DEVICE, it could not be written; DIVERGED, a parameter is not finite.
        """
        # Only asked, not waited for: steps go on while the disk writes.
        if self._work is not None and self._work.over:
            self.wait()

    def wait(self) -> None:
        """Wait for the end of the write.

        Raises:
            PeError: as for `check`.
        """
        if self._work is not None:
            self._work.wait()
            # Let go of, with the snapshot that it holds.
            self._work = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self, snapshot: Snapshot) -> None:
        try:
            self._write(snapshot)
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the training thread
            self._failure = error

    def _write(self, snapshot: Snapshot) -> None:
        # a checkpoint with NaN would replace a good one as `last`, and every resume would fail
        for name, at in self._parameters.items():
            if not _is_finite(snapshot, name):
                raise _diverged(name, at, snapshot.step, self._root)
        # Each folder is flushed once, however many files it has.
        folders: set[Path] = set()
        for file in snapshot.files:
            try:
                atomic.sync_file(file)
                if file.parent not in folders:  # the names of files, too
                    atomic.sync_folder(file.parent)
                    folders.add(file.parent)
            except FileNotFoundError:
                continue  # nothing was written to it yet
            except OSError as error:
                raise atomic.write_error(error, file) from None
        # the checkpoint counts on the outputs above, so it appears after they are safe; marks move once it is whole; old ones go last
        checkpoint.write(self._root, snapshot.step, snapshot.arrays, snapshot.meta, None, snapshot.beside, snapshot.pieces)
        checkpoint.mark(self._root, "last", snapshot.step)
        if snapshot.best:
            checkpoint.mark(self._root, "best", snapshot.step)
        checkpoint.prune(self._root, self._keep)


def _is_finite(snapshot: Snapshot, name: str) -> bool:
    # A server has looked at its rows itself; they are on no other machine.
    if snapshot.pieces and name in snapshot.pieces.tensors:
        return name not in snapshot.pieces.bad
    return bool(np.isfinite(snapshot.arrays[name]).all())


def _diverged(name: str, at: Span | None, step: int, root: Path) -> PeError:
    return PeError(
        f"the parameter '{name}' is not finite after step {step}",
        at=at,
        hint=f"lower the learning rate or clip gradients; {kept(root)}",
        code=ExitCode.DIVERGED,
    )


def kept(root: Path) -> str:
    """Return a clause on the newest checkpoint in a folder."""
    found = checkpoint.steps(root)
    if not found:
        return "there is no checkpoint yet"
    return (
        f"the last checkpoint is {root}/step-{found[-1]}; "
        f"pe train --resume {root.parent} -o executor.check_nan_inf=true goes on from it and names the op where it begins"
    )
