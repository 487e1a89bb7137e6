"""nn.initializer: first values by 2.x's names and arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError, raising
from pe_cli.paddle.fluid import initializer as fluid
from pe_cli.paddle.reference_names import missing
from pe_cli.program import initializer as core
from pe_cli.program.ir import Variable


def Constant(value: float = 0.0) -> core.Initializer:
    """Make every element one value."""
    return fluid.Constant(value)


def Normal(mean: float = 0.0, std: float = 1.0, name: str | None = None) -> core.Initializer:
    """Draw from a normal distribution."""
    return fluid.Normal(mean, std)


def TruncatedNormal(mean: float = 0.0, std: float = 1.0, name: str | None = None) -> core.Initializer:
    """Draw from a normal distribution, again where a number is further than two deviations from its mean."""
    return fluid.TruncatedNormal(mean, std)


def Uniform(low: float = -1.0, high: float = 1.0, name: str | None = None) -> core.Initializer:
    """Draw evenly from [low, high)."""
    return fluid.Uniform(low, high)


def XavierNormal(fan_in: float | None = None, fan_out: float | None = None, name: str | None = None) -> core.Initializer:
    """Draw normally, so that variances stay through a layer (Glorot)."""
    return fluid.Xavier(uniform=False, fan_in=fan_in, fan_out=fan_out)


def XavierUniform(fan_in: float | None = None, fan_out: float | None = None, name: str | None = None) -> core.Initializer:
    """Draw evenly, so that variances stay through a layer (Glorot)."""
    return fluid.Xavier(uniform=True, fan_in=fan_in, fan_out=fan_out)


def KaimingNormal(fan_in: float | None = None) -> core.Initializer:
    """Draw normally, so that variances stay through a layer and relu (He)."""
    return fluid.MSRA(uniform=False, fan_in=fan_in)


def KaimingUniform(fan_in: float | None = None) -> core.Initializer:
    """Draw evenly, so that variances stay through a layer and relu (He)."""
    return fluid.MSRA(uniform=True, fan_in=fan_in)


def Assign(value: Any, name: str | None = None) -> core.Initializer:
    """Take an array, a list or a number.

    Raises:
        FluidValueError: a variable, whose value no startup program has; a ValueError.
    """
    if isinstance(value, Variable):
        raise FluidValueError("Assign takes an array, a list or a number, got a variable", hint="give its value")
    return fluid.NumpyArray(np.asarray(value))


@raising
class Bilinear(core.Bilinear):
    """The core's."""


__all__ = [
    "Assign", "Bilinear", "Constant", "KaimingNormal", "KaimingUniform", "Normal", "TruncatedNormal", "Uniform", "XavierNormal",
    "XavierUniform",
]  # fmt: skip
__getattr__ = missing("paddle.nn.initializer", lambda: globals())
