"""Jobs of benchmarks and profiles: a training step, one phase of it, or an evaluation step where nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data import Loader
from pe_cli.execute.batch import StepResult
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program
from pe_cli.session.job import Job
from pe_cli.session.training.step import Stepper

Feed = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class BenchmarkJob:
    """A step that is run again and again.

    Args:
        job: with values in its scope when it runs.
        phase: name of the phase that is meant, empty for all of a step.
        programs: that it runs.
        executors: of them.
        size: samples of it.
        run: does it, with a batch, names of what is fetched, and its number.
        samples: counts those of a batch.
    """

    job: Job
    phase: str
    programs: Sequence[Program]
    executors: Sequence[Executor]
    size: int
    run: Callable[[Feed, Sequence[str], int], StepResult]
    samples: Callable[[Feed], int]

    @property
    def split(self) -> str:
        """The use of the data that it takes."""
        return "train" if self.job.built.phases else "eval"

    @property
    def numbers(self) -> dict[str, str]:
        """What it gives as single numbers: name as written -> variable."""
        return {name: variable for program in self.programs for name, variable in self.job.numbers(program).items()}

    def loader(self, **facts: Any) -> Loader:
        """Return the batches that it takes; facts are arguments of `Job.loader`."""
        return self.job.data.loader(self.split, self.programs, self.size, **facts)


def time_step(job: Job) -> BenchmarkJob:
    """Return all of a step: every update of every phase."""
    if len(job.built.phases) < 2 and job.built.batches == 1:
        return time_phase(job, None)
    stepper = Stepper(job)
    return BenchmarkJob(job, "", job.programs, stepper.executors, job.step_size, stepper.run, stepper.samples)


def time_phase(job: Job, name: str | None) -> BenchmarkJob:
    """Return one update of a phase, the first one where no name is given; an evaluation step where nothing is trained.

    Raises:
        PeError: there is no phase of that name.
    """
    phase = job.built.phase(name) if name is not None else next(iter(job.built.phases), None)
    program = phase.program if phase else job.built.eval
    executor = job.executor(program)
    return BenchmarkJob(job, phase.name if phase else "", (program,), (executor,), job.batch_size, executor.run, executor.samples)
