"""How many steps an epoch has, for schedules that are written in epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import Place
from pe_cli.data import Loader
from pe_cli.program.ir import Program
from pe_cli.session.processes.process_group import ProcessGroup


class Loads(Protocol):
    """What is asked of a job's data."""

    def loader(self, split: str, programs: Sequence[Program], batch_size: int, *, drop_last: bool = False) -> Loader:
        """Return the batches of a part of the data."""


class Trained(Protocol):
    """What is asked of a job."""

    run: RunSpec
    smoke: bool
    group: ProcessGroup

    @property
    def places(self) -> Sequence[Place]:
        """Devices."""

    @property
    def programs(self) -> Sequence[Program]:
        """The training programs."""

    @property
    def step_size(self) -> int:
        """Samples of a step."""

    @property
    def shares(self) -> int:
        """Pieces that the samples of a step are cut into before devices get theirs."""

    @property
    def data(self) -> Loads:
        """Its data."""


def steps_of_epoch(job: Trained, at: Span | None) -> int:
    """Return the steps of an epoch as the counter of schedules counts them; arguments and errors as of `batches_of_epoch`."""
    return batches_of_epoch(job, at) * job.run.exec_strategy.num_iteration_per_run


def batches_of_epoch(job: Trained, at: Span | None) -> int:
    """Return the steps of an epoch as the run counts them.

    Args:
        job: with a training program; its training data is opened.
        at: where the epochs are written.

    Raises:
        PeError: there is no training data, no step, or no epoch that all threads do together.
    """
    section, executor = job.run.train, job.run.executor
    assert section is not None
    if executor.type == "async":
        text = "asynchronous training has no steps in common that a schedule could count in epochs"
        raise PeError(text, at=at, hint="write a number of steps, or executor.type: parallel")
    if "train" not in job.run.data and not job.smoke:
        text = "how many steps an epoch has is not known: the run file has no data.train"
        raise PeError(text, at=at, hint="add data.train, or write a number of steps")
    size = job.step_size
    loader = job.data.loader("train", job.programs, size, drop_last=section.drop_last)
    shares = len(job.places) * job.group.size * job.shares
    # Counted by the loader that training uses, so that both agree on the last batch.
    batches = len(loader)
    if executor.uneven_batch == "drop":
        # a batch without a sample for every device is left out
        whole, rest = divmod(loader.samples, size)
        batches = whole * (size >= shares) + (rest >= shares)
    if not batches:
        text = f"an epoch has no step: no batch has a sample for each of {shares} shares, and uneven_batch is drop"
        raise PeError(text, at=at, hint="use a larger batch_size, or uneven_batch: weighted")
    return batches
