"""Records beside metrics.jsonl: the log, metrics as tables and TensorBoard events, and throughput."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pe_cli.config.sections.output import OutputSection
from pe_cli.io import append_files, strict_json
from pe_cli.io.metric_files import CsvTable, EventFile, require_tensorboard
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.observer import Observer, Row, Start
from pe_cli.session.training.epoch_lines import Table, headline

#: Seconds between two lines of speed.jsonl: so many at least, and a part of the time that has gone, so that a long run leaves few.
MIN_WAIT = 0.1
PART = 0.005


class Recorder(Observer):
    """Keeps the files of one run up to date.

    Args:
        output: what the config asks for.
        names: of the metrics that will be recorded.

    Raises:
        PeError: TensorBoard events are asked for, and their library is not installed.
    """

    def __init__(self, output: OutputSection, names: Sequence[str]) -> None:
        self.output = output
        self.names = list(dict.fromkeys(names))
        if "tensorboard" in output.log:
            require_tensorboard(output.at_of("log"))
        self._table: CsvTable | None = None
        self._events: EventFile | None = None
        self._speed: Path | None = None
        self._samples = self._step = self._epoch = self._written = 0
        self._due = self._seconds = 0.0

    def started(self, start: Start) -> None:
        """Open the files; a run that goes on keeps what was recorded before."""
        folder = RunFolder(Path(start.folder))
        self._speed = folder.speed_path
        if "csv" in self.output.log:
            self._table = CsvTable(folder.csv_path, self.names, folder.metrics())
        if "tensorboard" in self.output.log:
            self._events = EventFile(folder.tensorboard)
        self._log, self._rows = folder.log, Table(start)
        self._log(headline(start))
        self._begin = time.perf_counter()

    def row(self, row: Row) -> None:
        """Write the line of an epoch into the log."""
        self._log("\n".join(self._rows.lines(row)))

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Count, and now and then write how far it is."""
        del loss
        self._step, self._epoch = step, epoch
        self._samples += samples
        # Seconds of training since the start, so that a pause of the machine between two runs is none.
        now = self._seconds = time.perf_counter() - self._begin
        if now >= self._due:
            # Less often the longer a run is, so that a run of days leaves thousands of lines and not millions.
            self._due = now + max(MIN_WAIT, PART * now)
            self._tell(now)

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Write metrics of one split."""
        if self._table:
            self._table.add(step, epoch, values)
        if self._events:
            self._events.add(step, values)

    def ended(self, state: str) -> None:
        """Close the files."""
        del state
        if self._speed and self._step != self._written:
            self._tell(self._seconds)  # what came after the last step is no training
        if self._events:
            self._events.close()

    def _tell(self, seconds: float) -> None:
        assert self._speed is not None
        self._written = self._step
        line = {"step": self._step, "epoch": self._epoch, "samples": self._samples, "seconds": round(seconds, 4)}
        append_files.append_line(self._speed, strict_json.dumps(line))
