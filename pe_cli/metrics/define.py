"""The base class of metrics, and the registry that discovers `pe_cli/metrics/kinds/`.

A kind is a class: its options, which of them name variables, what their types must be, and how the number is computed. A *counted* metric
adds up whole numbers over batches, so that its memory does not grow; a *gathered* metric gets the values of all rows at once. Neither
depends on how the rows were divided into batches, devices and processes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.plugins import is_foreign
from pe_cli.config.sections.section import Section
from pe_cli.core.errors import PeError, Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType

Array = NDArray[Any]
Counts = NDArray[np.int64]
AnyOptions = TypeVar("AnyOptions", bound=Section)


class UndefinedError(Exception):
    """A metric has no value for the rows that there are; the argument is a clause that says why."""


class Metric(ABC, Generic[AnyOptions]):
    """A kind of metric.

    Class attributes:
        name: what a run file writes as `type`.
        options: their model.
        inputs: options that name variables of the model.
    """

    name: ClassVar[str]
    options: ClassVar[type[Section]]
    inputs: ClassVar[tuple[str, ...]]

    @property
    def doc(self) -> str:
        """What the metric measures, as written at its class."""
        return inspect.getdoc(type(self)) or ""

    @abstractmethod
    def check(self, options: AnyOptions, types: Mapping[str, TensorType]) -> None:
        """Check the options and the types of the variables; there is a batch axis (-1) in front.

        Args:
            options: as written.
            types: by the option that names the variable.

        Raises:
            PeError: USAGE; they do not fit.
        """


class Counted(Metric[AnyOptions]):
    """A metric that is a function of counts, which are added up over batches."""

    @abstractmethod
    def count(self, options: AnyOptions, values: Mapping[str, Array]) -> Counts:
        """Return the counts of a batch, int64 of one shape.

        Args:
            options: as written.
            values: [batch, ...] by option.

        Raises:
            PeError: DATA; the values are none that the metric can be computed of.
        """

    @abstractmethod
    def result(self, options: AnyOptions, counts: Counts) -> float:
        """Return the metric.

        Args:
            options: as written.
            counts: of all rows.

        Raises:
            UndefinedError: it has no value.
        """


class Gathered(Metric[AnyOptions]):
    """A metric that needs the values of all rows at once."""

    @abstractmethod
    def result(self, options: AnyOptions, values: Mapping[str, Array]) -> float:
        """Return the metric.

        Args:
            options: as written.
            values: [rows, ...] by option, of all rows in their order.

        Raises:
            PeError: DATA; the values are none that the metric can be computed of.
            UndefinedError: it has no value.
        """


@dataclass(frozen=True)
class Declared:
    """A metric of a run file, checked.

    Args:
        name: as written; it is recorded as `eval/<name>`.
        kind: of metric.
        options: of the kind.
        variables: option -> variable of the evaluation program.
        at: its place.
    """

    name: str
    kind: Metric[Any]
    options: Any
    variables: Mapping[str, str]
    at: Span | None = None


KINDS: dict[str, Metric[Any]] = {}
AnyKind = TypeVar("AnyKind", bound=type[Metric[Any]])


def metric(cls: AnyKind) -> AnyKind:
    """Register a class as the metric of its name.

    Raises:
        PeError: USAGE; a package of others takes a name that there is.
    """
    if is_foreign(cls.__module__):
        known = discover().get(cls.name)
        if known is not None and type(known).__module__ != cls.__module__:
            raise PeError(f"there is a metric '{cls.name}' already", hint="give the metric another name")
    else:
        assert cls.name not in KINDS, f"two metrics are named {cls.name}"
    KINDS[cls.name] = cls()
    return cls


@functools.cache
def _import_all() -> None:
    package = importlib.import_module("pe_cli.metrics.kinds")
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")


def discover() -> dict[str, Metric[Any]]:
    """Import every module of metrics once and return the kinds by name, with those of packages that are loaded."""
    _import_all()
    return dict(sorted(KINDS.items()))
