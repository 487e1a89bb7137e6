"""Chooses the trainer that a run file asks for."""

from __future__ import annotations

from pe_cli.session.job import Job
from pe_cli.session.training.loop import Trainer
from pe_cli.session.training.resume import Resume
from pe_cli.session.training.stop import Limits


def trainer_of(job: Job, *, smoke: bool = False, resume: Resume | None = None, limits: Limits | None = None) -> Trainer:
    """Return the trainer that a run file asks for; arguments as for `Trainer`."""
    if job.run.executor.type == "async":
        from pe_cli.session.training.hogwild import AsyncTrainer

        return AsyncTrainer(job, smoke=smoke, resume=resume, limits=limits)
    return Trainer(job, smoke=smoke, resume=resume, limits=limits)
