"""The base of all traits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pe_cli.core.value_class import Value


class Named(Protocol):
    """What a trait looks at of an op."""

    name: str
    is_grad_of: str | None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes by name."""

    def slot_names(self, *, outputs: bool) -> list[str]:
        """Return the names of input or of output slots."""


class Trait(Value):
    """Something that an op can do; see `Value`."""

    def verify(self, op: Named) -> None:
        """Check that the trait fits the op.

        Raises:
            AssertionError: it names a slot or an attribute that the op does not have.
        """

    def says(self) -> tuple[str, str] | None:
        """Return a title and a sentence for the op's page; None where users need not know."""
        return None


def need(op: Named, names: Sequence[str], *, outputs: bool = False) -> None:
    known = op.slot_names(outputs=outputs)
    missing = [n for n in names if n not in known]
    assert not missing, f"{op.name} has no {'output' if outputs else 'input'} {', '.join(missing)}"
