"""Initializers: each appends one op to the startup program that writes a parameter's first value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pe_cli.core.errors import PeError, WrongType
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS, product
from pe_cli.program.ir import Block, Operator, Variable

#: Elements that `assign_value` may hold: it is written into every saved program.
MAX_VALUES = 1 << 20


def compute_fans(shape: Sequence[int]) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a weight, as fluid counts them.

    Args:
        shape: [in, out] of a matrix; [out, in, *receptive field] of a convolution; a vector counts its length twice.

    Returns:
        Connections into and out of one unit.
    """
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    field = product(shape[2:])
    return shape[1] * field, shape[0] * field


def declare(variable: Variable, block: Block) -> None:
    """Make the startup program's variable that stands for a variable of the main program, unless it is there."""
    # A parameter that two layers share has one first value.
    if variable.name not in block.vars:
        block.create_var(variable.name, variable.type, persistable=True, at=variable.at)


class Initializer:
    """Base: `initializer(variable, startup_block)` appends the op."""

    op: ClassVar[str] = ""

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return the op's attributes apart from shape and dtype."""
        raise NotImplementedError

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append the op that writes a variable's first value.

        Args:
            variable: of the main program; all sizes known.
            block: of the startup program; the variable is declared there.

        Raises:
            PeError: a size of the variable is unknown, or it is not made for this initializer.
        """
        name = type(self).__name__
        if not variable.type.known:
            raise PeError(f"{name} cannot initialize '{variable.name}', whose type is {variable.type}", at=variable.at)
        if variable.dtype not in FLOATS and not isinstance(self, (Constant, NumpyArray)):
            message = f"{name} needs a float variable, '{variable.name}' is {variable.type}"
            raise WrongType(message, at=variable.at, hint="use Constant")
        attrs = {"shape": list(variable.shape), "dtype": variable.dtype, **self.attrs(variable)}
        # In the startup program a variable is a variable of its own, which the scope joins by name.
        declare(variable, block)
        return block.append_op(self.op, {}, {"Out": variable.name}, attrs, at=variable.at)


@dataclass(frozen=True)
class Constant(Initializer):
    """Every element is one value.

    Args:
        value: no unit.
        force_cpu: without effect: every first value is made on the CPU.
    """

    op: ClassVar[str] = "fill_constant"
    value: float = 0.0
    force_cpu: bool = False

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return the value."""
        return {"value": float(self.value)}


@dataclass(frozen=True)
class Uniform(Initializer):
    """Independent draws from [low, high).

    Args:
        low, high: no unit, low < high.
        seed: 0 takes the program's.

    Raises:
        PeError: low is above high.
    """

    op: ClassVar[str] = "uniform_random"
    low: float = -1.0
    high: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise PeError(f"Uniform needs low <= high, got low {self.low} and high {self.high}")

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return the bounds."""
        return {"min": float(self.low), "max": float(self.high), "seed": self.seed}


@dataclass(frozen=True)
class Normal(Initializer):
    """Independent normal draws.

    Args:
        loc: mean, no unit.
        scale: standard deviation, at least 0.
        seed: 0 takes the program's.

    Raises:
        PeError: scale is negative.
    """

    op: ClassVar[str] = "gaussian_random"
    loc: float = 0.0
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.scale >= 0:
            raise PeError(f"{type(self).__name__} needs scale >= 0, got {self.scale}")

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return mean and deviation."""
        return {"mean": float(self.loc), "std": float(self.scale), "seed": self.seed}


class TruncatedNormal(Normal):
    """Normal draws, redrawn outside two standard deviations from the mean; arguments of `Normal`."""

    # Bounds of two deviations are fluid's.
    op: ClassVar[str] = "truncated_gaussian_random"


class _Scaled(Initializer):
    """Draws whose variance is 2 / connections (normal), with the same variance when uniform."""

    uniform: bool
    seed: int

    def connections(self, variable: Variable) -> float:
        raise NotImplementedError

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append a uniform or normal draw scaled by the variable's connections."""
        fan = self.connections(variable)
        if fan <= 0:
            name = type(self).__name__
            raise PeError(f"{name} needs connections, '{variable.name}' is {variable.type}", at=variable.at)
        limit, deviation = math.sqrt(6.0 / fan), math.sqrt(2.0 / fan)
        # A uniform draw on [-limit, limit] has the variance limit^2 / 3, which is why the limit has 6 where the deviation has 2.
        draw = Uniform(-limit, limit, self.seed) if self.uniform else Normal(0.0, deviation, self.seed)
        return draw(variable, block)


