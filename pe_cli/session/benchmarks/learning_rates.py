"""Computes the learning rate of every step before a run, by running the ops of the schedule alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pe_cli.build.phases import Phase
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.optim.schedule import counter_name
from pe_cli.program.prune import prune
from pe_cli.session.job import Job
from pe_cli.session.training.steps_per_epoch import batches_of_epoch

#: Steps that are computed, at most.
POINTS = 2000


@dataclass(frozen=True)
class Rates:
    """Learning rates of a run.

    Args:
        total: steps of the run.
        per_epoch: steps of an epoch; None where the run counts no epochs and its schedule neither.
        steps: those that were computed, from 0, the first and the last of the run among them.
        values: the rate of each.
    """

    total: int
    per_epoch: int | None
    steps: list[int]
    values: list[float]


def rates_of(job: Job, phase: str | None = None) -> Rates:
    """Compute the learning rates of a run.

    Args:
        job: its training data is opened where the run's length or its schedule is in epochs. Its scope is not touched.
        phase: whose; None for the first one, of a step of several updates at its last.

    Raises:
        PeError: the rate is fed by the data, there is no rate in common, or it is not known how long an epoch is.
    """
    section = job.run.train
    per_epoch = None
    if job.count_epochs() or (section is not None and section.epochs is not None):
        per_epoch = batches_of_epoch(job, job.run.at_of("train", "epochs"))
    limits = [] if section is None or section.steps is None else [section.steps]
    if section is not None and section.epochs is not None and per_epoch is not None:
        limits.append(section.epochs * per_epoch)
    total = min(limits)
    steps = sorted({round(i * (total - 1) / max(1, POINTS - 1)) for i in range(POINTS)})
    return Rates(total, per_epoch, steps, _compute(job, phase_of(job, phase), steps))


def phase_of(job: Job, name: str | None) -> Phase:
    """Return a phase by its name, the first one without.

    Raises:
        PeError: there is none of that name, or nothing is trained.
    """
    _ = job.programs  # says what is missing where there are none
    return job.built.phases[0] if name is None else job.built.phase(name)


def rate_name(job: Job, phase: Phase) -> str:
    """Return the variable of a phase's learning rate.

    Raises:
        PeError: there is none, or the data has it.
    """
    name = phase.recorded.get(phase.spec.called("learning_rate"))
    at = job.run.at_of(*phase.spec.path, "optimizer")
    if name is None:
        raise PeError("the optimizer has no learning rate that all parameters share", at=at)
    if phase.program.var(name).is_data:
        raise PeError(f"the learning rate is the feed '{name}', which only the data knows", at=at, hint="write a number or a schedule")
    return name


def _compute(job: Job, phase: Phase, steps: Iterable[int]) -> list[float]:
    name = rate_name(job, phase)
    program = prune(phase.program, [name])
    scope = Scope([Place("cpu", 0)])
    kept = [v.name for v in program.persistables()]
    run_startup(prune(job.built.startup, kept), scope, job.run.executor.seed)
    if not program.top_ops:
        return [float(scope.get(name)[0])] * len([*steps])
    executor = Executor(program, scope, constants=job.data.constants())
    times, counter = job.run.exec_strategy.num_iteration_per_run * phase.repeat, counter_name(program)
    values = []
    for step in steps:
        # the op that counts comes first; of a batch that is several steps the last is recorded
        if counter in scope:
            scope.set(counter, np.array([(step + 1) * times - 2], "int64"))
        values.append(float(executor.run({}, [name]).values[0][name][0]))
    return values
