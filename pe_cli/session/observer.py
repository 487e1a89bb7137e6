"""The interface by which a session reports its progress, to the display of a command or to nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pe_cli.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from pe_cli.session.benchmarks.plan_facts import Planned

#: What names of metrics begin with that are the length of one parameter's gradient; too many for a terminal.
NORM = "gradient_norm/"


@dataclass(frozen=True)
class Start:
    """What is about to run.

    Args:
        model: its name.
        parameters: number of trained numbers.
        devices: in words, with where the number came from.
        steps: in all; None when not known.
        epochs: in all; None when not known.
        folder: the run's folder, or empty.
        done: steps that were done before.
        metrics: names of what will be recorded, such as `train/loss`, in order.
    """

    model: str
    parameters: int
    devices: str
    steps: int | None
    epochs: int | None
    folder: str
    done: int = 0
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """The metrics of an epoch, or of a part of a long epoch.

    Args:
        step: steps done.
        epoch: epochs done; of a part, the number of the epoch, from 1.
        values: the newest of every metric recorded since the row before.
        speed: samples a second since the first step; None where none is measured.
    """

    step: int
    epoch: int
    values: Mapping[str, float]
    speed: float | None = None


class Observer:
    """Does nothing; commands override what they show. Called on the main thread, never inside a step."""

    def compiling(self, done: int, total: int, name: str) -> None:
        """A kernel is being compiled."""

    def started(self, start: Start) -> None:
        """The loop begins."""

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """A training step is done: its number from 1, epoch from 0, loss and samples."""

    def wants_plan(self) -> bool:
        """Whether `planned` should be told of the next step; asked before every one."""
        return False

    def planned(self, found: Sequence[Planned]) -> None:
        """Say how a step was run: the last update of every phase, in order."""

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Say which metrics were written."""

    def epoch_ended(self, step: int, epoch: int) -> None:
        """An epoch is over, evaluation included: steps and epochs done."""

    def row(self, row: Row) -> None:
        """Say what is to be shown of an epoch."""

    def note(self, text: str) -> None:
        """Say something in a line."""

    def ended(self, state: str) -> None:
        """The loop is over: done, stopped or failed. Everything is written."""


class Observers(Observer):
    """Passes on to several, in order.

    Args:
        members: who is told.
    """

    def __init__(self, members: Sequence[Observer]) -> None:
        self.members = list(members)

    def compiling(self, done: int, total: int, name: str) -> None:
        """Pass on."""
        for member in self.members:
            member.compiling(done, total, name)

    def started(self, start: Start) -> None:
        """Pass on."""
        for member in self.members:
            member.started(start)

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Pass on."""
        for member in self.members:
            member.stepped(step, epoch, loss, samples)

    def wants_plan(self) -> bool:
        """Whether one of them wants it."""
        return any(member.wants_plan() for member in self.members)

    def planned(self, found: Sequence[Planned]) -> None:
        """Pass on to who wants it."""
        for member in self.members:
            if member.wants_plan():
                member.planned(found)

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Pass on."""
        for member in self.members:
            member.recorded(step, epoch, values)

    def epoch_ended(self, step: int, epoch: int) -> None:
        """Pass on."""
        for member in self.members:
            member.epoch_ended(step, epoch)

    def row(self, row: Row) -> None:
        """Pass on."""
        for member in self.members:
            member.row(row)

    def note(self, text: str) -> None:
        """Pass on."""
        for member in self.members:
            member.note(text)

    def ended(self, state: str) -> None:
        """Pass on."""
        for member in self.members:
            member.ended(state)
