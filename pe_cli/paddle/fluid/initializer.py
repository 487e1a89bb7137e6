"""Initializers, with and without the original's suffix."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.errors import NotThereYet
from pe_cli.program.initializer import (
    MSRA,
    Constant,
    Initializer,
    Normal,
    NumpyArray,
    TruncatedNormal,
    Xavier,
)
from pe_cli.program.initializer import Bilinear as _Bilinear
from pe_cli.program.initializer import Uniform as _Uniform
from pe_cli.program.ir import Variable


class Uniform(_Uniform):
    """The core's, with the original's arguments.

    Args:
        low, high, seed: see the core's.
        diag_num, diag_step, diag_val: values on a diagonal, which are not there yet.

    Raises:
        NotThereYet: diag_num is not 0.
    """

    def __init__(
        self, low: float = -1.0, high: float = 1.0, seed: int = 0, diag_num: int = 0, diag_step: int = 0, diag_val: float = 1.0
    ) -> None:
        super().__init__(low, high, seed)
        if diag_num:
            raise NotThereYet("Uniform: diag_num is not there yet", hint="use NumpyArray, which takes any values")


class Bilinear(_Bilinear):
    """The original's weights, which lean to one side: under Python 3 it takes a row's number with the part of the row that is done.

    `Bilinear` of a config, and of `paddle.nn.initializer`, is the one that enlarges images evenly.
    """

    def row_numbers(self, size: int) -> Any:
        """Return [size, size] numbers of rows that are not whole: that of the row, and column / size."""
        rows, columns = np.mgrid[:size, :size]
        return rows + columns / size


class NumpyArrayInitializer(NumpyArray):
    """The core's, whose number of values is looked at where the startup program runs, as the original does.

    Args:
        value: array or nested list of the variable's shape; at most 2**20 elements.
    """

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return the values in order."""
        return self.values(variable)


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
    "TruncatedNormalInitializer", "Uniform", "UniformInitializer", "Xavier", "XavierInitializer",
]  # fmt: skip
