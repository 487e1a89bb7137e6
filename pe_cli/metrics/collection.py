"""Collects what metrics need while an evaluation goes through its batches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.metrics.define import Array, Counted, Counts, Declared, Gathered, UndefinedError

#: Bytes that the gathered values of an evaluation may take.
MOST = 1 << 30


class Collector:
    """Takes the values of batches, and gives the metrics of all of them.

    Args:
        metrics: declared ones.
        tell: gets a sentence for every metric that has no value.
        most: bytes of values that are kept at most.
    """

    def __init__(self, metrics: Sequence[Declared], tell: Callable[[str], None], most: int = MOST) -> None:
        self._metrics, self._tell, self._most = metrics, tell, most
        self._counts: dict[str, Counts] = {}
        self._kept: dict[str, list[Array]] = {}
        self._bytes = 0
        self._wrong: set[str] = set()

    @property
    def variables(self) -> list[str]:
        """Variables whose values are taken, each once."""
        return list(dict.fromkeys(v for m in self._metrics for v in m.variables.values()))

    def expect(self, types: Mapping[str, TensorType], rows: int) -> None:
        """Refuse now what would only fail after many batches.

        Args:
            types: of variables with one row per sample; sizes that are not known count as 1.
            rows: samples of the evaluation.

        Raises:
            PeError: USAGE; their values take more bytes than may be kept.
        """
        total, seen = 0, set()
        for one in self._metrics:
            for variable in one.variables.values() if isinstance(one.kind, Gathered) else ():
                # A variable that several metrics read is kept, and counted, once.
                if variable in types and variable not in seen:
                    seen.add(variable)
                    total += rows * product(abs(size) for size in types[variable].shape) * types[variable].numpy.itemsize
                    if total > self._most:
                        raise self._too_many(one, variable)

    def add(self, values: Mapping[str, Array]) -> None:
        """Take a batch.

        Args:
            values: variable -> [batch, ...], rows in their order.

        Raises:
            PeError: DATA, values that a metric cannot be computed of; USAGE, more values than may be kept.
        """
        # A NaN compares as false with every score: without this, it would count as a wrong decision, silently.
        self._wrong |= {name for name, a in values.items() if a.dtype.kind == "f" and np.isnan(a).any()}
        kept = set()
        for one in self._metrics:
            if isinstance(one.kind, Counted):
                if self._wrong.isdisjoint(one.variables.values()):
                    with _naming(one):
                        found = one.kind.count(one.options, _of(one, values))
                    before = self._counts.get(one.name)
                    self._counts[one.name] = found if before is None else before + found
                continue
            for variable in one.variables.values():
                if variable not in kept:
                    kept.add(variable)
                    self._keep(one, variable, values[variable])

    def _keep(self, one: Declared, variable: str, value: Array) -> None:
        self._bytes += value.nbytes
        if self._bytes > self._most:
            raise self._too_many(one, variable)
        # A copy, as the executor writes the next batch into the same memory.
        self._kept.setdefault(variable, []).append(np.array(value))

    def _too_many(self, one: Declared, variable: str) -> PeError:
        text = f"metric '{one.name}': the values of '{variable}' in all rows of the evaluation take more than {self._most / 2**30:g} GiB"
        return PeError(text, at=one.at, hint="evaluate fewer rows, or leave the metric out")

    def results(self) -> dict[str, float]:
        """Return the metrics by name; NaN where a value is NaN, and none for those that are not defined for these rows.

        Raises:
            PeError: DATA; values that a metric cannot be computed of.
        """
        whole = {name: _joined(self._kept.pop(name)) for name in list(self._kept)}
        found: dict[str, float] = {}
        for one in self._metrics:
            if not self._wrong.isdisjoint(one.variables.values()):
                found[one.name] = math.nan
                continue
            try:
                with _naming(one):
                    value = self._result(one, whole)
            except UndefinedError as error:
                self._tell(f"metric '{one.name}' ({one.kind.name}) is left out: {error}")
                continue
            if value is not None:
                found[one.name] = value
        return found

    def _result(self, one: Declared, whole: Mapping[str, Array]) -> float | None:
        """Return a metric; None where there was no batch."""
        if isinstance(one.kind, Gathered):
            return one.kind.result(one.options, _of(one, whole)) if set(one.variables.values()) <= set(whole) else None
        assert isinstance(one.kind, Counted)
        return one.kind.result(one.options, self._counts[one.name]) if one.name in self._counts else None


def _of(one: Declared, values: Mapping[str, Array]) -> dict[str, Array]:
    return {key: values[variable] for key, variable in one.variables.items()}


def _joined(parts: list[Array]) -> Array:
    """Return the rows of all batches; where the sizes of rows differ between batches, all numbers one after the other."""
    return np.concatenate(parts if len({part.shape[1:] for part in parts}) == 1 else [part.reshape(-1) for part in parts])


@contextlib.contextmanager
def _naming(one: Declared) -> Iterator[None]:
    """Let errors say which metric they are of."""
    try:
        yield
    except PeError as error:
        text = f"metric '{one.name}': {error.message}"
        raise PeError(text, at=error.at or one.at, hint=error.hint, notes=error.notes, code=error.code) from None
