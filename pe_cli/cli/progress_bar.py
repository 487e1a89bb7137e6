"""The bar of a terminal: a line with the epoch, steps and times, and a line with the newest numbers, for 70 columns and more."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text


class Times(ProgressColumn):
    """How long it has taken, and how long it may still take."""

    def render(self, task: Task) -> Text:
        """Return both, named."""
        return Text(f"elapsed {clock(task.elapsed)}  left {clock(task.time_remaining)}", style="progress.elapsed")


class TwoLines(Progress):
    """A bar with a line of facts below."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bars, then what is told of each."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if facts := task.fields["facts"]:
                yield Text(f"  {facts}", no_wrap=True, overflow="ellipsis")


def bar(console: Console) -> Progress:
    """Return a bar that is as wide as the terminal, and gone at its end; tasks have a field `facts`."""
    return TwoLines(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        Times(),
        console=console,
        transient=True,
        expand=True,
    )


def clock(seconds: float | None) -> str:
    """Return a time in minutes and seconds, or hours too.

    >>> clock(5.4), clock(75), clock(3 * 3600 + 62), clock(None)
    ('0:05', '1:15', '3:01:02', '-')
    """
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
