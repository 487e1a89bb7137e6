"""Values of an ONNX graph while it is read: constants, variables of the model, and sizes of which some are not known yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from fractions import Fraction
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]


class Unimportable(PeError):
    """A node has no layer here, or none with its inputs and attributes.

    Args:
        message, hint: as of every error.
        kind: domain and name of the node's operator, where it is known.
    """

    def __init__(self, message: str, hint: str | None = None, kind: tuple[str, str] | None = None) -> None:
        super().__init__(message, hint=hint, code=ExitCode.DATA)
        self.kind = kind


class NeedsConstant(Unimportable):
    """A layer has as a parameter or an argument what the graph computes or is fed.

    Args:
        value: name in the graph.
        what: what it is for.
    """

    def __init__(self, value: str, what: str) -> None:
        super().__init__(f"{what}, '{value}', is computed from what is fed, and a layer needs it as a constant")
        self.value = value


@dataclass(frozen=True)
class Symbol:
    """A size that is not known yet, times a number.

    Args:
        name: of the size.
        factor: whole or a fraction.
    """

    name: str
    factor: Fraction = Fraction(1)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int | np.integer):
            return Symbol(self.name, self.factor * int(other)) if other else 0
        # Python raises TypeError then, and the node becomes a layer instead of a size.
        return NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Symbol) and other.name == self.name and (self.factor / other.factor).denominator == 1:
            return int(self.factor / other.factor)
        if isinstance(other, int | np.integer) and other:
            return Symbol(self.name, self.factor / int(other))
        return NotImplemented

    __truediv__ = __floordiv__

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int | np.integer) and other == 0:
            return self
        if isinstance(other, Symbol) and other.name == self.name:
            return Symbol(self.name, self.factor + other.factor)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, int | np.integer) and other == 0:
            return self
        return NotImplemented


Size = int | Symbol
#: The first axis of everything that is fed.
BATCH = Symbol("batch")


@dataclass(frozen=True)
class Value:
    """One value of a graph: exactly one of constant, variable, sizes and items.

    Args:
        dtype: element type, one of ours.
        constant: an array.
        variable: name in the model's program.
        sizes: whole numbers, of which some are symbols; an array of objects.
        dims: sizes of a variable.
        scalar: the variable is [1], and the graph's value has no axis.
        initializer: name of the initializer that a constant is.
        said: ONNX's name of its element type, where the file says one that none of ours is.
        later: computes sizes in the step, where a layer takes them as numbers, or a constant that parameters tell.
        trained: it is a parameter of the network.
        items: of a sequence, whose type and shape say nothing then.
        made_by: node that computes a constant of parameters; a `Node`.
    """

    dtype: str
    constant: Array | None = None
    variable: str | None = None
    sizes: Array | None = None
    dims: tuple[Size, ...] = ()
    scalar: bool = False
    initializer: str | None = None
    said: str = ""
    later: Callable[[], Value] | None = field(default=None, compare=False)
    trained: bool = False
    items: tuple[Value, ...] | None = None
    made_by: Any = field(default=None, compare=False, repr=False)

    @property
    def shape(self) -> tuple[Size, ...]:
        """Sizes as the graph has them."""
        if self.constant is not None:
            return tuple(self.constant.shape)
        if self.sizes is not None:
            return tuple(self.sizes.shape)
        return () if self.scalar else self.dims

    @property
    def settled(self) -> Array | None:
        """A constant that training does not change, as far as it is one."""
        return None if self.trained or self.later is not None else self.constant

    @property
    def rank(self) -> int:
        """Number of axes as the graph has them."""
        return len(self.shape)


def product(sizes: Sequence[Size]) -> Size:
    """Multiply sizes."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def known(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """Return sizes with -1 for those that are not known."""
    return tuple(size if isinstance(size, int) else -1 for size in shape)


def is_filled(array: Array) -> bool:
    """Tell whether all values of an array are alike, as they are before a network has learned."""
    return bool(array.size and (array == array.reshape(-1)[0]).all())


def described(dims: Sequence[Size]) -> str:
    """Return sizes as a comment shows them."""
    return f"[{', '.join(str(size) if isinstance(size, int) else _symbol(size) for size in dims)}]"


def _symbol(size: Symbol) -> str:
    return size.name if size.factor == 1 else f"{size.factor} {size.name}"
