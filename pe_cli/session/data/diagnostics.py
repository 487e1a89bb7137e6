"""Diagnoses a run's data: collects the figures that `pe_cli.data.warnings` turns into warnings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.nodes import to_data
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.data import Dataset
from pe_cli.data import warnings as of
from pe_cli.data.column_figures import STEP
from pe_cli.data.dataset import one_field, sequence_fields
from pe_cli.data.fields import ArrayField, FieldDataset
from pe_cli.data.sample_keys import keys_of
from pe_cli.data.stream_fields import pieces_of
from pe_cli.session.data.label_feeds import labels
from pe_cli.session.data.row_locator import first_row, row_of
from pe_cli.session.data.target_checks import check_targets
from pe_cli.session.evaluation.sequence_labels import check_sequence_labels

if TYPE_CHECKING:
    from pe_cli.session.job import Job

#: Bytes of samples that are compared when training starts.
MOST_BYTES = 1 << 28
#: Classes of a label without names, at most.
MOST_CLASSES = 10_000
#: Parts that are measured with.
MEASURED = ("eval", "test")


def diagnose_data(job: Job, *, thorough: bool = False) -> list[str]:
    """Return what should be known of a run's data before it is trained on.

    Args:
        job: whose data is opened; parts that are made up are left out.
        thorough: however long it takes, and what training would refuse is told like the rest; else samples are compared only where
            they are not too large.

    Raises:
        PeError: the data cannot be read, or has classes that the model has no place for.
    """
    if "train" not in job.run.data or job.data.made_up("train"):
        return []
    train = _Part.of(job, "train", thorough)
    found = [*_ids(job), *_constant(job, train), *_beyond(job, train), *_not_finite(job, train)]
    for use in MEASURED:
        if use in job.run.data and not job.data.made_up(use):
            part = _Part.of(job, use, thorough)
            found += _beyond(job, part) if use == "eval" else []
            found += _not_finite(job, part)
            found += [*_sorted(job, train, part), *_classes(train, part), *_duplicates(train, part)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Part:
    """A part of the data with the fields that the model is fed.

    Args:
        use: train, eval, ...
        dataset: its samples.
        taught: fields of labels.
        compared: fields by which samples are the same; none where neighbouring samples share values by nature.
        thorough: see `diagnose_data`.
    """

    use: str
    dataset: Dataset
    taught: tuple[str, ...]
    compared: tuple[str, ...] = ()
    thorough: bool = True

    @staticmethod
    def of(job: Job, use: str, thorough: bool = True) -> _Part:
        """Open a part."""
        fed = [want for name, want in job.data.sources.items() if name in job.built.feeds]
        taught = labels(job.run.model)
        fields = tuple(dict.fromkeys(want.field for name, want in job.data.sources.items() if name in taught))
        dataset = job.data.fed(use)
        stream = pieces_of(dataset.columns) if isinstance(dataset, FieldDataset) else None
        if stream is not None and isinstance(dataset, FieldDataset):  # to look at all of it would be to read it once more
            return _Part(use, FieldDataset(dataset.columns, stream.table.sample_rows, dataset.classes), fields, (), thorough)
        # Samples that are cut out of one text or one series overlap by themselves: none of them is looked for twice.
        together = getattr(_table(job, use), "contiguous", False)
        compared = () if together else tuple(dict.fromkeys(want.field for want in fed if want.field in dataset.fields))
        return _Part(use, dataset, fields, compared, thorough)

    @cached_property
    def keys(self) -> NDArray[np.uint64] | None:
        """A key for every sample; None where there is none, or they would take too long."""
        return keys_of(self.dataset, self.compared, None if self.thorough else MOST_BYTES) if self.compared else None

    @property
    def rows(self) -> NDArray[np.int64]:
        """Samples of the part."""
        return np.arange(len(self.dataset), dtype=np.int64)

    @cached_property
    def targets(self) -> Mapping[str, NDArray[Any]]:
        """One number per sample of every label that has one."""
        return {name: self.column(name) for name in self.taught if self._is_number(name)}

    def _is_number(self, name: str) -> bool:
        kind = self.dataset.fields.get(name)
        return kind is not None and kind.size == 1 and name not in sequence_fields(self.dataset)

    def column(self, name: str) -> NDArray[Any]:
        """Return the first number of every sample of a field."""
        if isinstance(self.dataset, FieldDataset):
            values = self.dataset.columns[name].take(self.dataset.table_rows(self.rows))[0]
        else:
            step = max(1, STEP // max(1, sum(kind.nbytes for kind in self.dataset.fields.values())))
            parts = [self.rows[at : at + step] for at in range(0, len(self.dataset), step)]
            values = np.concatenate([one_field(self.dataset, name, rows) for rows in parts])
        return values.reshape(len(self.dataset), -1)[:, 0]

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of a label's classes; none of one without."""
        found: tuple[str, ...] = getattr(self.dataset, "classes", {}).get(name, ())
        return found