@dataclass(frozen=True)
class Xavier(_Scaled):
    """Keep the variance of activations and gradients through a layer.

    uniform: limit sqrt(6 / (fan_in + fan_out)); normal: deviation sqrt(2 / (fan_in + fan_out)).

    Args:
        uniform: uniform or normal draws.
        fan_in, fan_out: connections; default: from the variable's shape.
        seed: 0 takes the program's.

    Source:
        Glorot and Bengio 2010, eq. 12 and 16.
    """

    uniform: bool = True
    fan_in: float | None = None
    fan_out: float | None = None
    seed: int = 0

    def connections(self, variable: Variable) -> float:
        """Return fan_in + fan_out."""
        fan_in, fan_out = compute_fans(variable.shape)
        return (fan_in if self.fan_in is None else self.fan_in) + (fan_out if self.fan_out is None else self.fan_out)


@dataclass(frozen=True)
class MSRA(_Scaled):
    """Keep the variance of activations through a layer followed by relu.

    uniform: limit sqrt(6 / fan_in); normal: deviation sqrt(2 / fan_in).

    Args:
        uniform: uniform or normal draws.
        fan_in: connections; default: from the variable's shape.
        seed: 0 takes the program's.

    Source:
        He et al. 2015, eq. 10.
    """

    uniform: bool = True
    fan_in: float | None = None
    seed: int = 0

    def connections(self, variable: Variable) -> float:
        """Return fan_in."""
        return compute_fans(variable.shape)[0] if self.fan_in is None else self.fan_in


@dataclass(frozen=True, eq=False)
class NumpyArray(Initializer):
    """Given values.

    Args:
        value: array or nested list of the variable's shape; at most 2**20 elements.

    Raises:
        PeError: when called: another shape, or too many elements.
    """

    op: ClassVar[str] = "assign_value"
    value: Any

    def attrs(self, variable: Variable) -> dict[str, Any]:
        """Return the values in order.

        Raises:
            PeError: the values do not fit the variable, or are too many for a program.
        """
        value = np.asarray(self.value)
        if value.shape != variable.shape:
            message = f"NumpyArray has shape {list(value.shape)}, '{variable.name}' is {variable.type}"
            raise PeError(message, at=variable.at)
        return self.values(variable)

    def values(self, variable: Variable) -> dict[str, Any]:
        """Return the values in order, however many there are.

        Raises:
            PeError: they are too many for a program.
        """
        value = np.asarray(self.value)
        if value.size > MAX_VALUES:
            message = f"NumpyArray takes at most {MAX_VALUES} elements, got {value.size}"
            raise PeError(message, at=variable.at, hint="load a checkpoint instead")
        return {"values": value.astype(variable.dtype).ravel().tolist()}


@dataclass(frozen=True)
class Bilinear(Initializer):
    """Weights with which a transposed convolution enlarges images by bilinear interpolation.

    W[.., y, x] = (1 - |x/f - c|) (1 - |y/f - c|), f = ceil(size/2), c = (2f - 1 - f mod 2) / (2f).

    Raises:
        PeError: when called: the variable is not [.., .., size, size].
    """

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append the weights as values."""
        shape = variable.shape
        if len(shape) != 4 or shape[2] != shape[3]:
            message = f"Bilinear needs a weight [.., .., size, size], '{variable.name}' is {variable.type}"
            raise PeError(message, at=variable.at)
        size = shape[3]
        f = math.ceil(size / 2)
        across, down = (1 - np.abs(n / f - (2 * f - 1 - f % 2) / (2.0 * f)) for n in (np.arange(size), self.row_numbers(size)))
        return NumpyArray(np.broadcast_to(across * down, shape))(variable, block)

    def row_numbers(self, size: int) -> np.ndarray[Any, Any]:
        """Return the number of the row of every element, [size, 1] or [size, size]."""
        return np.arange(size)[:, None]


#: Initializers by the type that a config names, with and without fluid's suffix; keyword arguments only.
INITIALIZERS: dict[str, Callable[..., Initializer]] = {
    name + suffix: made
    for suffix in ("", "Initializer")
    for name, made in {
        "Constant": Constant,
        "Uniform": Uniform,
        "Normal": Normal,
        "TruncatedNormal": TruncatedNormal,
        "Xavier": Xavier,
        "MSRA": MSRA,
        "Bilinear": Bilinear,
        "NumpyArray": NumpyArray,
    }.items()
}
