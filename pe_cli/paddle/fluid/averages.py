"""Averages of parameters over training: ExponentialMovingAverage and ModelAverage, as ops after the updates."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, TensorType
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import autoincreased_step_counter
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.paddle.fluid.scope import Scope, global_scope
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Parameter, Program, Role, Variable

#: What a ModelAverage keeps of a parameter, and steps after which a sum goes on in another one.
_SUMS, _COUNTS = ("sum_1", "sum_2", "sum_3"), ("num_accumulates", "old_num_accumulates", "num_updates")
_MOST_IN_A_SUM = 16384


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
        self._kept: dict[str, Any] = {}
        self._now: tuple[Any, Any] | None = None
        if thres_steps is not None and thres_steps.dtype not in FLOATS:
            what = "ExponentialMovingAverage: an integer thres_steps has no effect, as in the original: give cast(steps, 'float32')"
            warnings.warn(what, stacklevel=2)
            self._steps = None

    def update(self) -> None:
        """Append the ops that average the parameters; call it after `minimize`."""
        program, start = self._program, self._startup.global_block()
        self._parameters = [p for p in program.global_block().parameters() if p.trainable]
        for p in self._parameters:
            self._kept[p.name] = _keep(program, self._startup, f"{self._name}{p.name}_ema", p)
        with program.role(Role.OPTIMIZE), program.name_scope("moving_average"), apart("moving_average"):
            counter = autoincreased_step_counter("@EMA_STEP_COUNTER@")
            # The rate is an op of the program, as it may grow with a counter that only the step knows.
            kind = TensorType((1,), "float32")
            rate = program.global_block().create_var("scheduled_ema_decay_rate", kind, persistable=True, stop_gradient=True)
            if rate.name not in start.vars:
                Constant(float(self._decay))(rate, start)
            call("assign", self._rate(), rate)
            rest = call("scale", rate, -1.0, 1.0)
            for p in self._parameters:
                average = self._kept[p.name]
                shares = [part if part.dtype == p.dtype else call("cast", part, p.dtype) for part in (rate, rest)]
                old, new = (call("elementwise_mul", v, share) for v, share in zip((average, p), shares, strict=True))
                call("assign", call("elementwise_add", old, new), average)
        self._now = rate, counter
        many = len(self._parameters)
        each = {"assign": 5, "switch": 1, "tmp": 8, "conditional_block": 1, "logical_not": 1, "_generated_var": 1}
        use({"cast": 1, "elementwise_pow": 1, "global_step_counter": 1, **{key: many * count for key, count in each.items()}})

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
        if self._now is None:
            return scope.read(parameter.name)
        rate, steps = (float(scope.read(v.name)[0]) for v in self._now)  # the original corrects by the decay of the last step alone
        value = scope.read(self._kept[parameter.name].name)
        # Before the first step there is no average.
        return np.asarray(value / value.dtype.type(1.0 - rate**steps), value.dtype) if steps else scope.read(parameter.name)


class ModelAverage(_Average):
    """Mean of the parameters of the last steps.

    The window restarts when it holds at least min_average_window steps and at least as many as max_average_window, or as
    average_window_rate of all steps; the mean is over the window before and the one that runs. What it keeps has the names and values
    of the original: sums of the window that runs in two parts, the first of at most 16384 steps, and of the window before, with their
    counts of steps.

    Args:
        average_window_rate: part of all steps that a window holds.
        min_average_window: steps of a window, at least.
        max_average_window: steps of a window, at most.
        regularization: without effect.
        name: part of the variables' names.
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
        self._kept: dict[str, dict[str, Any]] = {}
        with program.role(Role.OPTIMIZE), program.name_scope("model_average"):
            for p in self._parameters:
                self._kept[p.name] = self._variables(p, name)
            with apart("model_average"):
                self._accumulate()
        many = len(self._parameters)
        use({"average_accumulate": many, "assign": 2 * many, "sum": 2 * many, "cast": 2 * many, "elementwise_div": many})

    def _variables(self, parameter: Parameter, name: str | None) -> dict[str, Any]:
        """Return what is kept of a parameter: three sums and three counts."""
        program, made = self._program, {}
        for what in (*_SUMS, *_COUNTS):
            full = program.unique("_".join(part for part in (parameter.name, name, what) if part))
            kind = parameter.type if what in _SUMS else TensorType((1,), "int64")
            made[what] = program.global_block().create_var(full, kind, persistable=True, stop_gradient=True)
            Constant(0.0)(made[what], self._startup.global_block())
        return made

    def _accumulate(self) -> None:
        """Append one step for all parameters, whose counts are the same."""
        from pe_cli.paddle.fluid.layers.ops import greater_equal

        if not self._parameters:
            return
        # A restart copies by multiplication with 0 and 1 instead of a branch: every step runs the same ops, and no host has to look.
        first, rest = self._kept[self._parameters[0].name], self._parameters[1:]
        updates, counted, before = (first[what] for what in ("num_updates", "num_accumulates", "old_num_accumulates"))
        for count in (updates, counted):
            count.block.append_op("increment", {"X": count}, {"Out": count}, {"step": 1.0})
        steps, window = (call("cast", count, "float64") for count in (updates, counted))
        rate, least, most = self._window
        bound = call("elementwise_min", call("scale", steps, rate), call("fill_constant", [1], "float64", float(most)))
        bound = call("elementwise_max", bound, call("fill_constant", [1], "float64", float(least)))
        full = call("cast", greater_equal(window, bound), "float64")
        # A long sum goes on in another variable, so that its digits last.
        whole = call("scale", call("floor", call("scale", steps, 1.0 / _MOST_IN_A_SUM)), float(_MOST_IN_A_SUM))
        rolled = call("cast", greater_equal(whole, steps), "float64")
        for p in self._parameters:
            self._add(p, *(call("cast", mask, p.dtype) for mask in (full, rolled)))
        stay = call("scale", full, -1.0, 1.0)
        old = call("sums", [call("elementwise_mul", window, full), call("elementwise_mul", call("cast", before, "float64"), stay)])
        call("assign", call("cast", old, "int64"), before)
        call("assign", call("cast", call("elementwise_mul", window, stay), "int64"), counted)
        for p in rest:
            for what in _COUNTS:
                call("assign", first[what], self._kept[p.name][what])

    def _add(self, parameter: Parameter, full: Any, rolled: Any) -> None:
        """Add a parameter to its sums, and restart them where the window is full; `rolled`: the first part goes over to the second."""
        short, long, last = (self._kept[parameter.name][what] for what in _SUMS)
        stay, keep = (call("scale", mask, -1.0, 1.0) for mask in (full, rolled))
        added = call("sums", [short, parameter])
        moved = call("sums", [long, call("elementwise_mul", added, rolled)])
        left = call("elementwise_mul", added, keep)
        both = call("elementwise_mul", call("sums", [left, moved]), full)
        call("assign", call("sums", [both, call("elementwise_mul", last, stay)]), last)
        call("assign", call("elementwise_mul", left, stay), short)
        call("assign", call("elementwise_mul", moved, stay), long)

    def _value(self, parameter: Parameter, scope: Scope) -> np.ndarray[Any, Any]:
        kept = {what: scope.read(v.name) for what, v in self._kept[parameter.name].items()}
        # Steps of the window before and of the one that runs; 0 before the first step, where parameters stand for their mean.
        steps = float(kept["num_accumulates"][0] + kept["old_num_accumulates"][0])
        return np.asarray(sum(kept[what] for what in _SUMS) / steps if steps else scope.read(parameter.name))
