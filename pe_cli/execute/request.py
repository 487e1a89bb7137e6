"""A request for a plan: types of the feeds per device, samples, and fetches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.batch_rows import ToldRows
from pe_cli.graph.ssa import Graph
from pe_cli.program.sparse import rows_of


@dataclass(frozen=True)
class Request:
    """What a plan is for; equal requests share a plan.

    Args:
        feeds: per device: name -> type of its part of the batch.
        sizes: samples of each device.
        fetches: names of variables to read after the step.
        whole: feeds and samples of the devices of all processes, or what they have told of theirs; None where this is the only one.
    """

    feeds: tuple[tuple[tuple[str, TensorType], ...], ...]
    sizes: tuple[int, ...]
    fetches: tuple[str, ...]
    whole: tuple[tuple[tuple[tuple[str, TensorType], ...], ...], tuple[int, ...]] | ToldRows | None = None

    def __post_init__(self) -> None:
        # The whole batch of all processes is left out: it is large, and follows from sizes nearly always. Equality still compares it.
        object.__setattr__(self, "_hash", hash((self.feeds, self.sizes, self.fetches)))

    def __hash__(self) -> int:
        """Return the hash, computed once: every step looks a request up."""
        found: int = self._hash  # type: ignore[attr-defined]
        return found


def fetched_rows(graph: Graph, request: Request) -> dict[str, str]:
    """Return the row-sparse gradients that are fetched, with the variables of their row numbers."""
    block = graph.program.main_block
    found = {name: rows_of(block, name) for name in request.fetches}
    return {name: rows for name, rows in found.items() if rows is not None}


#: Makes a request of the feeds' types per device, the samples of each, and fetches.
Make = Callable[[Sequence[Mapping[str, TensorType]], Sequence[int], Sequence[str]], Request]
#: Requests that are kept: their types and hashes take longer to make than to look up.
KEPT = 64


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type, which NumPy puts together each time."""
    return str(dtype)


class Requests:
    """Requests by the arrays of a batch; those of earlier batches of the same types are used again.

    Args:
        make: makes one.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._known: dict[tuple[Any, ...], Request] = {}

    def of(self, parts: Sequence[Mapping[str, np.ndarray[Any, Any]]], sizes: Sequence[int], fetches: Sequence[str]) -> Request:
        """Return the request of a batch.

        Args:
            parts: per device: name -> array.
            sizes: samples of each.
            fetches: names of variables that are read after the step.
        """
        types = tuple(tuple((name, a.shape, a.dtype) for name, a in part.items()) for part in parts)
        key = types, tuple(sizes), tuple(fetches)
        if key not in self._known:
            while len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            named = [{name: TensorType(a.shape, _name(a.dtype)) for name, a in part.items()} for part in parts]
            self._known[key] = self._make(named, sizes, fetches)
        return self._known[key]
