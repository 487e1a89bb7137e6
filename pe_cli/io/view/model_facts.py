"""Facts for the report that the run did not record: what its model and its training step are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.survey_figures import Survey
from pe_cli.metrics.curves import ClassifierEvaluation
from pe_cli.metrics.error_shares import ErrorShares
from pe_cli.metrics.principal_axes import EmbeddingPoints


@dataclass(frozen=True)
class MemoryRow:
    """Bytes of one category: between steps, at the peak of a step, and as if nothing shared memory."""

    kind: str
    kept: int
    peak: int
    whole: int


@dataclass(frozen=True)
class MemoryFacts:
    """Memory of one device.

    Args:
        place: the device.
        rows: by category.
        total: bytes of all that stays and of a step's arena.
        arena: bytes of a step's temporaries.
        at: the op where a step needs most.
    """

    place: str
    rows: tuple[MemoryRow, ...]
    total: int
    arena: int
    at: str


@dataclass(frozen=True)
class LayerFacts:
    """One layer: its output's type, bytes of its parameters and of a batch's output, operations of a sample."""

    name: str
    type: str
    output: str
    parameter_bytes: int
    output_bytes: int
    flops: int


@dataclass(frozen=True)
class GraphFacts:
    """A picture of what a step does.

    Args:
        svg: the element.
        note: about it.
        title: over it; empty where there is only one.
    """

    svg: str
    note: str
    title: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known of a run's step.

    Args:
        graphs: of a step's phases, in order.
        memory: of every device.
        layers: of the model.
        timeline: as `timeline` makes it, None without a trace.
        notes: what could not be told, and why.
        judged: what a classifier does over its evaluation data; None of other models, and where it was not asked for.
        data: what the columns of its data have learned; None of a run whose data has no columns.
        errors: where it errs over its evaluation data, for each target; none where that was not asked for.
        embedding: where its rows lie by a layer; None where none was named.
    """

    graphs: tuple[GraphFacts, ...] = ()
    memory: tuple[MemoryFacts, ...] = ()
    layers: tuple[LayerFacts, ...] = ()
    timeline: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = field(default=())
    data: Survey | None = None
    judged: ClassifierEvaluation | None = None
    errors: tuple[ErrorShares, ...] = ()
    embedding: EmbeddingPoints | None = None
