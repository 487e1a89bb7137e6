"""Sampling weights and augmentation of training samples: `data.sampling` and `data.augment`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.nodes import ListNode, to_data
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.data import Dataset, Feed
from pe_cli.data.fields import FieldDataset
from pe_cli.data.prepare import Prepared
from pe_cli.data.sampling import Weights, balanced_weights, check_weights
from pe_cli.session.data.label_feeds import labels, sources

if TYPE_CHECKING:
    from pe_cli.data.augment import Augmentation


def augmentation(
    run: RunSpec, dataset: Dataset, feeds: Mapping[str, Feed], types: Mapping[str, TensorType]
) -> Augmentation | None:
    """Return the changes of training samples that a run file asks for; None for none.

    Raises:
        PeError: USAGE; they do not fit the data or the model: all mistakes in one.
    """
    node = run.preparation.augment
    if not isinstance(node, ListNode) or not node.items:
        return None
    from pe_cli.data.augment import Augmentation

    entries = [(to_data(item), item.at) for item in node.items]
    return Augmentation.make(entries, dataset, feeds, types, run.executor.seed)


def sample_weights(run: RunSpec, prepared: Prepared, dataset: Dataset) -> Weights | None:
    """Return the weights by which training samples are drawn, float64 [samples]; None where each is taken once per epoch.

    Raises:
        PeError: USAGE, there is no label with classes; DATA, the column of weights is not there or holds other things.
    """
    wish = run.preparation.sampling
    if wish is None:
        return None
    at = run.at_of("data", "sampling")
    if wish == "balanced":
        return balanced_weights(label_indices(run, dataset, "sampling"))
    table, rows = prepared.sources.table("train"), getattr(dataset, "rows", None)
    if wish.weights not in table.names:
        hint = did_you_mean(wish.weights, table.names) or f"it has {', '.join(table.names[:20])}"
        raise PeError(f"data.sampling: the data has no column '{wish.weights}'", at=at, hint=hint, code=ExitCode.DATA)
    values = table.cells(wish.weights).numbers().values
    try:
        return check_weights(values if rows is None else values[rows], wish.weights)
    except PeError as error:
        error.at = error.at or at
        raise


def label_field(run: RunSpec, dataset: Dataset, wish: str) -> str:
    """Return the label's field whose classes a setting of `data` refers to.

    Raises:
        PeError: USAGE; the model is taught no classes, or several labels.
    """
    taught = labels(run.model)
    fields = {name: want.field for name, want in sources(run).items() if name in taught}
    whole = {name: field for name, field in fields.items() if _has_classes(dataset, field)}
    if len(whole) != 1:
        listed = ", ".join(whole) or "none"
        raise PeError(
            f"data.{wish} needs one label with classes, and the model has {listed}",
            at=run.at_of("data", wish),
            hint="sampling: {weights: COLUMN} draws by a column of the data" if wish == "sampling" else None,
        )
    return next(iter(whole.values()))


def label_indices(run: RunSpec, dataset: Dataset, wish: str) -> NDArray[np.int64]:
    """Return the class of every sample, int64 [samples].

    Raises:
        PeError: USAGE; see `label_field`.
    """
    field = label_field(run, dataset, wish)
    values: Any
    if isinstance(dataset, FieldDataset):
        rows = dataset.table_rows(np.arange(len(dataset), dtype=np.int64))
        values = dataset.columns[field].take(rows)[0]
    else:
        values = dataset.take(np.arange(len(dataset), dtype=np.int64))[field]
    return np.asarray(values, np.int64).reshape(len(dataset), -1)[:, 0]


def _has_classes(dataset: Dataset, field: str) -> bool:
    kind = dataset.fields.get(field)
    if kind is None or kind.size != 1:
        return False
    return kind.dtype not in FLOATS or field in getattr(dataset, "classes", {})
