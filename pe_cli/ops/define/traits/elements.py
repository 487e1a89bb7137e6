"""Traits about how elements of outputs follow from elements of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pe_cli.kernels.lang import Kernel
from pe_cli.ops.define.traits.trait import Trait


@dataclass(frozen=True)
class Scalar:
    """An element of a result as a function of the elements at the same place, for passes that join pointwise ops.

    Args:
        out: output slot, or a name for later ones.
        kernel: whose `each` is the function; None passes the argument on.
        args: input slots, of a variadic slot `X 0`, `X 1`, ..., or names of earlier ones.
        values: numbers that the function takes last.
    """

    out: str
    kernel: Kernel | None
    args: tuple[str, ...]
    values: tuple[float, ...] = ()


class Pointwise(Trait):
    """Every element of the outputs follows from the elements at the same place.

    Args:
        scalars: `f(attributes, inputs by slot) -> [Scalar]`, how the outputs are computed, in order; Y is broadcast by the attribute
            `axis` where the op has one. An empty list where these attributes ask for more.
    """

    scalars: Callable[[Mapping[str, Any], Mapping[str, Sequence[Any]]], list[Scalar]]


class Folds(Trait):
    """Where all elements of every input are one number, those of the output are, too.

    Args:
        value: `f(numbers of the inputs, attributes)` -> the number of the output, computed as the kernel does, in the inputs' type.
        alone: the attributes say the number, whatever the inputs are: `f((type,), attributes)`.
    """

    value: Callable[[Sequence[Any], Mapping[str, Any]], Any]
    alone: bool = False


class SameNumbers(Trait):
    """The output has the numbers of the input, in another order, shape or element type."""


class Absorbed(Trait):
    """Passes make the op a part of the one before it, whose threads share it.

    Args:
        parameter: input slot that has to be a parameter; empty for any.
    """

    parameter: str = ""
