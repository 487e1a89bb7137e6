"""Initializers, with and without the original's suffix."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from pe_cli.core.types import product
from pe_cli.paddle.errors import FluidValueError, raising
from pe_cli.program import initializer as core
from pe_cli.program.initializer import Initializer
from pe_cli.program.ir import Block, Operator, Variable


@raising
class Constant(core.Constant):
    """The core's."""


@raising
class MSRA(core.MSRA):
    """The core's."""


@raising
class Normal(core.Normal):
    """The core's."""


@raising
class TruncatedNormal(core.TruncatedNormal):
    """The core's."""


@raising
class Xavier(core.Xavier):
    """The core's."""


@raising
class NumpyArray(core.NumpyArray):
    """The core's."""


@raising
class Uniform(core.Uniform):
    """The core's, with the original's arguments.

    Args:
        low, high, seed: see the core's.
        diag_num: how many elements of a diagonal get a value of their own.
        diag_step: elements from one row to the next, less those of the row before: element i (diag_step + 1) is the diagonal's i-th.
        diag_val: their value.
    """

    def __init__(
        self, low: float = -1.0, high: float = 1.0, seed: int = 0, diag_num: int = 0, diag_step: int = 0, diag_val: float = 1.0
    ) -> None:
        super().__init__(low, high, seed)
        # The core's classes are frozen; `diagonal` belongs to this one alone.
        object.__setattr__(self, "diagonal", (int(diag_num), int(diag_step), float(diag_val)))

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append the op that draws, and those that write the diagonal.

        Raises:
            FluidValueError: the diagonal is longer than the variable; a ValueError.
        """
        drawn = super().__call__(variable, block)
        count, step, value = self.diagonal  # type: ignore[attr-defined]
        if not count:
            return drawn
        size = product(variable.shape)
        # The last element of the diagonal must lie inside: count - 1 steps of step + 1 elements.
        if count < 0 or step < 0 or size <= (count - 1) * (step + 1):
            text = f"Uniform: a diagonal of {count} elements {step + 1} apart does not fit '{variable.name}', which is {variable.type}"
            raise FluidValueError(text, hint="use a smaller diag_num or diag_step")
        flat, ids, values, made = (block.program.unique(f"{variable.name}.diagonal") for _ in range(4))
        places = {"shape": [count], "dtype": "int64", "values": [i * (step + 1) for i in range(count)]}
        # As a vector, so that one scatter writes the diagonal of any shape.
        block.append_op("reshape", {"X": variable.name}, {"Out": flat}, {"shape": [size]})
        block.append_op("assign_value", {}, {"Out": ids}, places)
        block.append_op("fill_constant", {}, {"Out": values}, {"shape": [count], "dtype": variable.dtype, "value": value})
        block.append_op("scatter", {"X": flat, "Ids": ids, "Updates": values}, {"Out": made})
        return block.append_op("reshape", {"X": made}, {"Out": variable.name}, {"shape": list(variable.shape)})


@raising
class Bilinear(core.Bilinear):
    """The original's weights, which lean to one side: under Python 3 it takes a row's number with the part of the row that is done.

    `Bilinear` of a config, and of `paddle.nn.initializer`, is the one that enlarges images evenly.
    """

    def row_numbers(self, size: int) -> Any:
        """Return [size, size] numbers of rows that are not whole: that of the row, and column / size."""
        rows, columns = np.mgrid[:size, :size]
        return rows + columns / size


@raising
class NumpyArrayInitializer(core.NumpyArray):
    """The core's, whose number of values is looked at where the startup program runs, as the original does.

    Args:
        value: array or nested list of the variable's shape; at most 2**20 elements.
    """

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return the values in order."""
        return self.values(variable)


#: Of each `init_on_cpu` that is open, that it is.
_ON_CPU: list[bool] = []


@contextlib.contextmanager
def init_on_cpu() -> Iterator[None]:
    """Scripts of 1.3 to 1.6 make their schedules in it, so that the first values are made on the CPU, where they are made here anyway."""
    _ON_CPU.append(True)
    try:
        yield
    finally:
        _ON_CPU.pop()


def force_init_on_cpu() -> bool:
    """Return whether an `init_on_cpu` is open."""
    return bool(_ON_CPU)


BilinearInitializer = Bilinear
ConstantInitializer = Constant
MSRAInitializer = MSRA
NormalInitializer = Normal
TruncatedNormalInitializer = TruncatedNormal
UniformInitializer = Uniform
XavierInitializer = Xavier

__all__ = [
    "MSRA", "Bilinear", "BilinearInitializer", "Constant", "ConstantInitializer", "Initializer", "MSRAInitializer",
    "Normal", "NormalInitializer", "NumpyArray", "NumpyArrayInitializer", "TruncatedNormal",
    "TruncatedNormalInitializer", "Uniform", "UniformInitializer", "Xavier", "XavierInitializer", "force_init_on_cpu", "init_on_cpu",
]  # fmt: skip
