"""Measuring arrays as an evaluation does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.metrics.collection import Collector
from pe_cli.metrics.define import Declared, discover


def measure(type_: str, values: Mapping[str, object], batches: int = 1, **options: object) -> float | None:
    """Return a metric of arrays by option, gathered in so many batches; None where it is not defined."""
    arrays = {key: np.asarray(value) for key, value in values.items()}
    kind = discover()[type_]
    made = kind.options.model_validate({**{key: key for key in arrays}, **options})
    kind.check(made, {key: TensorType((-1, *a.shape[1:]), str(a.dtype)) for key, a in arrays.items()})
    collector = Collector([Declared("m", kind, made, {key: key for key in arrays})], lambda text: None)
    rows = len(next(iter(arrays.values())))
    for part in np.array_split(np.arange(rows), batches):
        collector.add({key: a[part] for key, a in arrays.items()})
    return collector.results().get("m")
