"""Share of rows whose class is among the k with the largest scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from pe_cli.config.sections.value_types import Count, Int
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.classes import ClassOptions, check_classes, check_range, rows_of
from pe_cli.metrics.define import Array, Counted, Counts, UndefinedError, metric


class TopKOptions(ClassOptions):
    """Options of `top_k`."""

    k: Count = Field(default=5, description="classes that count")
    axis: Int = Field(default=-1, description="axis of scores that the classes lie along")
    ignore_index: Int | None = Field(default=None, description="label that does not count")


@metric
class TopK(Counted[TopKOptions]):
    """Share of rows whose class is among the `k` with the largest scores; of equal scores the lower class number comes first."""

    name = "top_k"
    inputs = ("scores", "labels")
    options = TopKOptions

    def check(self, options: TopKOptions, types: Mapping[str, TensorType]) -> None:
        """Check that there are more classes than k.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        found = check_classes(types, options.axis)
        shape = types["scores"].shape
        width = 1 if len(shape) == 1 else shape[found.axis]
        if found.several:
            raise PeError(f"labels are {types['labels']}, and this metric is of one class per row", hint="label with class numbers")
        if options.k >= width:
            text = f"k is {options.k}, and scores are {types['scores']}: every row would count"
            raise PeError(text, at=options.at_of("k"), hint="k is less than the number of classes")

    def count(self, options: TopKOptions, values: Mapping[str, Array]) -> Counts:
        """Return hits and rows, int64 [2]."""
        scores, labels, found = rows_of(values["scores"], values["labels"], options.axis)
        if options.ignore_index is not None:
            kept = labels != options.ignore_index
            scores, labels = scores[kept], labels[kept]
        check_range(labels, found.classes)
        own = np.take_along_axis(scores, labels[:, None], axis=1)
        # Counting larger scores needs no sort, and it settles ties by the class number.
        before = (scores > own).sum(axis=1) + ((scores == own) & (np.arange(found.classes) < labels[:, None])).sum(axis=1)
        return np.array([(before < options.k).sum(), len(labels)], np.int64)

    def result(self, options: TopKOptions, counts: Counts) -> float:
        """Return hits / rows.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        hits, rows = counts.tolist()
        if not rows:
            raise UndefinedError("no row counts")
        return float(hits / rows)
