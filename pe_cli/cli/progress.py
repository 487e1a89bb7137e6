"""Shows the progress of a session: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from typing import Any

from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import shown as shown_text
from pe_cli.session.observer import Observer, Row, Start
from pe_cli.session.training.epoch_lines import Table, headline

#: Seconds between two updates of a bar.
REDRAW = 0.1
#: Seconds between two lines about compilation.
COMPILE_LINES = 2.0


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
        # Kernels are compiled in several threads, which all report here.
        with self._lock:
            self.compiled += 1

    def note(self, text: str) -> None:
        """Print a note."""
        if self.notes:
            echo(f"note: {text}", err=True)

    def close(self) -> None:
        """Leave the terminal as it was."""


class Lines(Quiet):
    """Plain lines: what starts, a line per epoch, and now and then what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0.0
        self._rows: Table | None = None

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
        self._rows = Table(start)

    def row(self, row: Row) -> None:
        """Print the line of an epoch."""
        if self._rows is not None:
            echo("\n".join(self._rows.lines(row)))


class Bar(Quiet):
    """A bar of rich's with the epoch, steps, elapsed and left; below it the newest loss and samples a second."""

    def __init__(self) -> None:
        from rich.console import Console

        from pe_cli.cli.progress_bar import bar

        super().__init__()
        self._console = Console(stderr=True)
        self._bar = bar(self._console)
        self._task: Any = None
        self._compile: Any = None
        self._drawn = 0.0
        self._rows: Table | None = None
        self._epochs = ""
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
        self._say(headline(start))
        self._rows = Table(start, self._console.width, speed=False)
        self._epochs = f"/{start.epochs}" if start.epochs else ""
        self._task = self._bar.add_task("training", total=start.steps, completed=start.done, facts="")

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Move the bar, a few times a second at most."""
        now = time.perf_counter()
        self._compiled()
        # The first step compiles and plans: it would spoil the speed of all that follow.
        if step <= 1:
            self._begin, self._samples = now, 0
        else:
            self._samples += samples
        if now - self._drawn < REDRAW:
            return
        self._drawn = now
        speed = f"  {self._samples / (now - self._begin):,.0f} samples/s" if self._samples else ""
        self._bar.update(self._task, completed=step, description=f"epoch {epoch + 1}{self._epochs}", facts=f"loss {loss:.4g}{speed}")

    def epoch_ended(self, step: int, epoch: int) -> None:
        """Move the bar to where the epoch ended."""
        self._bar.update(self._task, completed=step, description=f"epoch {epoch}{self._epochs}")

    def row(self, row: Row) -> None:
        """Print the line of an epoch above the bar."""
        if self._rows is not None:
            self._say("\n".join(self._rows.lines(row)))

    def note(self, text: str) -> None:
        """Print a note above the bar."""
        self._say(f"note: {text}")

    # Names in it come from files; rich would read their brackets as markup.
    def _say(self, text: str) -> None:
        self._bar.console.print(shown_text(text), markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def watch(*, quiet: bool = False) -> Quiet:
    """Return a bar on a terminal, plain lines elsewhere, and with quiet neither."""
    import sys

    if quiet:
        return Quiet(notes=False)
    return Bar() if sys.stderr.isatty() and sys.stdout.isatty() else Lines()
