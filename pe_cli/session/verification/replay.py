"""Recomputes a step of a recorded run with any of its values: tensors, gradients and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.execute.batch import StepResult
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from pe_cli.ops.define.registry import grad_name
from pe_cli.session.observer import Observer
from pe_cli.session.training.loop import Trainer
from pe_cli.session.verification.rerun_check import DifferentError
from pe_cli.session.verification.verify import again

Array = np.ndarray[Any, Any]
#: Ending of what a step adds to a parameter.
UPDATE = "@UPDATE"


@dataclass(frozen=True)
class Replay:
    """Values of a step.

    Args:
        step: its number, from 1.
        values: name -> value on each device with samples; in a batch of parts those of every part, one behind the other.
        ops: name -> type of the op that computes it; those without one are fed or parameters.
        begin: what is fed, and parameters and state before the step.
    """

    step: int
    values: Mapping[str, Sequence[Array]]
    ops: Mapping[str, str]
    begin: Mapping[str, Array]


class Replayer(Trainer):
    """Trains up to a step and keeps what it computes.

    Args:
        target: number of the step, from 1.
        names: of values; None for every parameter with its gradient and update.
        others: as of `Trainer`.
    """

    target: int
    names: Sequence[str] | None
    found: Replay | None = None

    def _step(self, feed: Mapping[str, Array], samples: int) -> None:
        if self.at.step + 1 != self.target:
            super()._step(feed, samples)
            return
        names = list(self.names) if self.names is not None else self._usual()
        updated = [n.removesuffix(UPDATE) for n in names if n.endswith(UPDATE)]
        # Copies, as the step writes over parameters and state.
        before = {n: np.array(self.job.scope.get(n)) for n in self.job.scope}
        variables = [n for n in names if not n.endswith(UPDATE)]
        fetches = list(dict.fromkeys([*self.step_metrics.always, *variables]))
        result: StepResult = self.stepper.run(feed, fetches, self.at.step, samples, self.step_metrics.means)
        values: dict[str, Sequence[Array]] = {n: [v[n] for v in result.values if n in v] for n in variables}
        values |= {f"{n}{UPDATE}": [np.array(self.job.scope.get(n)) - before[n]] for n in updated}
        ops = {n: op.type for op in self.job.built.ops for n in op.output_names()}
        types = {n: ops.get(n.removesuffix(UPDATE), "") for n in names}
        begin = {**{n: np.array(v) for n, v in feed.items()}, **before}
        self.found = Replay(self.target, {n: values[n] for n in names}, types, begin)
        self._count(result)

    def _usual(self) -> list[str]:
        found: dict[str, None] = {}
        for program in self.job.programs:
            for p in program.parameters():
                if p.trainable:
                    names = [p.name, *([grad_name(p.name)] if grad_name(p.name) in program.vars else []), f"{p.name}{UPDATE}"]
                    found |= dict.fromkeys(names)
        return [*found]

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse names that no step computes.

        Raises:
            PeError: names one.
        """
        known = {v.name: v for program in self.job.programs for v in program.list_vars()}
        for name in names:
            base = name.removesuffix(UPDATE)
            if base not in known or (base != name and not (known[base].persistable and known[base].dtype in FLOATS)):
                what = "parameter or state" if base != name else "variable"
                hint = did_you_mean(base, known) or "pe graph --stage program lists all variables; w@GRAD is a gradient"
                raise PeError(f"the training program has no {what} '{base}'", hint=hint)


def replay(folder: RunFolder, step: int, names: Sequence[str] | None = None, observer: Observer | None = None) -> Replay:
    """Rebuild a step of a recorded run; on the way all that was recorded is compared, as `verify` does. Nothing is written.

    Args:
        folder: of the run.
        step: number of the step, from 1.
        names: of values: variables, `NAME@GRAD` and `NAME@UPDATE`; None for all parameters, their gradients and updates. Parameters and
            state are as the step leaves them.
        observer: is told of steps.

    Raises:
        PeError: USAGE, there is no such step or variable, or the run is one that no two trainings repeat; DATA, it is damaged; DIFFERENT,
            the steps before it do not come out as they were recorded.
    """
    done = int(str(folder.known_status().get("step") or 0))
    if not 1 <= step <= done:
        raise PeError(f"{folder.path}: the run has no step {step}", hint=f"it did {done}: 1 to {done}")
    there = checkpoint.steps(folder.checkpoints) if folder.checkpoints.is_dir() else []
    # From the newest checkpoint before the step: what lies between has to be trained again, and is compared on the way.
    trainer = again(Replayer, folder, max((s for s in there if s < step), default=None), step, observer)
    assert isinstance(trainer, Replayer)
    trainer.target, trainer.names = step, names
    trainer.check_names(names or ())
    try:
        trainer.train()
    except DifferentError as error:
        raise error.told(folder.path) from None
    assert trainer.found is not None, "the step was trained"
    return trainer.found
