"""The weight of every class: what `data.class_weights` says, by the names of the training data's classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.nodes import MapNode, to_data
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.data import Dataset
from pe_cli.session.data.sampling import label_field, label_indices


def class_weights(run: RunSpec, dataset: Dataset, count: int) -> NDArray[np.float64]:
    """Return the weight of every class, float64 [count, 1].

    `balanced` is samples / (classes * samples of the class): its mean over the training samples is 1. A class that is not named, or that
    no training sample has, has weight 1.

    Args:
        run: says which.
        dataset: of the training samples, with the label's field.
        count: classes that the model tells apart.

    Raises:
        PeError: USAGE; a name is no class, or a weight is no number above 0.
    """
    node = run.preparation.class_weights
    weights = np.ones((count, 1))
    if not isinstance(node, MapNode):
        samples = np.bincount(label_indices(run, dataset, "class_weights"), minlength=count)[:count]
        there = samples > 0
        weights[there, 0] = samples.sum() / (there.sum() * samples[there])
        return weights
    field = label_field(run, dataset, "class_weights")
    names: Sequence[str] = getattr(dataset, "classes", {}).get(field) or [str(i) for i in range(count)]
    for name, entry in node.entries.items():
        value: Any = to_data(entry.value)
        if name not in names[:count]:
            hint = did_you_mean(name, names) or f"the classes are {', '.join(names[:20])}"
            raise PeError(f"data.class_weights: there is no class '{name}'", at=entry.at, hint=hint)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
            raise PeError(f"data.class_weights.{name} must be a number above 0, got {value!r}", at=entry.value.at)
        weights[names.index(name), 0] = value
    return weights
