"""Schedules with the counter and the names that they have in the original."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pe_cli.optim import schedule
from pe_cli.optim.schedule import COUNTER, NoamDecay
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program, ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import autoincreased_step_counter
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Role

#: Schedules whose rate stays between steps in the original, and the name that it has there.
_KEPT = {"piecewise_decay": "learning_rate", "linear_lr_warmup": "learning_rate_warmup"}


def _keep(rate: Any, name: str) -> None:
    """Let a rate stay between steps, by a name of the original's; it is 0 before the first step."""
    block, start = rate.block, default_startup_program().global_block()
    # Two schedules of one program would take the same name; the second one keeps its own. Those of several programs share it.
    if name not in block.vars:
        block.rename_var(rate.name, name)
    rate.persistable = True
    if rate.name not in start.vars:
        Constant(0.0)(rate, start)


def _on_defaults(made: Callable[..., Any]) -> Callable[..., Any]:
    """Return a schedule that appends to the default programs of scripts, even where it is the first that a script calls."""

    @functools.wraps(made)
    def append(*args: Any, **given: Any) -> Any:
        ensure_defaults()
        with raised_as(FluidValueError):
            rate = made(*args, **given)
        if made.__name__ in _KEPT:
            _keep(rate, _KEPT[made.__name__])
        return rate

    return append


def noam_decay(d_model: float, warmup_steps: float, learning_rate: float = 1.0) -> Any:
    """Append `NoamDecay` and return the rate; d_model need not be whole. The counter of steps is 1 in the first run, as in the original."""
    # Counters of the original begin at 1 here, those of the core at 0: the counter is shifted.
    ensure_defaults()
    factor = float(learning_rate) * float(d_model) ** -0.5
    counter = autoincreased_step_counter(COUNTER, begin=1)
    with raised_as(FluidValueError), default_main_program().role(Role.LR_SCHED):
        return NoamDecay(1, int(warmup_steps), factor).append(counter=call("scale", counter, 1.0, -1.0))


cosine_decay = _on_defaults(schedule.cosine_decay)
exponential_decay = _on_defaults(schedule.exponential_decay)
inverse_time_decay = _on_defaults(schedule.inverse_time_decay)
linear_lr_warmup = _on_defaults(schedule.linear_lr_warmup)
natural_exp_decay = _on_defaults(schedule.natural_exp_decay)
piecewise_decay = _on_defaults(schedule.piecewise_decay)
polynomial_decay = _on_defaults(schedule.polynomial_decay)

__all__ = [
    "cosine_decay", "exponential_decay", "inverse_time_decay", "linear_lr_warmup", "natural_exp_decay", "noam_decay",
    "piecewise_decay", "polynomial_decay",
]  # fmt: skip
