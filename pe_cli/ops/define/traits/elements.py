"""Traits about how elements of outputs follow from elements of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.language import Kernel
from pe_cli.ops.define.traits.trait import Named, Trait, need


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


class Narrow(Trait):
    """Values that the op reads and writes may be stored as bfloat16: it computes in float32, and rounds what it writes once.

    Ops that are pointwise, views or move numbers may store so without this trait; so may the gradient of an op that has it.

    Args:
        factors: inputs that products are taken of, which tensor cores have as bfloat16: they are rounded even where they are float32. An
            op with factors gains by narrow values; one without passes them on.
        keeps: slots that stay float32, with their gradients: statistics, and what is too small to gain.
    """

    factors: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()

    def verify(self, op: Named) -> None:
        need(op, self.factors)
        known = {*op.slot_names(outputs=False), *op.slot_names(outputs=True)}
        # `back` hands on all of `keeps`, and a gradient op lacks the slots among them that it does not read.
        assert op.is_grad_of is not None or known.issuperset(self.keeps), f"{op.name} has no {', '.join(set(self.keeps) - known)}"

    def says(self) -> tuple[str, str]:
        rounded = f"; {', '.join(self.factors)} are rounded" if self.factors else ""
        return "bfloat16", f"with precision bf16 its values may be stored as bfloat16{rounded}"

    def back(self, uses: Sequence[str], outputs: Sequence[str]) -> Narrow:
        """Return the trait of the gradient op.

        Args:
            uses: forward slots that it reads.
            outputs: slots of the gradients of outputs that it reads.
        """
        wide = {f"{slot}@GRAD" for slot in self.keeps}
        factors = [s for s in self.factors if s in uses] + [s for s in outputs if self.factors and s not in wide]
        return Narrow(tuple(factors), (*self.keeps, *sorted(wide)))


class Absorbed(Trait):
    """Passes let the op before it do this op, too, so that its threads share the work.

    Args:
        parameter: input slot that has to be a parameter; empty for any.
    """

    parameter: str = ""
