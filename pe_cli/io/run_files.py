"""The files of a run's folder by name, and what folder is that of a run."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from pe_cli.core.lazy_dataclass import dataclass

#: Folder of all checkpoints of a run.
CHECKPOINTS = "checkpoints"


def is_run(path: Path) -> bool:
    """Return whether a folder is that of a run: it has a status file, damaged or not, or the config and the folder of checkpoints."""
    return (path / "status.json").is_file() or ((path / "resolved.yaml").is_file() and (path / CHECKPOINTS).is_dir())


@dataclass(frozen=True)
class RunFiles:
    """The places of a run's files; every file has its property here, which is made once: a run asks for some of them with every step.

    Args:
        path: the folder.
    """

    path: Path

    @cached_property
    def config_path(self) -> Path:
        """The run file as the user wrote it."""
        return self.path / "config.yaml"

    @cached_property
    def resolved_path(self) -> Path:
        """The run file with everything filled in."""
        return self.path / "resolved.yaml"

    @cached_property
    def model_path(self) -> Path:
        """The model file as it was read."""
        return self.path / "model.yaml"

    @cached_property
    def env_path(self) -> Path:
        """Versions and hardware."""
        return self.path / "env.json"

    @cached_property
    def metrics_path(self) -> Path:
        """Scalars, one JSON object per line."""
        return self.path / "metrics.jsonl"

    @cached_property
    def csv_path(self) -> Path:
        """Scalars as a table, where the run file asks for it."""
        return self.path / "metrics.csv"

    @cached_property
    def speed_path(self) -> Path:
        """Steps, samples and seconds so far, one JSON object per line."""
        return self.path / "speed.jsonl"

    @cached_property
    def tensorboard(self) -> Path:
        """Folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @cached_property
    def fetches(self) -> Path:
        """Folder of fetched values."""
        return self.path / "fetches"

    @cached_property
    def graphs(self) -> Path:
        """Folder of graph dumps."""
        return self.path / "graphs"

    @cached_property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / CHECKPOINTS

    @cached_property
    def trace_path(self) -> Path:
        """The timeline of a profiled run."""
        return self.path / "trace.json"

    @cached_property
    def log_path(self) -> Path:
        """What was said, each line with its time."""
        return self.path / "log.txt"

    @cached_property
    def status_path(self) -> Path:
        """How far the run is."""
        return self.path / "status.json"
