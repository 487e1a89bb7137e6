"""Outputs of training beside checkpoints: metrics and fetched values, which resuming cuts back to the checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pe_cli.config.sections.fetch import FetchSection
from pe_cli.core.errors import PeError
from pe_cli.io import append_files, fetches
from pe_cli.io.run_folder import RunFolder

#: Key of metrics.jsonl among the recorded file positions; the other keys are files in the folder of fetches.
METRICS = "metrics.jsonl"


class Outputs:
    """The growing files of a run.

    Args:
        folder: the run's.
        sections: of the fetches that are written to files, by name.

    Raises:
        PeError: two fetches go to one file.
    """

    def __init__(self, folder: RunFolder, sections: Mapping[str, FetchSection]) -> None:
        self._folder = folder
        self._files = files_of(sections)
        self._writers: dict[str, fetches.FetchWriter] = {}

    def restore(self, positions: Mapping[str, Mapping[str, int]]) -> list[str]:
        """Cut every file back to where it was at a checkpoint, and return sentences on what is missing.

        Args:
            positions: of `positions`.

        Raises:
            PeError: USAGE or DEVICE, a file can't be written; DATA, it is damaged.
        """
        said = []
        # Files go back to where the checkpoint knows them: steps after it are done again, and would be there twice.
        metrics = positions.get(METRICS, {}).get("bytes", 0)
        if not append_files.cut(self._folder.metrics_path, metrics):
            said.append(
                f"{self._folder.metrics_path}: shorter than it was at the checkpoint: earlier lines are missing"
            )
        # Files of fetches that are no longer asked for are cut as well, or would hold values of steps that are gone.
        for file in sorted({*self._files.values(), *positions} - {METRICS}):
            path = self._folder.fetches / Path(file).name
            said.append(fetches.cut(path, positions.get(file)))
        # Opened now, so that a file that cannot be written is known before the first step.
        for name, file in self._files.items():
            if file in positions:
                self._writer(name)
        return [sentence for sentence in said if sentence]

    def metric(self, values: Mapping[str, object]) -> None:
        """Add a line of metrics.

        Raises:
            PeError: the file can't be written.
        """
        self._folder.metric(values)

    def fetch(self, name: str, step: int, value: np.ndarray) -> None:
        """Add a fetched value.

        Raises:
            PeError: USAGE, it does not fit the file; DEVICE, the disk is full or failed.
        """
        self._writer(name).write(step, {name: value})

    def _writer(self, name: str) -> fetches.FetchWriter:
        if name not in self._writers:
            self._writers[name] = fetches.open_writer(self._folder.fetches / self._files[name], append=True)
        return self._writers[name]

    def positions(self) -> dict[str, dict[str, int]]:
        """Return where every file ends now."""
        found = {METRICS: {"bytes": append_files.length(self._folder.metrics_path)}}
        return found | {self._files[name]: writer.position() for name, writer in self._writers.items()}

    def paths(self) -> list[Path]:
        """Return the files that a checkpoint counts on."""
        return [self._folder.metrics_path, *(writer.growing for writer in self._writers.values())]

    def close(self) -> None:
        """Finish all files.

        Raises:
            PeError: DEVICE, the disk is full or failed.
        """
        for writer in self._writers.values():
            writer.close()

    def abandon(self) -> None:
        """Finish all files as far as that goes: another error is on its way."""
        for writer in self._writers.values():
            # All are tried: one that fails must not keep the others from being closed.
            with contextlib.suppress(PeError):
                writer.close()


def files_of(sections: Mapping[str, FetchSection]) -> dict[str, str]:
    """Return the file of every fetch.

    Raises:
        PeError: two go to one.
    """
    found: dict[str, str] = {}
    owner: dict[str, str] = {}
    # Names of variables have characters that names of files may not have.
    for name, section in sections.items():
        file = Path(section.to or f"{name.replace('/', '.').replace('@', '.')}.npz").name
        if file in owner:
            raise PeError(
                f"the fetches '{owner[file]}' and '{name}' go to one file, {file}",
                at=section.at_of("to"),
                hint="give each its own",
            )
        found[name], owner[file] = file, name
    return found
