"""A contact sheet of the pictures that a model is trained on."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.data import Dataset
from pe_cli.data.dataset import sequence_fields
from pe_cli.data.feed_samples import select
from pe_cli.data.fields import FieldDataset, is_picture
from pe_cli.session.data.diagnostics import class_counts

if TYPE_CHECKING:
    from pe_cli.session.job import Job

#: Pictures on a sheet.
PICTURES = 48
#: Pixels of a side of what is taken for a picture.
SMALLEST = 8


def contact_sheet_of(job: Job, use: str) -> tuple[bytes, str]:
    """Return a contact sheet of a part's pictures, spread evenly over its samples, and what it shows; empty where there are none.

    Raises:
        PeError: a picture cannot be read, or Pillow is not installed.
    """
    from pe_cli.data.contact_sheet import contact_sheet

    fed = [want for feed, want in job.data.sources.items() if feed in job.built.feeds]
    dataset = select(job.data.dataset(use), fed)
    name = _picture(dataset)
    if name is None:
        return b"", ""
    count = min(PICTURES, len(dataset))
    batch = dataset.take(np.linspace(0, len(dataset) - 1, count).astype(np.int64))
    labels = None
    # Pictures are named by the first label that has classes.
    for label, (names, _) in class_counts(job, use).items():
        indices = batch[label].reshape(count, -1)[:, 0].astype(int)
        labels = [names[i] if 0 <= i < len(names) else str(i) for i in indices.tolist()]
        break
    field = dataset.columns[name] if isinstance(dataset, FieldDataset) else None
    last = bool(field.last) if field is not None and is_picture(field) else None
    pictures = batch[name]
    if last is None and pictures.dtype == np.uint8:
        pictures = pictures / max(1, int(pictures.max()))  # arrays of bytes need not go up to 255
    sheet = contact_sheet(list(pictures), labels, last=last)
    return sheet, f"{count} of {len(dataset):,} samples of data.{use}, as the model sees them in evaluation"


def _picture(dataset: Dataset) -> str | None:
    """Return the field that holds pictures: of files, or an array that looks like them where Pillow is there to show it."""
    if isinstance(dataset, FieldDataset):
        found = next((name for name, field in dataset.columns.items() if is_picture(field)), None)
        if found is not None:
            return found
    if find_spec("PIL") is None:
        return None
    return next(
        (name for name, kind in dataset.fields.items() if name not in sequence_fields(dataset) and _looks(kind)), None
    )


def _looks(kind: TensorType) -> bool:
    """Return whether samples look like pictures: bytes in two axes, or with 1, 3 or 4 channels beside."""
    shape = kind.shape
    if len(shape) == 2:
        return kind.dtype == "uint8" and min(shape) >= SMALLEST
    channels = len(shape) == 3 and (shape[0] in (1, 3, 4) or (shape[2] in (1, 3, 4) and kind.dtype == "uint8"))
    return channels and sorted(shape)[1] >= SMALLEST
