"""The lines of training progress: one per epoch, in aligned columns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pe_cli.session.observer import NORM, Observer, Observers, Row, Start

#: Seconds between two lines within an epoch: so many at least, and a part of the time that has gone.
WITHIN, PART = 5.0, 0.1
#: Lines that are not held back, and seconds between two lines after that many: epochs may be faster than anyone reads.
FREE, WAIT = 50, 0.3
#: Letters of a number at most, and between two columns.
LETTERS, GAP = 8, 2


class EpochLines(Observers):
    """Gathers what is recorded into a row per epoch, and passes everything on to its members.

    Evaluations within an epoch have a row each; what is recorded of training within an epoch has one now and then.
    """

    def __init__(self, members: Sequence[Observer]) -> None:
        super().__init__(members)
        self._held: dict[str, float] = {}
        self._back = False
        self._step = self._epoch = self._count = self._samples = 0
        self._start = self._told = self._begin = time.perf_counter()

    def started(self, start: Start) -> None:
        """Pass on, and begin."""
        self._start = self._told = self._begin = time.perf_counter()
        super().started(start)

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Pass on; what was recorded before this step, within the epoch, may be due."""
        # A line that was held back at the end of an epoch is not written later, inside of the next one.
        if self._held and not self._back:
            now = time.perf_counter()
            # An evaluation is written at once, because whoever waits for it waits long.
            evaluated = any(not name.startswith("train/") for name in self._held)
            if evaluated or now - self._told >= max(WITHIN, PART * (now - self._start)):
                self._tell()
        self._epoch = epoch + 1
        if step <= 1:
            self._begin, self._samples = time.perf_counter(), 0  # the first step compiles
        else:
            self._samples += samples
        super().stepped(step, epoch, loss, samples)

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Pass on, and hold for the next row."""
        self._held |= {name: value for name, value in values.items() if f"/{NORM}" not in name}
        self._step = step
        super().recorded(step, epoch, values)

    def epoch_ended(self, step: int, epoch: int) -> None:
        """Pass on; a row is due."""
        self._step, self._epoch = step, epoch
        self._back = self._count >= FREE and time.perf_counter() - self._told < WAIT
        if self._held and not self._back:
            self._tell()
        super().epoch_ended(step, epoch)

    def ended(self, state: str) -> None:
        """Pass on; what is held has a row."""
        if self._held:
            self._tell()
        super().ended(state)

    def _tell(self) -> None:
        now = time.perf_counter()
        speed = self._samples / (now - self._begin) if self._samples and now > self._begin else None
        values, self._held = self._held, {}
        self._told, self._count = now, self._count + 1
        self.row(Row(self._step, self._epoch, values, speed))


class Table:
    """Writes rows as lines under a head, each number in its column.

    Args:
        start: what runs, with the metrics that it will record.
        width: letters of a line at most; what does not fit stands in a line of its own below, each number with its name.
        speed: whether samples a second are a column.
    """

    def __init__(self, start: Start, width: int | None = None, *, speed: bool = True) -> None:
        self._start, self._width, self._speed = start, width, speed
        self._names = [name for name in start.metrics if f"/{NORM}" not in name]
        self._headed = False
        epochs = str(start.epochs or "")
        self._epoch = max(5, 2 * len(epochs) + 1)
        self._step = max(4, len(str(start.steps or 0)))

    def lines(self, row: Row) -> list[str]:
        """Return a row, below a head where it is the first or has a metric that no row had."""
        new = [name for name in row.values if name not in self._names]
        if new:
            train = [name for name in new if name.startswith("train/")]
            first = sum(name.startswith("train/") for name in self._names)
            # Metrics of training stand before those of evaluations, also where one comes later.
            self._names[first:first] = train
            self._names += [name for name in new if name not in train]
        inside, below = self._split()
        made = [] if self._headed and not new else self._head(inside)
        self._headed = True
        shown = {name: number(value) for name, value in row.values.items()}
        if self._speed:
            shown["samples/s"] = f"{row.speed:,.0f}" if row.speed is not None else "-"
        made.append(self._line(self._epoch_of(row.epoch), str(row.step), [shown.get(n, "-").rjust(_width(n)) for n in inside]))
        made += self._below(below, shown)
        return made

    def _epoch_of(self, epoch: int) -> str:
        return f"{epoch}/{self._start.epochs}" if self._start.epochs else str(epoch)

    def _line(self, epoch: str, step: str, cells: Sequence[str]) -> str:
        return (" " * GAP).join([epoch.rjust(self._epoch), step.rjust(self._step), *cells]).rstrip()

    def _split(self) -> tuple[list[str], list[str]]:
        """Return the columns that a line has room for, and those below."""
        names = [*self._names, *(["samples/s"] if self._speed else [])]
        if self._width is None:
            return names, []
        room = self._width - self._epoch - self._step - GAP
        for i, name in enumerate(names):
            room -= _width(name) + GAP
            if room < 0:
                return names[:i], names[i:]
        return names, []

    def _below(self, names: Sequence[str], shown: Mapping[str, str]) -> list[str]:
        """Return what has no column, as lines of names and numbers, each in its place."""
        made, line = [], ""
        for name in names:
            cell = f"{name} {shown.get(name, '-').ljust(LETTERS)}"
            indent = " " * (self._epoch + self._step + GAP)
            if line and self._width is not None and len(line) + GAP + len(cell.rstrip()) > self._width:
                made.append(line.rstrip())
                line = ""
            line = f"{line or indent}{' ' * GAP}{cell}"
        return [*made, line.rstrip()] if line else made

    def _head(self, names: Sequence[str]) -> list[str]:
        """Return the head in two lines: what a metric is of, over the first of its columns, and its name."""
        above: list[str] = []
        before = ""
        # The split stands above its first column only.
        for name in names:
            of = name.partition("/")[0] if name != "samples/s" else ""
            width = _width(name)
            above.append((of if of != before else "").rjust(width))
            before = of
        return [self._line("", "", above), self._line("epoch", "step", [_label(name).rjust(_width(name)) for name in names])]


def _label(name: str) -> str:
    return name if name == "samples/s" else name.partition("/")[2]


def _width(name: str) -> int:
    return max(LETTERS, len(_label(name)))


def number(value: float) -> str:
    """Return a number with at most LETTERS letters.

    >>> number(0.582463), number(-0.000012345), number(1234567.0), number(float("nan")), number(2.5)
    ('0.5825', '-1.2e-05', '1.23e+06', 'nan', '2.5')
    """
    # As many digits as fit into a column.
    for digits in (4, 3, 2, 1):
        text = f"{value:.{digits}g}"
        if len(text) <= LETTERS:
            break
    return text


def text_of(values: Mapping[str, float]) -> str:
    """Return metrics in a line, without the gradients of single parameters."""
    return "  ".join(f"{name} {value:.5g}" for name, value in values.items() if f"/{NORM}" not in name)


def headline(start: Start) -> str:
    """Return a line on what starts."""
    length = f"{start.epochs} epoch{'s' * (start.epochs != 1)}" if start.epochs else ""
    steps = f"{start.steps} steps" if start.steps else ""
    extent = ", ".join(part for part in (length, steps) if part)
    return f"{start.model}: {start.parameters:,} parameters, {extent}, on {start.devices}, into {start.folder}"
