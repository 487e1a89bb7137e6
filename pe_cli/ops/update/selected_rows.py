"""Row-sparse gradients: merge_selected_rows joins the rows of all lookups of a table; what updates do with such a gradient.

A row-sparse gradient is two variables: values [n, width] and row numbers [n]. No row number stands there twice, and
-1 marks places that hold no row; their values are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper, kernel, pointer, pointer_i64
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Table
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import MergesRows

#: 2^64 over the golden ratio, as a signed word: the high bits of its products are a hash.
GOLDEN = -7046029254386353131


@helper
def shard_of(row, shards):
    """Return the shard that a row belongs to: a hash, so that no pattern in the ids makes one shard large."""
    # Knuth's multiplier, 2^32 over the golden ratio; the high half of hash times shards divides fairly without a division.
    return (((row * 2654435761) & 4294967295) * shards) >> 32


@helper
def is_taken(row, height, padding, shard, shards):
    """Whether a row is in the table, is not left out, and belongs to a shard."""
    inside = row >= 0 and row < height and row != padding
    return inside and (shards == 1 or shard_of(row, shards) == shard)


@helper
def region(ids, counts, lists, total, shard, shards):
    """Return from where to where a shard may write: as many places as ids of the lists are hashed to it."""
    if shards == 1:
        return 0, total
    # Every shard counts all ids itself: none waits for another, and where it may write depends on the ids alone.
    begin = 0
    end = 0
    for k in range(lists):
        column = pointer_i64(ids[k])
        for i in range(counts[k]):
            owner = shard_of(column[i], shards)
            begin += owner < shard
            end += owner <= shard
    return begin, end


@helper
def find_slot(slots, row, slot_bits, place_bits):
    """Return the slot of a hash table that holds a row, or the empty one where it belongs."""
    last = (1 << slot_bits) - 1
    # Multiplying by the golden ratio spreads ids that rise evenly; the highest bits are the best mixed.
    at = ((row * GOLDEN) >> (64 - slot_bits)) & last
    while slots[at] >= 0 and (slots[at] >> place_bits) != row:
        # Linear probing: the table is at least twice as large as there are ids, so runs stay short.
        at = (at + 1) & last
    return at


@kernel
def merge_rows(
    ids: PtrI64, values: PtrI64, counts: PtrI64, paddings: PtrI64, lists: Int, total: Int, height: Int, width: Int,
    shard: Int, shards: Int, slots: PtrI64, slot_bits: Int, place_bits: Int, rows: PtrI64, out: Ptr,
):
    """Write one shard's rows, by first appearance, and the sum of the values of each in the order of lists and places.

    A shard's part of rows and out begins where the ids of the shards before it would end, and is filled up with -1 and 0.
    slots is a hash table of 2^slot_bits words: row and place in one, -1 for none.
    """
    begin, end = region(ids, counts, lists, total, shard, shards)
    for i in range(1 << slot_bits):
        slots[i] = -1
    made = begin
    for k in range(lists):
        column = pointer_i64(ids[k])
        x = pointer(values[k])
        for i in range(counts[k]):
            row = column[i]
            if not is_taken(row, height, paddings[k], shard, shards):
                continue
            at = find_slot(slots, row, slot_bits, place_bits)
            if slots[at] < 0:
                slots[at] = (row << place_bits) | made
                rows[made] = row
                for j in range(width):
                    out[made * width + j] = x[i * width + j]
                made += 1
            else:
                place = slots[at] & ((1 << place_bits) - 1)
                for j in range(width):
                    out[place * width + j] += x[i * width + j]
    # Rows are at most as many as ids; what is left over says that it is no row.
    for i in range(made, end):
        rows[i] = -1
    for j in range(made * width, end * width):
        out[j] = T(0)


def _ids(*rows: int):
    return lambda rng: np.array(rows, np.int64).reshape(-1, 1)


@op(
    "merge_selected_rows",
    traits=[MergesRows("Out", "Rows")],
    inputs="Ids* X*",
    outputs="Out Rows",
    attrs={
        "height": Attr(1, "rows of the table"),
        "padding_idx": Attr([], "for each list of ids the one that gets no gradient, -1 for none; empty for none at all"),
    },
    differentiable="",
    samples=[
        Sample({"Ids": [_ids(3, 0, 3)], "X": [(3, 4)]}, {"height": 5}, "a row twice"),
        Sample({"Ids": [_ids(1, 0), _ids(2, 1, 1)], "X": [(2, 3), (3, 3)]}, {"height": 4, "padding_idx": [0, -1]}, "two"),
        Sample({"Ids": [_ids()], "X": [(0, 4)]}, {"height": 5}, "empty batch"),
    ],
)
def merge_selected_rows(
    ids: list[TensorType], values: list[TensorType], *, height: int, padding_idx: list[int]
) -> tuple[TensorType, TensorType]:
    """Join the gradients of several lookups of one table: every row once, with the sum of its values.

    Out[k] = sum of X[i] over all i with Ids[i] = Rows[k], in the order of the lists and of places in them.

    Args:
        Ids: lists of int64 [..., 1] or [...], as the lookups had them.
        X: for each the gradient of the lookup's output, [..., width] float32 or float64.
        height: rows of the table; ids outside [0, height) are left out.
        padding_idx: ids that are left out.

    Returns:
        Out: [n, width], where n is the number of ids; 0 where Rows is -1.
        Rows: [n] int64 row numbers, each at most once, and -1 where there is none.

    Raises:
        PeError: lists of different lengths, or types that do not fit.

    Source:
        fluid.layers.merge_selected_rows.
    """
    if not ids or len(ids) != len(values) or len(padding_idx) not in (0, len(ids)):
        raise PeError(f"merge_selected_rows: {len(ids)} lists of ids, {len(values)} of values, padding_idx {padding_idx}")
    width = values[0].shape[-1]
    for column, value in zip(ids, values, strict=True):
        if column.dtype != "int64" or value.shape[-1:] != (width,) or value.dtype != values[0].dtype:
            raise PeError(f"merge_selected_rows needs Ids int64 and X [..., {width}], got {column} and {value}")
    sizes = [-1 if -1 in column.shape else product(column.shape) for column in ids]
    n = -1 if -1 in sizes else sum(sizes)
    return values[0].with_shape(n, width), TensorType((n,), "int64")


@merge_selected_rows.lower("cpu")
def merge_selected_rows_cpu(o: Lowering) -> None:
    """One shard with all rows."""
    rows, out = o.output("Rows"), o.output("Out")
    merge_shard(o, o.inputs("Ids"), o.inputs("X"), o.attrs["padding_idx"], o.attrs["height"], rows, out)


def merge_shard(
    o: Lowering,
    ids: Sequence[Buffer],
    values: Sequence[Buffer],
    paddings: Sequence[int],
    height: int,
    rows: Buffer,
    out: Buffer,
    shard: int = 0,
    shards: int = 1,
) -> None:
    """Append the call that merges one shard of the rows; the shards of a table may run side by side.

    Args:
        o: gets the call and its scratch.
        ids, values: a buffer for each list.
        paddings: for each list, or empty.
        height: rows of the table.
        rows, out: of all shards.
        shard, shards: number of this one, and how many there are.

    Raises:
        PeError: row and place do not fit into one word.
    """
    total, width = out.shape
    if not total:
        return
    counts = [product(column.shape) for column in ids]
    # Two to four times as many slots as ids.
    place_bits, slot_bits = (total - 1).bit_length(), total.bit_length() + 1
    # A slot packs row and place into one word, so that a probe reads one line of memory.
    if place_bits + (height - 1).bit_length() > 63:
        raise PeError(f"merge_selected_rows: {total} ids into {height} rows do not fit", hint="set is_sparse: false")
    o.call(
        merge_rows,
        Table(tuple(ids)), Table(tuple(values)), Numbers(tuple(counts)), Numbers(tuple(paddings) or (-1,) * len(ids)),
        len(ids), total, height, width, shard, shards,
        o.scratch(1 << slot_bits, "int64"), slot_bits, place_bits, rows, out,
        dtype=out.dtype,
    )  # fmt: skip
