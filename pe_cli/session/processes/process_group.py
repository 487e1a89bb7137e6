"""The process group of a training, as its loop sees it; a single process is the plain case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Communicator, Summing
from pe_cli.config.spec import RunSpec
from pe_cli.core.limits import usable_cores
from pe_cli.execute.batch import StepResult
from pe_cli.execute.plan.thread_layout import Layout
from pe_cli.session.device_choice import Resources, place_of_devices, resolve_places
from pe_cli.session.training.stop import Limits, StopRequest

Array = np.ndarray[Any, Any]


class ProcessGroup:
    """One process alone.

    Args:
        remark: what is said behind its devices.

    Attributes:
        peers: the other processes; None for none.
        sums: the same, where they sum gradients among themselves.
        rank: of this process.
        size: processes.
        shares: whether each process is given its share of a batch alone, and not the batch.
    """

    peers: Communicator | None = None
    sums: Summing | None = None
    rank, size = 0, 1
    shares = False

    def __init__(self, remark: str = "") -> None:
        self._remark = remark

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def resources(self, run: RunSpec, best: Callable[[int], Layout] | None = None) -> Resources:
        """Return the devices and threads of this process.

        Args:
            run: says how many.
            best: see `resolve_places`.

        Raises:
            PeError: see `resolve_places`; or processes that do not fit together.
        """
        executor = run.executor
        devices = 1 if executor.type == "async" else executor.devices
        found = resolve_places(executor.place, devices, place_of_devices(executor), best)
        return replace(found, text=found.text + self._remark)

    def cores(self) -> int:
        """Return the cores of the machine that are this process's; all processes ask together."""
        return usable_cores()

    def dealt(self, run: RunSpec) -> RunSpec:
        """Return a run with the training files that are this process's, where threads take whole files.

        Raises:
            PeError: there are fewer files than processes.
        """
        return run

    def agree(self, model: Callable[[], str], data: Callable[[], Iterable[Path]]) -> None:
        """Compare with the other processes what is trained on what, before the first step.

        Args:
            model: returns the program, as text.
            data: returns the files and folders that are read.

        Raises:
            PeError: USAGE, another process has another model; DATA, it has other data.
        """

    def stop(self, limits: Limits | None) -> StopRequest:
        """Return what ends training before its time."""
        return StopRequest(limits)

    def begin_step(self, step: int) -> None:
        """Say which step begins, from 0."""

    def joined(self, mine: StepResult, means: Sequence[str] = ()) -> StepResult:
        """Return what a step gave on the devices of all processes, in their order.

        Args:
            mine: on those of this one.
            means: variables of which nothing but the mean over all devices is asked for.
        """
        return mine

    def whole(self, mine: Mapping[str, Array]) -> dict[str, Array]:
        """Return samples of all processes, one after the other."""
        return dict(mine)

    def stepped(self, mine: StepResult, means: Sequence[str] = ()) -> StepResult:
        """Return what a training step gave, of as many devices as are waited for; with it goes what `joined` sends along."""
        return mine

    def heard(self, step: int) -> None:
        """Say how many steps this process has done, and hear whether one is asked to stop; without waiting for the others."""

    def added(self, count: int) -> int:
        """Return the sum of a number over all processes; with it goes who is to stop."""
        return count

    def averaged(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return metrics of training that all processes go by."""
        return dict(numbers)

    def arrays(self, mine: Mapping[str, Array]) -> list[Mapping[str, Array]]:
        """Return the arrays of every process."""
        return [mine]

    def texts(self, mine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return a JSON object of every process."""
        return [mine]

    def watch_time(self, over: Callable[[], bool]) -> None:
        """Say how the first process tells that a checkpoint is due by the clock."""
        self._period_over = over

    def save_due(self) -> bool:
        """Whether a checkpoint is due by the clock, for all processes alike."""
        return self._period_over()

    def again(self, folder: Path) -> str:
        """Return the command that goes on with a run."""
        return f"pe train --resume {folder}"

    def trains_in(self, folder: Path) -> None:
        """Pass on the run's folder, where the reason of a failure may have to be written."""

    def advise(self, hint: str) -> None:
        """Say what to do when a process is lost."""

    def linger(self) -> None:
        """Leave the first process time to end before this one does with an exit code other than 0."""

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A context in which all processes end together: an error inside is reported to the others, and the end waits for them."""
        yield

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Tell the others of an error inside."""
        yield
