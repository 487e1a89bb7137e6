"""The silent counterpart of `RunWriter` for processes other than the first: it keeps the same counts and writes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from pe_cli.collectives.protocol import PeerError
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.run_folder import RunFolder, State
from pe_cli.session.job import Job
from pe_cli.session.observer import Observer
from pe_cli.session.training.averages import Averages
from pe_cli.session.training.checkpoint_writer import kept
from pe_cli.session.training.resume import Resume, read
from pe_cli.session.training.run_writer import RunWriter, begun
from pe_cli.session.training.state import Progress


class _NoOutputs:
    """Files of the first process."""

    def fetch(self, name: str, step: int, value: np.ndarray) -> None:
        """The first process writes it."""


class SilentRunWriter(RunWriter):
    """Keeps the counts of `RunWriter` that the loop asks for, and writes nothing; arguments as there."""

    def __init__(self, job: Job, folder: RunFolder | None, fetched: Collection[str], observer: Observer) -> None:
        del fetched
        assert folder is None, "the first process tells it"
        self._job, self._run, self._observer = job, job.run, observer
        self._section = self._run.output.checkpoint
        self.folder = RunFolder(Path(self._run.output.dir))
        self.at, self.averages = Progress(), Averages()
        self.outputs = _NoOutputs()  # type: ignore[assignment]
        self._measures = self._measuring()
        self._saved: tuple[int, int, int, bool] | None = None

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """The first process holds it."""
        return contextlib.nullcontext()

    def open(self, resume: Resume | None) -> None:
        """Begin where the first process begins.

        Raises:
            PeError: DATA, its checkpoint cannot be read here.
        """
        del resume
        told = self._job.group.texts({})[0]
        self.folder = RunFolder(Path(str(told["folder"])))
        if told["step"] is not None:
            # Hashing again would read the whole file a second time on each machine.
            found = read(self.folder, int(told["step"]), check=False)  # the first process has compared them
            self._job.release(found.progress.released, kept=False)
            self._job.values.restore(found.arrays, partial=bool(told["partial"]))
            self.at, self.averages = found.progress, found.averages
            # In step with the first process: all must agree on what was saved.
            self._saved = self._now()
        begun(self._job, self.folder)

    def close(self, state: State) -> None:
        """Nothing is open."""

    def abandon(self, why: BaseException) -> None:
        """Say in the status why a process was lost, where the first one has not: it may be the one that is lost."""
        # The first process may be the one that is gone: somebody has to write how it ended.
        if isinstance(why, PeerError) and why.code == ExitCode.PEER_LOST and self.folder.status_path.is_file():
            with contextlib.suppress(PeError):
                if self.folder.read_status().get("state") == "running":
                    self.folder.status(state="failed", error=why.message)

    def log(self, text: str) -> None:
        """The first process writes it."""

    def tell(self, text: str) -> None:
        """The first process says it."""

    def write(self, use: str, values: Mapping[str, float]) -> None:
        """The first process writes them."""

    def check(self) -> None:
        """Nothing is being written."""

    def newest(self) -> str:
        """Return a clause on the newest checkpoint."""
        return kept(self.folder.checkpoints)

    def save(self, best: bool = False) -> None:
        """Give the first process what it has not: this process's own copies of variables; what all write at once this one writes, too."""
        if self._is_new(best):
            self._job.values.save(self.folder.checkpoints)
