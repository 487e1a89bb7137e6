"""Verifies a recorded run: whether it can be repeated to the bit, and if not, where it first differs and what is different here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeVar

from pe_cli.config.load import load_run
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import checkpoint, strict_json
from pe_cli.io.input_hashes import changed
from pe_cli.io.regular_files import read_regular
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.job import Job
from pe_cli.session.observer import Observer
from pe_cli.session.training.loop import Trainer
from pe_cli.session.training.resume import Resume, fitted_of
from pe_cli.session.training.run_writer import recorded
from pe_cli.session.training.stop import Limits
from pe_cli.session.verification.rerun_check import Difference, DifferentError, RerunCheck, Seen

AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)
#: Facts of an environment that do not decide about bits.
_IDLE = ("number", "cores", "memory", "platform", "python")


@dataclass(frozen=True)
class Verdict:
    """What came of training a run again.

    Args:
        first, last: steps before it began and when it ended.
        seen: what was compared.
        difference: the first value that differs; None where all bits are the same.
        elsewhere: what decides about bits and is otherwise than where the run was trained; a sentence each.
    """

    first: int
    last: int
    seen: Seen
    difference: Difference | None = None
    elsewhere: list[str] = field(default_factory=list)


def verify(folder: RunFolder, first: int | None = None, last: int | None = None, observer: Observer | None = None) -> Verdict:
    """Train a recorded run again and compare its metrics, checkpoints and fetched values to the bit. Nothing is written to its folder.

    Args:
        folder: of the run.
        first: step to begin behind, of which it has a checkpoint; None for its beginning.
        last: step to end with; None for the last that it did.
        observer: is told of steps.

    Raises:
        PeError: USAGE, there is no such checkpoint, or the run is one that no two trainings repeat; DATA, it is damaged.
    """
    status = folder.known_status()
    done = int(str(status.get("step") or 0))
    # A run that was done is trained to the end of its config, with what is recorded there.
    whole = last is None and status.get("state") == "done"
    last = done if last is None else last
    begin = (_begin(folder, first) or Resume(folder, 0)).step or 0
    if last <= begin or last > done:
        raise PeError(f"{folder.path}: there is no step to repeat: the run did {done}", hint=f"name others: --steps 0..{done}")
    trainer = again(Trainer, folder, first, None if whole else last, observer)
    job, rerun_check = trainer.job, trainer.run_writer
    assert isinstance(rerun_check, RerunCheck)
    difference = None
    try:
        trainer.train()
    except DifferentError as error:
        difference = error.difference
    seen = rerun_check.seen
    # Without a recorded value to hold against, agreement would mean nothing.
    if difference is None and not (seen.numbers or seen.variables or seen.fetched):
        raise PeError(f"{folder.path}: nothing was recorded in steps {begin} to {trainer.at.step}", hint="name more steps")
    other = [*changed(folder, job.data.prepared.sources.read), *elsewhere(environment_of(folder), recorded(job))]
    return Verdict(begin, trainer.at.step, seen, difference, other)


def again(
    kind: type[AnyTrainer], folder: RunFolder, first: int | None, last: int | None, observer: Observer | None
) -> AnyTrainer:
    """Return what trains a recorded run again and compares; arguments as of `verify`, last None for the end of its config.

    Raises:
        PeError: see `verify`.
    """
    resume = _begin(folder, first)
    _check(load_run(folder.resolved_path), folder)
    job = Job.open(folder.resolved_path, _overrides(environment_of(folder)), observer, fitted=fitted_of(resume) if resume else None)
    begin = resume.step if resume and resume.step else 0
    trainer = kind(job, resume=resume, limits=None if last is None else Limits(steps=last - begin), rerun_check=folder)
    job.initialise(fresh=resume is None)
    return trainer


def _begin(folder: RunFolder, first: int | None) -> Resume | None:
    """Return the checkpoint to begin with; None for initial values."""
    there = checkpoint.steps(folder.checkpoints) if folder.checkpoints.is_dir() else []
    if first is None or first == 0:
        return Resume(folder, 0) if 0 in there else None  # values that were given to it
    if first not in there:
        known = ", ".join(map(str, there)) or "none"
        raise PeError(f"{folder.path}: no checkpoint of step {first}", hint=f"it has {known}; 0 is its beginning")
    return Resume(folder, first)


def environment_of(folder: RunFolder) -> Mapping[str, object]:
    """Return what `recorded` said when a run began; nothing where that is lost."""
    try:
        found = strict_json.loads(read_regular(folder.env_path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _overrides(environment: Mapping[str, object]) -> list[str]:
    """Return what a config has to say for as many devices as there were: another number adds up in another order."""
    devices = environment.get("devices")
    return [f"executor.devices={len(devices)}"] if isinstance(devices, list) and devices else []


def _check(run: RunSpec, folder: RunFolder) -> None:
    if run.executor.type == "async":
        raise PeError(f"{folder.path}: asynchronous training is never the same twice", hint="train with executor.type: parallel")
    if not run.executor.deterministic:
        said = f"{folder.path}: with executor.deterministic: false it need not be the same twice"
        raise PeError(said, hint="train with deterministic: true, and verify that")
    if run.executor.processes != 1:
        hint = "verify trains in one process: give the config executor.processes: 1, and train that"
        raise PeError(f"{folder.path}: it was trained by several processes", hint=hint)


def elsewhere(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return what decides about bits and differs between two environments; a sentence each."""
    found = []
    # Portable instructions give the same bits on every processor, so its name does not matter.
    code = before.get("instructions")
    portable = isinstance(code, str) and code.startswith("portable") and code == now.get("instructions")
    for key in dict.fromkeys([*before, *now]):
        if key in _IDLE or (key == "cpu" and portable):
            continue
        was, is_now = before.get(key), now.get(key)
        if isinstance(was, dict) and isinstance(is_now, dict):
            found += [f"{name} was {was.get(name)}, it is {is_now.get(name)}" for name in dict.fromkeys([*was, *is_now])
                      if was.get(name) != is_now.get(name)]  # fmt: skip
        elif was != is_now:
            found.append(f"{key} was {was}, it is {is_now}")
    return found
