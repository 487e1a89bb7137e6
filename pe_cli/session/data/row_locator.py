"""Locates a bad value in the data: the row of the file, not of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.config.nodes import to_data
from pe_cli.config.spec import DataSpec
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data import Dataset, Loader
from pe_cli.data.fields import FieldDataset
from pe_cli.ops.define.lod import offsets_name
from pe_cli.ops.define.status import OutOfRangeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RowPlace:
    """Where a batch comes from.

    Args:
        loader: that made it.
        epoch, batch: which, from 0.
        spec: what the data was opened by; None where it is made up.
    """

    loader: Loader
    epoch: int
    batch: int
    spec: DataSpec | None


def locate_row(error: OutOfRangeError, feed: Mapping[str, Array], place: RowPlace) -> None:
    """Add the row of the data to an error about a value of a batch, where the value that it names was fed."""
    dataset, samples = place.loader.of_batch(place.epoch, place.batch)
    for name, values in feed.items():
        found = np.argwhere(values == error.value) if values.dtype.kind in "iu" else np.empty((0, 1))
        if not len(found):
            continue
        row, offsets = int(found[0][0]), feed.get(offsets_name(name, 0))
        # A row of sequences belongs to the sample between whose offsets it lies.
        if offsets is not None:
            row = int(np.searchsorted(offsets, row, side="right")) - 1
        if row < len(samples) and place.spec is not None:
            where = row_of(dataset, int(samples[row]), first_row(place.spec))
            error.of_data(f"of feed '{name}' at {where} of data.{place.spec.name}")
            return


def not_finite_feed(feed: Mapping[str, Array], place: RowPlace) -> str | None:
    """Return which row of the data has a number that is none; None where all of a batch are."""
    for name, values in feed.items():
        if values.dtype.kind != "f" or np.isfinite(values).all():
            continue
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        what = "infinity" if np.isinf(values[row]).any() else "NaN"
        dataset, samples = place.loader.of_batch(place.epoch, place.batch)
        if place.spec is None or len(values) != len(samples):
            return f"feed '{name}' has {what} in row {row + 1} of the batch"
        return f"feed '{name}' has {what} in {row_of(dataset, int(samples[row]), first_row(place.spec))} of data.{place.spec.name}"
    return None


def row_of(dataset: Dataset, sample: int, first: int = 0) -> str:
    """Return what a sample is known by: its row in the table, or its number where the data is no table; both from 1.

    Args:
        dataset: has it.
        sample: its index.
        first: rows that the reader skipped.
    """
    if isinstance(dataset, FieldDataset):
        return f"row {int(dataset.table_rows(np.array([sample]))[0]) + first + 1}"
    return f"row {sample + first + 1}"


def first_row(spec: DataSpec) -> int:
    """Return how many rows a reader skips."""
    skip = to_data(spec.options).get("skip", 0)
    return int(skip) if not spec.split and isinstance(skip, int) else 0
