"""How an op sees a region that it runs: the names in it and the types of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr


class Body(Protocol):
    """A region, see `pe_cli.program.region.Region`."""

    args: tuple[str, ...]
    results: tuple[str, ...]

    def types(self, args: Sequence[TensorType], like: Sequence[TensorType] = ()) -> dict[str, TensorType]:
        """Return the types of its variables for those of its arguments."""


def region_attr(doc: str) -> Attr:
    """Return an attribute that is a region."""
    return Attr(None, f"{doc}; a region")


def checked(op: str, name: str, body: Any, args: int, results: int | None = None) -> Body:
    """Return a region.

    Args:
        op: that has it.
        name: of the attribute.
        body: its value.
        args: how many arguments it must have.
        results: how many results; None for any number.

    Raises:
        PeError: it is no region, or has other numbers of arguments or results.
    """
    if body is None or not hasattr(body, "results"):
        raise PeError(f"op '{op}' needs a region {name}")
    found: Body = body
    if len(found.args) != args:
        raise PeError(f"op '{op}': its region {name} has {len(found.args)} arguments for {args} inputs")
    if results is not None and len(found.results) != results:
        raise PeError(f"op '{op}': its region {name} has {len(found.results)} results for {results}")
    return found


def results_of(op: str, name: str, body: Body, args: Sequence[TensorType], like: Sequence[TensorType] = ()) -> list[TensorType]:
    """Return the types of a region's results.

    Raises:
        PeError: an op in it does not fit, with its place.
    """
    types = body.types(args, like)
    return [types[n] for n in body.results]


class StateVaries(PeError):
    """A state of a loop has another size after a round than before it."""


def either(a: TensorType, b: TensorType) -> TensorType:
    """Return the type of what is one or the other: sizes that differ are not known; of other numbers of axes the second counts."""
    if len(a.shape) != len(b.shape):
        return b
    return a.with_shape(*(p if p == q else -1 for p, q in zip(a.shape, b.shape, strict=True)))


def same_sizes(before: TensorType, after: TensorType) -> bool:
    """Whether a state may become the other: sizes that are known agree."""
    if before.dtype != after.dtype or len(before.shape) != len(after.shape):
        return False
    return all(a == b or -1 in (a, b) for a, b in zip(before.shape, after.shape, strict=True))
