"""Embeddings as points of a plane: their two principal axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

Array = NDArray[Any]


@dataclass(frozen=True)
class EmbeddingPoints:
    """Rows of a split as points of a plane, by what a layer says of them.

    Args:
        layer: as it was named.
        split: of the run file's data.
        size: numbers of a row.
        rows: that the axes were found from.
        places: float64 [shown, 2], along both axes.
        shares: of the variance of all numbers, along each axis.
        groups: int64 [shown], the group of each row.
        names: of the groups; none where rows have none.
        of: what groups are of; empty where rows have none.
    """

    layer: str
    split: str
    size: int
    rows: int
    places: Array
    shares: tuple[float, float]
    groups: Array
    names: tuple[str, ...]
    of: str


def principal_axes(values: Array) -> tuple[Array, tuple[float, float]]:
    """Return rows along the two axes on which they differ most, float64 [rows, 2], and the share of the variance of each.

    The largest number of an axis, by size, is positive, so that the picture is the same each time. With one number, the second axis is 0.

    Args:
        values: [rows, numbers], finite.

    Source:
        Pearson 1901; sklearn.decomposition.PCA.
    """
    centred = np.asarray(values, np.float64) - np.asarray(values, np.float64).mean(axis=0)
    # The covariance is as small as the embedding is wide, however many rows there are.
    variances, axes = np.linalg.eigh(centred.T @ centred)
    chosen = axes[:, ::-1][:, :2]
    chosen = chosen * np.where(chosen[np.abs(chosen).argmax(axis=0), np.arange(chosen.shape[1])] < 0, -1.0, 1.0)
    places, total = centred @ chosen, float(variances.clip(min=0).sum())
    shares = [float(value) / total if total else 0.0 for value in variances[::-1][:2].clip(min=0)]
    if places.shape[1] < 2:
        places, shares = np.concatenate([places, np.zeros((len(places), 1))], axis=1), [*shares, 0.0]
    return places, (shares[0], shares[1])
