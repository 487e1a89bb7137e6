"""Metrics in other programs' formats: a CSV table, and event files for TensorBoard."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pe_cli.core.errors import PeError, Span
from pe_cli.io import append_files, atomic

#: Columns before the metrics'.
KEYS = ("step", "epoch", "split")


class CsvTable:
    """A table with one line a record; cells of metrics that it does not have are empty.

    Args:
        path: of the file, which is made anew.
        names: of the metrics, in the order of the columns.
        before: records that are there already, as in metrics.jsonl.

    Raises:
        PeError: the file can't be written.
    """

    def __init__(self, path: Path, names: Sequence[str], before: Iterable[Mapping[str, object]] = ()) -> None:
        self.path = path
        self.columns = (*KEYS, *names)
        atomic.write_text(path, "\n".join([_line(self.columns), *map(self._row, before)]) + "\n", sync=False)

    def add(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Add the metrics of one split, called `train/loss` and so on.

        Raises:
            PeError: the file can't be written.
        """
        split = next(iter(values)).partition("/")[0]
        row = {"step": step, "epoch": epoch, "split": split}
        append_files.append_line(self.path, self._row({**row, **{name.partition("/")[2]: v for name, v in values.items()}}))

    def _row(self, record: Mapping[str, object]) -> str:
        return _line([record.get(column, "") for column in self.columns])


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def require_tensorboard(at: Span | None) -> None:
    """Check that the library for event files is there.

    Raises:
        PeError: it is not.
    """
    try:
        import tensorboardX  # noqa: F401
    except ImportError as error:
        hint = "pip install 'pe-cli[tensorboard]', or leave it out; metrics.jsonl is written anyway"
        raise PeError(f"output.log: tensorboard needs the package tensorboardX: {error}", at=at, hint=hint) from None


class EventFile:
    """An event file with scalars, as TensorBoard reads it.

    Args:
        folder: made where missing; each event file gets a new name in it, without the machine's.

    Source:
        tensorflow's event.proto and its record format, as tensorboardX writes them.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboardX.proto import event_pb2, summary_pb2
        from tensorboardX.record_writer import RecordWriter

        atomic.make_folder(folder)
        self._make: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self.path = folder / f"events.out.tfevents.{time.time_ns() // 1000:016}.pe"
        self._file: Any = RecordWriter(str(self.path))
        self._write(self._make(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add scalars of a step.

        Raises:
            PeError: the file can't be written.
        """
        listed = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(self._make(wall_time=time.time(), step=step, summary=self._summary(value=listed)))

    def _write(self, event: Any) -> None:
        try:
            self._file.write(event.SerializeToString())
            self._file.flush()
        except OSError as error:
            raise atomic.write_error(error, self.path) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
