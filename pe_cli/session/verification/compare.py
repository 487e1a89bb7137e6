"""Compares two trainings: the first op whose values differ, the growth of differences, and differences of their inputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pe_cli.build.build import Built
from pe_cli.config.resolved import resolved_yaml
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.execute.batch import StepResult
from pe_cli.io.run_files import is_run
from pe_cli.io.run_folder import RunFolder
from pe_cli.ops.define.registry import GRAD
from pe_cli.session.job import Job
from pe_cli.session.training.config_diff import config_diff
from pe_cli.session.training.run_writer import recorded
from pe_cli.session.training.step import Stepper
from pe_cli.session.verification.replay import replay
from pe_cli.session.verification.rerun_check import first_difference
from pe_cli.session.verification.verify import elsewhere, environment_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Differing:
    """A variable of a step that differs.

    Args:
        number: of the op that computes it, in the order of the first program; -1 for what is fed and for parameters and state.
        op: its type; `feed`, or `given` for parameters and state.
        name: of the variable.
        element: index of the first element whose bits differ; empty where types differ.
        first, second: of that element.
        largest: difference, relative to the largest element of both.
        share: of elements whose bits differ.
    """

    number: int
    op: str
    name: str
    element: tuple[int, ...]
    first: str
    second: str
    largest: float
    share: float


@dataclass(frozen=True)
class Comparison:
    """What tells two trainings apart.

    Args:
        step: that was computed twice.
        compared: variables of it that both have.
        differing: those that differ, in the order in which they are computed.
        given: what differs in configs, models and environments; a sentence each.
        recorded: (step, metric, first, second) where what two runs recorded differs first; None where nothing does.
    """

    step: int
    compared: int
    differing: Sequence[Differing]
    given: Sequence[str]
    recorded: tuple[int, str, object, object] | None


class Training(Protocol):
    """One of the two trainings that are compared."""

    @property
    def path(self) -> Path:
        """What the user has named."""

    @property
    def folder(self) -> RunFolder | None:
        """Of the run; None where there is none."""

    @property
    def only(self) -> int | None:
        """Number of the only step that there is; None for any."""

    @property
    def environment(self) -> Mapping[str, object]:
        """What decides about its bits beside the config."""

    def texts(self) -> tuple[str, str]:
        """Return config and model."""

    def names(self) -> list[str]:
        """Return the variables that a step computes once all passes are done, in order."""

    def op(self, name: str) -> tuple[int, str]:
        """Return number and type of the op that computes a variable, in the order of the program."""

    def fed(self, name: str) -> bool:
        """Return whether a variable that a step begins with is fed; the others are parameters and state."""

    def values(self, step: int, names: Sequence[str]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what a step begins with, and what it computes: name -> value, over all devices."""


