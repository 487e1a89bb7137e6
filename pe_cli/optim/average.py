"""Moving averages of parameters, appended after their updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Parameter, Program, Role, Variable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MovingAverage:
    """Variables that hold the averages of some parameters.

    Args:
        averages: parameter -> its average, not yet corrected.
        weights: parameter -> [1], the weight that the average has seen; 0 before the first step.
    """

    averages: Mapping[str, str]
    weights: Mapping[str, str]

    def values(self, read: Callable[[str], Array]) -> dict[str, Array]:
        """Return the corrected averages by parameter, nothing before the first step.

        Args:
            read: returns a variable's value.
        """
        found = {}
        for parameter, average in self.averages.items():
            weight = read(self.weights[parameter])
            # An average begins at 0: divided by the weight that it has seen so far, it is one over the steps that there were.
            if weight[0]:
                value = read(average)
                found[parameter] = np.asarray(value / weight.astype(value.dtype), value.dtype)
        return found


def append_moving_average(
    program: Program, startup: Program, parameters: Sequence[Parameter], decay: float | Variable, name: str = ""
) -> MovingAverage:
    """Append the ops that let parameters into their averages, once a step; call it after their updates.

    Args:
        program: gets the ops.
        startup: gets the first values, 0.
        parameters: of the program.
        decay: part of an average that stays each step, in (0, 1), or a [1] variable.
        name: part of the variables' names.
    """
    averages: dict[str, str] = {}
    weights: dict[str, str] = {}
    shared: dict[str, tuple[str, str]] = {}
    with program.role(Role.OPTIMIZE), program.name_scope("moving_average"):
        for p in parameters:
            # The weight is the same for all parameters of an element type, so it is kept once.
            if p.dtype not in shared:
                shared[p.dtype] = _common(program, startup, p.dtype, decay, name)
            rate, weight = shared[p.dtype]
            averages[p.name] = _kept(program, startup, f"{p.name}{name}_ema", p.type)
            weights[p.name] = weight
            _move(program, p.name, averages[p.name], rate)
    return MovingAverage(averages, weights)


def _common(program: Program, startup: Program, dtype: str, decay: float | Variable, name: str) -> tuple[str, str]:
    """Append what all parameters of an element type share: the decay, and the weight that was seen."""
    block = program.main_block
    rate = decay.name if isinstance(decay, Variable) else program.unique(f"ema{name}_decay")
    one = program.unique(f"ema{name}_one")
    if not isinstance(decay, Variable):
        block.append_op("fill_constant", {}, {"Out": rate}, {"shape": [1], "dtype": dtype, "value": float(decay)})
    block.append_op("fill_constant", {}, {"Out": one}, {"shape": [1], "dtype": dtype, "value": 1.0})
    weight = _kept(program, startup, f"ema{name}_weight", TensorType((1,), dtype))
    _move(program, one, weight, rate)
    return rate, weight


def _kept(program: Program, startup: Program, name: str, kind: TensorType) -> str:
    # Named with the program's prefix, because averages live between steps and two phases may share a scope.
    made = program.main_block.create_var(program.unique_own(name), kind, persistable=True, stop_gradient=True)
    Constant(0.0)(made, startup.main_block)
    return made.name


def _move(program: Program, x: str, average: str, decay: str) -> None:
    ins = {"X": x, "Average": average, "Decay": decay}
    program.main_block.append_op("moving_average", ins, {"AverageOut": average})
