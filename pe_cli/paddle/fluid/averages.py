"""Averages of parameters over training: ExponentialMovingAverage and ModelAverage, as ops after the updates."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.optim.average import MovingAverage, append_moving_average
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.scope import Scope, global_scope
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Parameter, Program, Role, Variable


def _keep(program: Program, startup: Program, name: str, like: Variable, value: float = 0.0) -> Any:
    """Make a persistable variable of another's type that starts at a value."""
    facts = {"persistable": True, "stop_gradient": True}
    made = program.global_block().create_var(program.unique(name), like.type, **facts)
    Constant(value)(made, startup.global_block())
    return made


class _Average:
    """Parameters with something kept for each, and values to swap in."""

    def __init__(self) -> None:
        self._program: Program = default_main_program()
        self._startup: Program = default_startup_program()
        self._parameters: list[Parameter] = []
        self._before: dict[str, np.ndarray[Any, Any]] = {}

    def _value(self, parameter: Parameter, scope: Scope) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    @contextlib.contextmanager
    def apply(self, executor: Any, need_restore: bool = True) -> Iterator[None]:
        """Use the averages as parameters inside; and after it too, until `restore`, without need_restore."""
        # Of the root: local scopes of loops hold no parameters.
        scope = global_scope().root()
        self._before = {p.name: scope.read(p.name) for p in self._parameters}
        for p in self._parameters:
            scope.write(p.name, self._value(p, scope).astype(p.type.numpy))
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Put the parameters' own values back."""
        for name, value in self._before.items():
            global_scope().root().write(name, value)
        self._before = {}


class ExponentialMovingAverage(_Average):
    """Average that forgets: ema = decay ema + (1 - decay) parameter, corrected for its start at 0.

    Args:
        decay: part that stays each step.
        thres_steps: a counter, cast to float32; decay is then at most (1 + steps) / (10 + steps). An integer one has no effect, as in the
            original, whose quotient of integers is 0; a warning says so.
        name: part of the variables' names.
    """

    def __init__(self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None) -> None:
        super().__init__()
        self._decay, self._steps, self._name = decay, thres_steps, name or ""
        self._kept: MovingAverage | None = None
        self._now: tuple[Any, Any] | None = None
        if thres_steps is not None and thres_steps.dtype not in FLOATS:
            what = "ExponentialMovingAverage: an integer thres_steps has no effect, as in the original: give cast(steps, 'float32')"
            warnings.warn(what, stacklevel=2)
            self._steps = None

    def update(self) -> None:
        """Append the ops that average the parameters; call it after `minimize`."""
        program = self._program
        self._parameters = [p for p in program.global_block().parameters() if p.trainable]
        with program.role(Role.OPTIMIZE), program.name_scope("moving_average"):
            # The rate is an op of the program, as it may grow with a counter that only the step knows.
            decay = self._rate()
            if self._steps is not None:
                one = call("fill_constant", [1], "float32", 1.0)
                self._now = tuple(_keep(program, self._startup, f"ema{self._name}_{n}", one) for n in ("rate", "steps"))
                call("assign", decay, self._now[0])
                call("sums", [self._now[1], one], self._now[1])
        self._kept = append_moving_average(program, self._startup, self._parameters, decay, self._name)

    def _rate(self) -> Any:
        constant = call("fill_constant", [1], "float32", self._decay)
        if self._steps is None:
            return constant
        steps = call("cast", self._steps, "float32")
        return call(
            "elementwise_min",
            constant,
            # min(decay, (1 + steps) / (10 + steps)), as in the original: early averages follow the parameters more closely.
            call("elementwise_div", call("scale", steps, 1.0, 1.0), call("scale", steps, 1.0, 10.0)),
        )

    def _value(self, parameter: Parameter, scope: Scope) -> np.ndarray[Any, Any]:
        assert self._kept is not None, "there are parameters once `update` was called"
        found = self._kept.values(scope.read)
        if self._now is None or parameter.name not in found:
            return found.get(parameter.name, scope.read(parameter.name))
        rate, steps = (float(scope.read(v.name)[0]) for v in self._now)  # the original corrects by the decay of the last step alone
        value = scope.read(self._kept.averages[parameter.name])
        return np.asarray(value / value.dtype.type(1.0 - rate**steps), value.dtype)


class ModelAverage(_Average):
    """Mean of the parameters of the last steps.

    The window restarts when it holds at least min_average_window steps and at least as many as max_average_window, or as
    average_window_rate of all steps; the mean is over the window before and the one that runs.

    Args:
        average_window_rate: part of all steps that a window holds.
        min_average_window: steps of a window, at least.
        max_average_window: steps of a window, at most.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._window = average_window_rate, min_average_window, max_average_window
        program = self._program
        self._parameters = [p for p in program.global_block().parameters() if p.do_model_average]
        self._kept: dict[str, tuple[Any, Any]] = {}
        with program.role(Role.OPTIMIZE), program.name_scope("model_average"):
            one = call("fill_constant", [1], "float32", 1.0)
            counts = [
                _keep(program, self._startup, f"{name or 'average'}_{n}", one) for n in ("steps", "window", "before")
            ]
            # A restart copies by multiplication with 0 and 1 instead of a branch: every step runs the same ops, and no host has to look.
            self._counts = counts
            steps, window, before = counts
            for count in (steps, window):
                call("sums", [count, one], count)
            restart = self._restarts(steps, window)
            stay = call("scale", restart, -1.0, 1.0)
            for p in self._parameters:
                total = _keep(program, self._startup, f"{p.name}_sum", p)
                old = _keep(program, self._startup, f"{p.name}_sum_before", p)
                call("sums", [total, p], total)
                self._shift(total, old, restart, stay)
                self._kept[p.name] = total, old
            self._shift(window, before, restart, stay)

    def _restarts(self, steps: Any, window: Any) -> Any:
        """Return 1 where the window is full, else 0."""
        from pe_cli.paddle.fluid.layers.ops import greater_equal

        rate, least, most = self._window
        bound = call("elementwise_min", call("scale", steps, rate), call("fill_constant", [1], "float32", float(most)))
        bound = call("elementwise_max", bound, call("fill_constant", [1], "float32", float(least)))
        return call("cast", greater_equal(window, bound), "float32")

    @staticmethod
    def _shift(now: Any, before: Any, restart: Any, stay: Any) -> None:
        """Where the window restarts: before = now, now = 0."""
        # `before` first: it reads `now`, which the next line clears.
        parts = [call("elementwise_mul", now, restart), call("elementwise_mul", before, stay)]
        call("sums", parts, before)
        call("assign", call("elementwise_mul", now, stay), now)

    def _value(self, parameter: Parameter, scope: Scope) -> np.ndarray[Any, Any]:
        total, old = (scope.read(v.name) for v in self._kept[parameter.name])
        # Steps of the window before and of the one that runs; 0 before the first step, where parameters stand for their mean.
        steps = sum(float(scope.read(v.name)[0]) for v in self._counts[1:])
        return np.asarray((total + old) / steps if steps else scope.read(parameter.name))