def _not_finite(job: Job, part: _Part) -> list[str]:
    """Warn of numbers of arrays that are none; tables refuse them when they are read."""
    size = sum(kind.nbytes for kind in part.dataset.fields.values())
    if isinstance(part.dataset, FieldDataset) or not (part.thorough or size * len(part.dataset) <= MOST_BYTES):
        return []
    known = {want.field: name for name, want in job.data.sources.items() if name in job.built.feeds}
    found, step = [], max(1, STEP // max(1, size))
    for field, feed in known.items():
        if field not in part.dataset.fields or part.dataset.fields[field].dtype not in FLOATS or field in sequence_fields(part.dataset):
            continue
        for at in range(0, len(part.dataset), step):
            values = one_field(part.dataset, field, part.rows[at : at + step])
            if not np.isfinite(values).all():
                row = int(np.argwhere(~np.isfinite(values))[0][0])
                where = row_of(part.dataset, at + row, first_row(job.run.data[part.use]))
                found.append(of.not_finite(feed, bool(np.isinf(values[row]).any()), f"{where} of data.{part.use}"))
                break
    return found


def _beyond(job: Job, part: _Part) -> list[str]:
    """Warn of targets that the model cannot produce, or that are not one for each item of a sequence."""
    try:
        check_sequence_labels(job, part.use, part.dataset)
        return check_targets(job, part.use, part.dataset, part.targets)
    except PeError as error:
        # pe data lists all that is wrong; a training ends by it.
        if not part.thorough:
            raise
        return [error.message]


def _ids(job: Job) -> list[str]:
    """Warn of categories with another value in every row."""
    found = []
    for name, column in job.data.prepared.fitted.columns.items():
        if column.type == "category" and name in job.data.prepared.uses and not column.checked.model_dump().get("classes"):
            rare, rows = int(column.state["rare"]), int(sum(column.state["counts"])) + int(column.state["rare"])
            found.append(of.id_like(name, len(column.state["classes"]), rare, rows))
    return [text for text in found if text]


def _constant(job: Job, train: _Part) -> list[str]:
    found = []
    for name, values in train.targets.items():
        value = None
        if len(values) and (values == values[0]).all():
            value = _said(job, name, values[0], train.names(name))
        found.append(of.constant_target(name, value))
    return [text for text in found if text]


def _said(job: Job, name: str, value: Any, names: tuple[str, ...]) -> str:
    """Return a target's value as the file has it."""
    if names and 0 <= int(value) < len(names):
        return f"'{names[int(value)]}'"
    column = job.data.prepared.fitted.columns.get(name)
    if column is not None:
        value = np.ravel(column.decode(np.array([[value]])))[0]
    return f"{float(value):.6g}"


def class_counts(job: Job, use: str) -> dict[str, tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Return the names of every label's classes, and how many samples of a part have each, int64 [classes].

    Raises:
        PeError: the data cannot be read.
    """
    part = _Part.of(job, use)
    counts = {name: _counts(part, name) for name in part.targets}
    return {name: found for name, found in counts.items() if found is not None}


def _counts(part: _Part, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]] | None:
    """Return names and counts of a label's classes; None for a label of numbers."""
    names, values = part.names(name), part.targets[name]
    if not names and values.dtype.name in FLOATS:
        return None
    indices = values.astype(np.int64)
    count = max(len(names), int(indices.max(initial=-1)) + 1)
    if indices.min(initial=0) < 0 or count > MOST_CLASSES:
        return None
    shown = tuple(names[i] if i < len(names) else str(i) for i in range(count))
    return shown, np.bincount(indices, minlength=count)


def _classes(train: _Part, part: _Part) -> list[str]:
    """Warn of classes that occur in one split and not in another."""
    found: list[str | None] = []
    for name in train.targets:
        here, there = _counts(train, name), _counts(part, name)
        if here is None or there is None:
            continue
        names = max(here[0], there[0], key=len)
        a, b = (np.pad(counts, (0, len(names) - len(counts))) for _, counts in (here, there))
        where = f"data.{part.use}"
        found += [of.absent_classes(name, names, a, b, where), of.unseen_classes(name, names, a, b, where)]
    return [text for text in found if text]


def _duplicates(train: _Part, part: _Part) -> list[str]:
    here, there = train.keys, part.keys
    text = of.duplicates(here, there, f"data.{part.use}") if here is not None and there is not None else None
    return [text] if text else []


def _table(job: Job, use: str) -> object:
    try:
        return job.data.prepared.sources.opened(use)
    except PeError:
        return None


# --- sorted rows ------------------------------------------------------------------------------------------------------


def _sorted(job: Job, train: _Part, part: _Part) -> list[str]:
    """Warn of sorted rows that are cut by position."""
    how = _cut(job, part.use)
    if how is None or getattr(_table(job, "train"), "contiguous", False):
        return []
    # In the order in which both parts stand in the file.
    first, second = (
        (train, part) if first_row(job.run.data["train"]) <= first_row(job.run.data[part.use]) else (part, train)
    )
    columns: list[str] = []
    for name in train.targets:
        a, b = first.targets[name], second.targets[name]
        columns += (
            [name] if _goes(np.concatenate([a, b]), bool(train.names(name)) or a.dtype.name not in FLOATS) else []
        )
    classes = bool(columns) and bool(train.names(columns[0]))
    target = columns[0] if classes else None
    columns += [name for name in _inputs(first, second) if name not in columns]
    text = of.sorted_cut(columns, how, target)
    return [text] if text else []


def _goes(values: NDArray[Any], classes: bool) -> bool:
    return of.in_runs(values.astype(np.int64)) if classes else of.is_sorted(values.astype(np.float64))


def _inputs(first: _Part, second: _Part) -> list[str]:
    """Return the columns of cells, one number each, that the rows are sorted by."""
    if not isinstance(first.dataset, FieldDataset) or not isinstance(second.dataset, FieldDataset):
        return []
    found = []
    for name, field in first.dataset.columns.items():
        other = second.dataset.columns[name]
        if (
            not isinstance(field, ArrayField)
            or not isinstance(other, ArrayField)
            or name in first.taught
            or field.values.ndim != 2
        ):
            continue
        rows, more = (
            part.dataset.table_rows(part.rows) for part in (first, second) if isinstance(part.dataset, FieldDataset)
        )
        spans = field.parts or {name: slice(0, 1)}
        classes = bool(first.names(name))
        for part, span in spans.items():
            if (span.stop - span.start) == 1 and (field.parts or field.type.shape == (1,)):
                values = np.concatenate([field.values[rows, span.start], other.values[more, span.start]])
                found += [part] if _goes(values, classes) else []
    return found


def _cut(job: Job, use: str) -> str | None:
    """Return what cuts training and another part out of the same rows by position; None where nothing does."""
    train, other = job.run.data["train"], job.run.data[use]
    if train.split and other.split:
        split = job.run.preparation.split
        return "data.split.order: position" if split is not None and split.order == "position" else None
    if train.split or other.split or train.reader != other.reader:
        return None
    # Two parts of one file, divided by skip and limit.
    a, b = dict(to_data(train.options)), dict(to_data(other.options))
    keys = [key for key in ("skip", "limit") if key in a or key in b]
    left = [{key: value for key, value in options.items() if key not in ("skip", "limit")} for options in (a, b)]
    return " and ".join(keys) if keys and left[0] == left[1] else None
