"""Schedules, at the place where the original has them, and the counter of steps that scripts make schedules of their own with."""

from __future__ import annotations

from typing import Any

from pe_cli.optim.schedule import COUNTER
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import autoincreased_step_counter
from pe_cli.paddle.fluid.naming import use
from pe_cli.paddle.reference_names import missing


def _decay_step_counter(begin: int = 0) -> Any:
    """Return the number of the step, float32 [1]: begin in the first run."""
    use({"global_step_counter": 1})
    return call("cast", autoincreased_step_counter(COUNTER, begin), "float32")


__getattr__ = missing("fluid.layers.learning_rate_scheduler", lambda: globals())
