"""Checks sequences and their labels: a sample has as many labels as items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import Dataset
from pe_cli.graph.lod_resolution import declared_levels, resolve
from pe_cli.ops.define.lod import offsets_name
from pe_cli.ops.define.traits import Compares, TagsRows
from pe_cli.program.ir import Operator
from pe_cli.session.data.row_locator import first_row, row_of

if TYPE_CHECKING:
    from pe_cli.session.job import Job


def check_sequence_labels(job: Job, use: str, dataset: Dataset) -> None:
    """Check that samples have a label for every item.

    Raises:
        PeError: DATA; a sample has another number of labels, named with its row. A batch would only tell so where its sums differ.
    """
    lengths = getattr(dataset, "lengths", None)
    if lengths is None:
        return
    for op, items, labels in _pairs(job):
        sources = [job.data.sources.get(name) for name in (items, labels)]
        fields = [source.field for source in sources if source is not None and source.field in dataset.fields]
        found = [lengths(name) for name in fields]
        if len(found) < 2 or any(each is None for each in found):
            continue
        bad = np.flatnonzero(found[0] != found[1])
        if len(bad):
            where, many = row_of(dataset, int(bad[0]), first_row(job.run.data[use])), [int(each[bad[0]]) for each in found]
            raise PeError(
                f"{op.type}: '{items}' has {many[0]} item{'s' * (many[0] != 1)} and '{labels}' has {many[1]} in {where} of data.{use}",
                at=op.at,
                hint="every item has a label" + (f"; {len(bad):,} rows are like that" if len(bad) > 1 else ""),
                code=ExitCode.DATA,
            )


def _pairs(job: Job) -> Iterator[tuple[Operator, str, str]]:
    """Yield ops that compare labels with something row by row, the feed that this has its sequences of, and that of the labels."""
    levels = declared_levels(job.built.eval)
    if len(levels) < 2:
        return
    lods = resolve(job.built.eval).lods
    owners = {offsets_name(name, count - 1): name for name, count in levels.items()}
    for op in job.built.eval.top_ops:
        compared = op.definition.get(TagsRows) or op.definition.get(Compares)
        if compared is None:
            continue
        (scores, *_), (labels, *_) = op.inputs[compared.scores], op.inputs[compared.labels]
        items = owners.get(lods[scores][-1]) if scores in lods else None
        if items is not None and labels in levels and items != labels:
            yield op, items, labels
