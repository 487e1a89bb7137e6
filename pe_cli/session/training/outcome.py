"""The outcome of a training run, and a step that may still be running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.value_class import Value
from pe_cli.execute.batch import StepResult
from pe_cli.session.training.epoch_lines import text_of


@dataclass
class Result:
    """What a training run did.

    Args:
        folder: the run's.
        step: steps done, in all.
        metrics: the newest value of every metric, by `train/loss`, `eval/acc`.
        seconds: spent in the loop, compilation and evaluation included.
        stopped: by a signal or a limit of this call.
        smoke: whether it was a smoke run.
    """

    folder: Path
    step: int
    metrics: dict[str, float]
    seconds: float
    stopped: bool = False
    smoke: bool = False

    def line(self) -> str:
        """Return what a run ends with: how far it came, its metrics and its folder."""
        word = "stopped at" if self.stopped else "smoke:" if self.smoke else "done:"
        metrics = text_of(self.metrics)
        return f"{word} step {self.step}, {self.seconds:.1f} s  {metrics}{'  ' if metrics else ''}-> {self.folder}"


class Running(Value):
    """A step whose values have not been looked at.

    Args:
        feed: the batch of the step.
        batch: number of the batch in the epoch.
        number: of the step, from 1.
        found: the step's values.
        due: names of fetched arrays that go to files.
    """

    feed: Mapping[str, np.ndarray[Any, Any]]
    batch: int
    number: int
    found: StepResult
    due: Sequence[str]