class Side:
    """A training that is done again: a run, or a config from its beginning.

    Args:
        target: folder of a run, or a config.
        overrides: of the config.

    Raises:
        PeError: a run is to be changed by overrides.
    """

    only = None

    def __init__(self, target: Path, overrides: Sequence[str]) -> None:
        self.path = target
        self.folder = RunFolder.open(target) if is_run(target) else None
        if self.folder is not None and overrides:
            raise PeError("-o changes a config, and a run is as it was", hint=f"compare with its config: {self.folder.resolved_path}")
        self.job = Job.open(self.folder.resolved_path if self.folder else target, overrides)

    @functools.cached_property
    def environment(self) -> Mapping[str, object]:
        """What decides about its bits beside the config."""
        return environment_of(self.folder) if self.folder else recorded(self.job)

    def texts(self) -> tuple[str, str]:
        """Return config and model."""
        return resolved_yaml(self.job.run, standalone=True), self.job.run.model_path.read_text(encoding="utf-8")

    def names(self) -> list[str]:
        """Return the variables that a step computes once all passes are done, in order."""
        known = {v.name for program in self.job.programs for v in program.list_vars()}
        ops = [op for stages in Stepper(self.job).stages(()).values() for op in stages.fused.top_ops]
        return list(dict.fromkeys(n for op in ops for n in op.output_names() if n in known))

    @functools.cached_property
    def _ops(self) -> Mapping[str, tuple[int, str]]:
        # From the last op to the first, so that of several that write a variable the first one is named.
        return {n: (i, op.type) for i, op in reversed(list(enumerate(self.job.built.ops))) for n in op.output_names()}

    def op(self, name: str) -> tuple[int, str]:
        """Return number and type of the op that computes a variable; of one that passes make, the last number."""
        return self._ops.get(name, (len(self._ops), "fused"))

    def fed(self, name: str) -> bool:
        """Return whether a variable that a step begins with is fed."""
        v = self.job.built.eval.find_var(name)
        return v is not None and v.is_data

    def values(self, step: int, names: Sequence[str]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what a step begins with, and what it computes: name -> value, over all devices."""
        if self.folder is not None:
            found = replay(self.folder, step, names)
            whole = {n: whole_of(self.job.built, n, v, ()) for n, v in found.values.items()}
            return dict(found.begin), whole
        job = self.job
        job.initialise()
        stepper = Stepper(job)
        loader = job.data.loader("train", job.programs, job.step_size, drop_last=bool(job.run.train and job.run.train.drop_last))
        feeds = ((f, loader.size_of(i)) for e in itertools.count() for i, f in enumerate(loader.epoch(e)))
        fitting = (fit[0] for f in feeds if (fit := stepper.fit(*f)) is not None)
        for number in range(step - 1):
            stepper.run(next(fitting), [], number)
        feed = next(fitting)
        begin = {**{n: np.asarray(v) for n, v in feed.items()}, **beginning(job)}
        result: StepResult = stepper.run(feed, list(names), step - 1)
        held = {n: [(v[n], size) for v, size in zip(result.values, result.sizes, strict=True) if n in v] for n in names}
        return begin, {n: whole_of(job.built, n, [v for v, _ in each], [size for _, size in each]) for n, each in held.items()}


def beginning(job: Job) -> dict[str, Array]:
    """Return copies of parameters and state."""
    return {name: np.array(job.scope.get(name)) for name in job.scope}


def whole_of(built: Built, name: str, values: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return a variable over all devices: samples one behind the other, numbers as their mean by samples, the rest of the first.

    The gradient with respect to such a mean is shared out among the devices: it is the sum of their parts.
    """
    if len(values) == 1:
        return np.asarray(values[0])
    phase = built.phase_of(name)
    v = phase.program.vars[name] if phase else None
    if v is not None and v.shape[:1] == (-1,):
        return np.concatenate(values)
    if v is not None and v.dtype in FLOATS and not v.persistable and len({a.shape for a in values}) == 1 and values[0].size == 1:
        stacked = np.stack(values).astype(np.float64)
        of = phase.program.find_var(name.removesuffix(GRAD)) if phase and name.endswith(GRAD) else None
        if of is not None and not of.persistable:
            return np.asarray(stacked.sum(axis=0))
        return np.asarray(np.average(stacked, axis=0, weights=list(sizes) or None))
    return np.asarray(values[0])


def compare(first: Training, second: Training, step: int | None = None, tolerance: float = 0.0) -> Comparison:
    """Compute a step of two trainings and compare all that both compute.

    Args:
        first, second: trainings.
        step: number, from 1; None for the only one that a training has, or the first one, and where that is the same for the first that
            two runs have recorded otherwise.
        tolerance: largest difference, relative to the largest element, that is none; 0 compares bits.

    Raises:
        PeError: see `replay`; USAGE, they have no variable in common.
    """
    apart = recorded_apart(first, second)
    number = step or first.only or second.only or 1
    found = _compared(first, second, number, tolerance)
    # The first steps are the same, but not all that was recorded: the step where that begins tells more.
    if step is None and apart is not None and not found[1]:
        number = apart[0]
        found = _compared(first, second, number, tolerance)
    told = [str(c) for c in config_diff(first.texts(), second.texts())]
    told += elsewhere(first.environment, second.environment)
    return Comparison(number, found[0], found[1], told, apart)


def _compared(first: Training, second: Training, number: int, tolerance: float) -> tuple[int, list[Differing]]:
    """Return how many variables of a step two trainings have in common, and those that differ, in order."""
    # By names: passes of one side may have fused away what the other still computes.
    there = set(second.names())
    names = [n for n in first.names() if n in there]
    if not names:
        raise PeError(f"{first.path} and {second.path} compute no variable of the same name", hint="compare trainings of one model")
    (begin_a, values_a), (begin_b, values_b) = (side.values(number, names) for side in (first, second))
    found = [
        differing(-1, "feed" if first.fed(n) else "given", n, begin_a[n], begin_b[n], tolerance) for n in begin_a if n in begin_b
    ] + [differing(*first.op(n), n, values_a[n], values_b[n], tolerance) for n in names]
    count = len(names) + len(begin_a.keys() & begin_b.keys())
    return count, sorted((d for d in found if d is not None), key=lambda d: d.number)


def differing(number: int, op: str, name: str, a: Array, b: Array, tolerance: float) -> Differing | None:
    """Return how two values differ; None where they do not."""
    if a.shape != b.shape:
        return Differing(number, op, name, (), f"{a.dtype}{list(a.shape)}", f"{b.dtype}{list(b.shape)}", float("inf"), 1.0)
    if a.dtype != b.dtype:  # of other precision: what counts is how far they are apart
        a, b = a.astype(np.float64), b.astype(np.float64)
    place = first_difference(a, b)
    if place is None:
        return None
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        # Relative to the largest element, because elements near 0 may differ by many times their own size.
        scale = max(float(np.abs(x).max()), float(np.abs(y).max()))
        largest = float(np.abs(x - y).max()) / scale if scale else 0.0
    if largest <= tolerance and np.isfinite(largest) and tolerance:
        return None
    share = float((np.ascontiguousarray(a) != np.ascontiguousarray(b)).mean())
    return Differing(number, op, name, place, repr(a[place].item()), repr(b[place].item()), largest, share)


def recorded_apart(first: Training, second: Training) -> tuple[int, str, object, object] | None:
    """Return where two runs recorded other numbers first: step, metric and both."""
    if first.folder is None or second.folder is None:
        return None
    lines: list[dict[tuple[object, ...], dict[str, object]]] = []
    for folder in (first.folder, second.folder):
        lines.append({(line.get("step"), line.get("epoch"), line.get("split")): line for line in folder.metrics()})
    for place, line in lines[0].items():
        other = lines[1].get(place)
        for name, value in line.items():
            if other is not None and name in other and other[name] != value:
                return int(str(place[0])), f"{place[2]}/{name}", value, other[name]
    return None
