"""nn.initializer: first values by 2.x's names and arguments."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.helper import FIRST_VALUES
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as, raising
from pe_cli.paddle.fluid import initializer as fluid
from pe_cli.paddle.reference_names import missing
from pe_cli.program import initializer as core
from pe_cli.program.ir import Block, Operator, Variable

#: Activation, or layer without one -> gain.
GAINS = {
    "sigmoid": 1.0, "linear": 1.0, **{f"conv{n}d{end}": 1.0 for end in ("", "_transpose") for n in (1, 2, 3)}, "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0), "selu": 0.75,
}  # fmt: skip


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


@dataclass(frozen=True)
class _Kaiming(core.MSRA):
    """The core's for any activation, whose variance is gain^2 / fan_in."""

    gain: float = math.sqrt(2.0)

    def connections(self, variable: Variable) -> float:
        """Return as many as have the variance."""
        return super().connections(variable) * 2.0 / self.gain**2


def KaimingNormal(
    fan_in: float | None = None, negative_slope: float = 0.0, nonlinearity: str = "relu"
) -> core.Initializer:
    """Draw normally, so that variances stay through a layer and an activation (He); see `calculate_gain`."""
    return _Kaiming(False, fan_in, 0, calculate_gain(nonlinearity, negative_slope))


def KaimingUniform(
    fan_in: float | None = None, negative_slope: float = 0.0, nonlinearity: str = "relu"
) -> core.Initializer:
    """Draw evenly, so that variances stay through a layer and an activation (He); see `calculate_gain`."""
    return _Kaiming(True, fan_in, 0, calculate_gain(nonlinearity, negative_slope))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return by how much an activation lets variances fall, as a factor of deviations.

    Args:
        nonlinearity: sigmoid, linear, conv1d to conv3d, also transposed, tanh, relu, leaky_relu or selu.
        param: slope of leaky_relu below 0, 0.01 by default.

    Raises:
        FluidValueError: another name; a ValueError.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else float(param)) ** 2))
    if nonlinearity not in GAINS:
        raise FluidValueError(f"calculate_gain: nonlinearity is {nonlinearity!r}", hint=f"leaky_relu, {', '.join(GAINS)}")
    return GAINS[nonlinearity]


def set_global_initializer(weight_init: core.Initializer | None, bias_init: core.Initializer | None = None) -> None:
    """Set how parameters that are made from now on start where a layer's attributes do not say it; None takes what layers have.

    Raises:
        FluidTypeError: something else than initializers; a TypeError.
    """
    for name, given in (("weight_init", weight_init), ("bias_init", bias_init)):
        if given is not None and not isinstance(given, core.Initializer):
            raise FluidTypeError(f"set_global_initializer: {name} is {given!r}", hint="an initializer, or None")
    FIRST_VALUES.update(w=weight_init, b=bias_init)


@dataclass(frozen=True)
class _Dirac(core.Initializer):
    groups: int

    @raised_as(FluidValueError)
    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append the values."""
        shape = variable.shape
        if len(shape) not in (3, 4, 5) or shape[0] % self.groups:
            raise FluidValueError(f"Dirac: '{variable.name}' is {variable.type}", hint="three to five axes, the first divisible by groups")
        each = shape[0] // self.groups
        value = np.zeros(shape, variable.dtype)
        middle = tuple(n // 2 for n in shape[2:])
        for group in range(self.groups):
            for i in range(min(each, shape[1])):
                value[(group * each + i, i, *middle)] = 1.0
        return fluid.NumpyArray(value)(variable, block)


def Dirac(groups: int = 1, name: str | None = None) -> core.Initializer:
    """Start a convolution as one that hands its channels on: 1 in the middle of each channel's own filter.

    Args:
        groups: of the convolution.
        name: without effect.

    Raises:
        FluidValueError: groups is below 1; a ValueError.
    """
    if not isinstance(groups, int) or groups < 1:
        raise FluidValueError(f"Dirac: groups is {groups}", hint="a whole number, at least 1")
    return _Dirac(groups)


@dataclass(frozen=True)
class _Orthogonal(core.Initializer):
    gain: float

    @raised_as(FluidValueError)
    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append the values."""
        shape = variable.shape
        if len(shape) < 2:
            raise FluidValueError(f"Orthogonal: '{variable.name}' is {variable.type}", hint="at least two axes")
        seed = block.program.random_seed
        rng = np.random.default_rng([seed, zlib.crc32(variable.name.encode())] if seed else None)
        rows, columns = shape[0], int(np.prod(shape[1:]))
        found, triangle = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        # With the signs of the triangle each orthogonal matrix is as likely as another.
        found = found * np.sign(np.diag(triangle))
        return fluid.NumpyArray((self.gain * (found.T if rows < columns else found)).reshape(shape))(variable, block)


def Orthogonal(gain: float = 1.0, name: str | None = None) -> core.Initializer:
    """Draw a matrix whose rows, or columns where there are fewer of these, are orthogonal to each other (Saxe et al. 2013).

    It is drawn when the parameter is made, by the seed that the startup program has then.

    Args:
        gain: length of each.
        name: without effect.
    """
    return _Orthogonal(float(gain))


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
    "Assign", "Bilinear", "Constant", "Dirac", "KaimingNormal", "KaimingUniform", "Normal", "Orthogonal", "TruncatedNormal", "Uniform",
    "XavierNormal", "XavierUniform", "calculate_gain", "set_global_initializer",
]  # fmt: skip
__getattr__ = missing("paddle.nn.initializer", lambda: globals())
