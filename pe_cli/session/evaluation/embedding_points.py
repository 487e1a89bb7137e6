"""Finds where the rows of a split lie by what a layer says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.metrics.error_shares import ranges
from pe_cli.metrics.principal_axes import EmbeddingPoints, principal_axes
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.evaluation.output_meaning import Answer, answers

if TYPE_CHECKING:
    from pe_cli.session.job import Job

Array = NDArray[Any]
#: Numbers of a row, and points that are drawn, at most.
MOST_NUMBERS, POINTS = 4096, 2000


def embedding_of(job: Job, split: str, layer: str) -> EmbeddingPoints:
    """Return where rows lie by a layer, along the axes on which they differ most, with their classes, or the range of their number.

    Args:
        job: with values, and with what its columns have learned.
        split: of the run file's data.
        layer: name of a layer or variable with as many numbers for every row.

    Raises:
        PeError: USAGE, there is no such layer, or it has not so many; DATA, a row cannot be read, or a number is not finite.
    """
    variable = job.variable(layer)
    kind = job.built.eval.var(variable)
    size = int(np.prod(kind.shape[1:])) if len(kind.shape) > 1 else 1
    if kind.shape[:1] != (-1,) or -1 in kind.shape[1:] or not kind.dtype.startswith("float") or kind.lod_level or size > MOST_NUMBERS:
        text = f"--embedding {layer}: {kind.type} has not the same numbers for every row, at most {MOST_NUMBERS:,}"
        raise PeError(text, hint="name a layer of [batch, numbers], such as the one before the last fc")
    told = next((one for one in answers(job) if one.label and (one.classes or one.column) and not (one.several or one.spelled)), None)
    names = [variable, *([told.label] if told else [])]
    parts: dict[str, list[Array]] = {name: [] for name in names}
    for batch in Evaluator(job).predict(split, names):
        for name in names:
            parts[name].append(batch[name])
    values = np.concatenate(parts[variable]).reshape(-1, size)
    odd = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(odd):
        raise PeError(f"--embedding {layer}: row {int(odd[0]) + 1} of data.{split} is not finite", hint="take an earlier checkpoint")
    places, shares = principal_axes(values)
    groups, named, of = _groups(told, np.concatenate(parts[told.label]), len(values)) if told else _groups(None, None, len(values))
    shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), POINTS)).round().astype(np.int64))
    return EmbeddingPoints(layer, split, size, len(values), places[shown], shares, groups[shown], named, of)


def _groups(told: Answer | None, labels: Array | None, rows: int) -> tuple[Array, tuple[str, ...], str]:
    """Return the group of every row, their names, and what they are of."""
    none = np.zeros(rows, np.int64), (), ""
    if told is None or labels is None or labels.dtype == object or labels.size != rows:
        return none
    flat = labels.reshape(-1)
    if told.classes:
        return flat.astype(np.int64), told.classes, told.name
    assert told.column is not None
    numbers = np.asarray(told.column.decode(labels), np.float64).reshape(-1)
    if numbers.size != rows:
        return none
    groups, names = ranges(numbers)
    return groups.astype(np.int64), tuple(names), told.name
