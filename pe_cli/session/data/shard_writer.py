"""Writes the prepared samples of a job into shards, so that later runs need not read, decode and encode them again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pe_cli.config.sections.data import USES
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import flow
from pe_cli.data.dataset import Dataset, sequence_fields
from pe_cli.io.atomic import write_error, write_text

if TYPE_CHECKING:
    from pe_cli.session.job import Job

#: Bytes of a shard, about, and of the samples that are taken at a time.
SHARD, STEP = 1 << 28, 1 << 24


def write_shards(job: Job, folder: Path, shard: int = SHARD) -> list[str]:
    """Write the data of a job into a new folder: a `.npy` file for each field and shard, and `data.yaml` with what a config says of them.

    Args:
        job: whose data is read, in the order in which it is stored, without augmentation.
        folder: made here.
        shard: bytes of all fields of a shard, about.

    Returns:
        A line for each part of the data.

    Raises:
        PeError: USAGE, the folder is there already; DATA, the data cannot be read, or has sequences; DEVICE, the disk is full.
    """
    uses = [use for use in USES if use in job.run.data]
    datasets = {use: job.data.fed(use) for use in uses}
    for use, dataset in datasets.items():
        sequences = sorted(sequence_fields(dataset))
        if sequences:
            said = f"field '{sequences[0]}' of data.{use} has sequences of any length, which .npy files do not hold"
            raise PeError(said, hint="give its column a length, such as {type: text, length: 128}", code=ExitCode.DATA)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise write_error(error, folder) from None
    names = _names(job)
    lines, config = [], []
    for use, dataset in datasets.items():
        count = 0
        for count, (first, last) in enumerate(_spans(dataset, shard), 1):
            _write(dataset, {field: folder / f"{use}-{count - 1:05d}-{name}.npy" for field, name in names.items()}, first, last)
        shards = f"{count:,} shard{'s' * (count > 1)}"
        lines.append(f"data.{use}: {len(dataset):,} samples in {shards} of {', '.join(names.values())}")
        files = {name: f"{use}-*-{name}.npy" for name in names.values()}
        # Within a window, as a shuffle of all rows would read them one by one from all files.
        order = ", shuffle: {window: 100000}" if use == "train" else ""
        config.append(f"  {use}: {{reader: npy, files: {flow(files)}{order}}}")
    write_text(folder / "data.yaml", "\n".join(["data:", *config, "feeds:", *_feeds(job, names), ""]))
    return lines


def _names(job: Job) -> dict[str, str]:
    """Return what each field is called in files: as the first feed that takes it."""
    found: dict[str, str] = {}
    for feed, want in job.data.sources.items():
        if feed in job.built.feeds:
            found.setdefault(want.field, feed)
    return found


def _feeds(job: Job, names: dict[str, str]) -> Iterator[str]:
    """Yield a line for each feed: from the field that was written, converted as before."""
    for feed in job.built.feeds:
        section, want = job.run.feeds.get(feed), job.data.sources.get(feed)
        said = section.model_dump(mode="json", by_alias=True, exclude_unset=True) if section is not None else {}
        if want is not None:
            said["from"] = names[want.field]
        yield f"  {feed}: {flow(said) if set(said) != {'from'} else said['from']}"


def _spans(dataset: Dataset, shard: int) -> Iterator[tuple[int, int]]:
    rows = max(1, shard // _row(dataset))
    for first in range(0, len(dataset), rows):
        yield first, min(first + rows, len(dataset))


def _row(dataset: Dataset) -> int:
    return max(1, sum(kind.nbytes for kind in dataset.fields.values()))


def _write(dataset: Dataset, files: dict[str, Path], first: int, last: int) -> None:
    """Write the samples of a shard, a part of them at a time.

    Args:
        dataset: has them.
        files: of fields.
        first, last: samples, the last one excluded.

    Raises:
        PeError: DATA; a sample cannot be read. DEVICE; the disk is full.
    """
    step = max(1, STEP // _row(dataset))
    for begin in range(first, last, step):
        batch = dataset.take(np.arange(begin, min(begin + step, last), dtype=np.int64))
        for field, path in files.items():
            kind = dataset.fields[field]
            try:
                # A file that is there already is never written over.
                with path.open("xb" if begin == first else "ab") as file:
                    if begin == first:
                        header = {"descr": kind.numpy.str, "fortran_order": False, "shape": (last - first, *kind.shape)}
                        np.lib.format.write_array_header_2_0(file, header)
                    file.write(np.ascontiguousarray(batch[field]).data)
            except OSError as error:
                raise write_error(error, path) from None
