"""What a terminal shows while a session runs: a bar that lives, or plain lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from pe_cli.cli.say import echo
from pe_cli.core.errors import shown as shown_text
from pe_cli.session.observer import NORM, Observer, Start

#: Seconds between two updates of a bar.
REDRAW = 0.1
#: Seconds between two lines about compilation, and between two about metrics.
COMPILE_LINES = 2.0
METRIC_LINES = 0.3
#: Lines about evaluation that are not held back.
EVALUATIONS = 50


class Pace:
    """Holds metrics back that come faster than anyone reads: those of training, and after many lines those of evaluation, too."""

    def __init__(self) -> None:
        self._held: dict[str, float] = {}
        self._told, self._evaluations = 0.0, 0

    def due(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return what to show now, the newest of what was held back with it; empty for nothing."""
        now = time.perf_counter()
        self._held |= values
        training = all(name.startswith("train/") for name in values)
        if now - self._told < METRIC_LINES and (training or self._evaluations >= EVALUATIONS):
            return {}
        self._evaluations += not training
        self._told = now
        held, self._held = self._held, {}
        return held


class Quiet(Observer):
    """Shows nothing but notes, on standard error; counts kernels that were compiled.

    Args:
        notes: whether to show notes.
    """

    def __init__(self, *, notes: bool = True) -> None:
        self.notes = notes
        self.compiled = 0
        self._lock = threading.Lock()

    def compiling(self, done: int, total: int, name: str) -> None:
        """Count; called from compile workers too."""
        del done, total, name
        with self._lock:
            self.compiled += 1

    def note(self, text: str) -> None:
        """Print a note."""
        if self.notes:
            echo(f"note: {text}", err=True)

    def close(self) -> None:
        """Leave the terminal as it was."""


class Lines(Quiet):
    """Plain lines: what starts, every recorded metric, and now and then what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0.0
        self._pace = Pace()
        self._begin = time.perf_counter()
        self._samples = 0
        self._steps: int | None = None

    def compiling(self, done: int, total: int, name: str) -> None:
        """Print a line, at most one every few seconds."""
        super().compiling(done, total, name)
        now = time.perf_counter()
        if now - self._said >= COMPILE_LINES:
            self._said = now
            echo(f"compiling kernel {done + 1} of {total}: {name.split(':')[-1]}")

    def started(self, start: Start) -> None:
        """Print what starts."""
        echo(headline(start))
        self._steps = start.steps
        self._begin, self._samples = time.perf_counter(), 0

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Count samples; the first step is left out, because it compiles."""
        del epoch, loss
        if step <= 1:
            self._begin, self._samples = time.perf_counter(), 0
        else:
            self._samples += samples

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Print the metrics in a line."""
        if shown := self._pace.due(values):
            of = f"/{self._steps}" if self._steps else ""
            echo(f"step {step}{of} epoch {epoch}  {text_of(shown)}{self._speed()}")

    def _speed(self) -> str:
        seconds = time.perf_counter() - self._begin
        return f"  {self._samples / seconds:,.0f} samples/s" if self._samples and seconds > 0 else ""


class Bar(Quiet):
    """A bar of rich's with loss, metrics, samples a second and the time that is left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        super().__init__()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: Any = None
        self._compile: Any = None
        self._drawn = 0.0
        self._pace = Pace()
        self._metrics: dict[str, float] = {}
        self._begin = time.perf_counter()
        self._samples = 0
        self._bar.start()

    def compiling(self, done: int, total: int, name: str) -> None:
        """Show which kernel is compiled, in a line of its own."""
        super().compiling(done, total, name)
        if self._compile is None:
            self._compile = self._bar.add_task("compiling", total=total, facts="")
        self._bar.update(self._compile, completed=done, total=total, facts=name.split(":")[-1])

    def _compiled(self) -> None:
        """Take the line about compilation away."""
        if self._compile is not None:
            self._bar.remove_task(self._compile)
            self._compile = None

    def started(self, start: Start) -> None:
        """Print what starts above the bar."""
        self._compiled()
        self._bar.console.print(shown_text(headline(start)), markup=False, highlight=False)
        self._task = self._bar.add_task("training", total=start.steps, completed=start.done, facts="")

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Move the bar, a few times a second at most."""
        now = time.perf_counter()
        self._compiled()
        if step <= 1:
            self._begin, self._samples = now, 0
        else:
            self._samples += samples
        if now - self._drawn < REDRAW:
            return
        self._drawn = now
        speed = f"{self._samples / (now - self._begin):,.0f} samples/s" if self._samples else ""
        facts = f"loss {loss:.4g}  {text_of(self._metrics)}  {speed}".strip()
        self._bar.update(self._task, completed=step, description=f"epoch {epoch}", facts=facts)

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Print the metrics above the bar, and keep those of evaluation in it."""
        self._metrics |= {name: value for name, value in values.items() if name.startswith("eval/")}
        if shown := self._pace.due(values):
            self._bar.console.print(shown_text(f"step {step} epoch {epoch}  {text_of(shown)}"), markup=False, highlight=False)

    def note(self, text: str) -> None:
        """Print a note above the bar."""
        self._bar.console.print(shown_text(f"note: {text}"), markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def watch(*, quiet: bool = False) -> Quiet:
    """Return a bar on a terminal, plain lines elsewhere, and with quiet neither."""
    import sys

    if quiet:
        return Quiet(notes=False)
    return Bar() if sys.stderr.isatty() and sys.stdout.isatty() else Lines()


def headline(start: Start) -> str:
    """Return a line on what starts."""
    length = f"{start.epochs} epoch{'s' * (start.epochs != 1)}" if start.epochs else ""
    steps = f"{start.steps} steps" if start.steps else ""
    extent = ", ".join(part for part in (length, steps) if part)
    return f"{start.model}: {start.parameters:,} parameters, {extent}, on {start.devices}, into {start.folder}"


def text_of(values: Mapping[str, float]) -> str:
    """Return metrics in a line, without the gradients of single parameters."""
    return "  ".join(f"{name} {value:.5g}" for name, value in values.items() if f"/{NORM}" not in name)
