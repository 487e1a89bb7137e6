"""reorder_by_rank: sequences in the order of other sequences' lengths, the longest first, or back."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, lengths_of, offsets_of, ranges, row_count
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData
from pe_cli.ops.sequence.sequence_rows import copies_rows


def _order(rank: Indices, count: int, *, inverse: bool) -> Indices:
    """Return the place where every sequence of the result comes from."""
    if len(rank) - 1 != count:
        raise PeError(f"X has {count} sequences, but the rank table has {len(rank) - 1}", hint="one for each")
    order = np.argsort(-lengths_of(rank), kind="stable")
    # The inverse of a permutation is the order that sorts it.
    return np.argsort(order, kind="stable") if inverse else order


def _level(rank: Indices, *offsets: Indices, depth: int, inverse: bool) -> Indices:
    """Return offsets of a level in the new order; the rows themselves for the depth behind the last level."""
    chosen = _order(rank, len(offsets[0]) - 1, inverse=inverse)
    # Level by level inward: the places chosen at one level become those of the sequences or rows inside them.
    for level in offsets[:depth]:
        chosen = ranges(level[chosen], lengths_of(level)[chosen])
    return chosen if depth == len(offsets) else offsets_of(lengths_of(offsets[depth])[chosen])


def _plain(rank: Indices, *, inverse: bool) -> Indices:
    """Return the rows in the new order, where every row is a sequence."""
    return _order(rank, len(rank) - 1, inverse=inverse)


@op(
    "reorder_by_rank",
    traits=[ReportsData()],
    inputs="X RankTable? Index?",
    differentiable="X",
    attrs={
        "level": Attr(0, "of the rank table's sequences, 0 the outermost"),
        "inverse": Attr(False, "from the order of the rank table back to the order that sequences had"),
    },
    samples=[
        Sample({"X": (4, 2), "Index": fixed([1, 2, 3, 0])}, name="rows"),
        Sample({"X": (1, 3), "Index": fixed([0])}, name="one row"),
        Sample({"X": (2, 3), "Index": fixed([])}, name="no rows"),
    ],
)
def reorder_by_rank(
    x: TensorType, table: TensorType | None, index: TensorType | None, *, level: int, inverse: bool
) -> TensorType:
    """Put sequences in the order of the lengths of the rank table's sequences, the longest first, equal ones in order.

    Args:
        X: [rows, ...] any element type; with sequences as many as the rank table's, or as many rows.
        RankTable: only its sequences count.
        level: which level of them.
        inverse: X is in that order, and is put back.
        Index: row of X for every row of Out, int64, made before the step.

    Returns:
        Out: type of X; with sequences where X has.

    Raises:
        PeError: the rank table has no sequences, or no such level; in a step, not as many as X has.

    Source:
        fluid.layers.reorder_lod_tensor_by_rank.
    """
    del table, level, inverse
    if not x.shape:
        raise PeError("reorder_by_rank needs X [rows, ...], got a scalar")
    return x.with_shape(row_count(index) if index is not None else x.shape[0], *x.shape[1:])


@reorder_by_rank.sequences("Index")
def reorder_by_rank_lod(s: LodRequest) -> None:
    """The lengths of the rank table's sequences say the order.

    Raises:
        PeError: the rank table has no such level.
    """
    levels, own, level, inverse = s.need("RankTable"), s.lod("X"), s.attrs["level"], s.attrs["inverse"]
    if not 0 <= level < len(levels):
        raise PeError(f"reorder_by_rank: level is {level}, but the rank table has {len(levels)} levels of sequences")
    rank = levels[level]
    # Only the lengths of its sequences count, which are part of Index now: its values need not be in memory in a step.
    s.leave_out("RankTable")
    if not own:
        s.give("Index", s.derive(_plain, rank, inverse=inverse))
        return
    s.give("Index", s.derive(_level, rank, *own, depth=len(own), inverse=inverse))
    s.out("Out", *(s.derive(_level, rank, *own, depth=k, inverse=inverse) for k in range(len(own))))


copies_rows(reorder_by_rank)
