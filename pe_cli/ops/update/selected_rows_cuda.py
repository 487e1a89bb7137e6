"""merge_selected_rows on CUDA: ids are sorted, every row has its place by its first id, and a thread adds up what a row has, in order."""

from __future__ import annotations

from pe_cli.core.types import product
from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, PtrI64, T
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.lowering import Lowering, Offset
from pe_cli.ops.define.sorted_ids_cuda import PLACE, count_before, is_first, mark_first, sorted_keys
from pe_cli.ops.update.selected_rows import merge_selected_rows


@cuda_kernel
def clear_rows(rows: PtrI64, out: Ptr, total: Int, width: Int):
    """No row, and zeros."""
    for e in range(total * width):
        out[e] = T(0)
        at = quotient(e, width)
        if e == at * width:
            rows[at] = -1


@cuda_kernel
def add_rows(keys: PtrI64, places: PtrI64, x: Ptr, rows: PtrI64, out: Ptr, total: Int, width: Int):
    """The sums of rows, at the places of their first ids; one thread per number."""
    for e in range(total * width):
        at = quotient(e, width)
        j = e - at * width
        if is_first(keys, at):
            row, first = keys[at] >> 32, keys[at] & PLACE
            # Equal rows are neighbours, in the order of their places: each sum is made in the order in which a CPU makes it.
            sums, then = x[first * width + j], at + 1
            while then < total and keys[then] >> 32 == row:
                sums += x[(keys[then] & PLACE) * width + j]
                then += 1
            out[places[first] * width + j] = sums
            if j == 0:
                rows[places[first]] = row


@merge_selected_rows.lower("cuda")
def merge_selected_rows_cuda(o: Lowering) -> None:
    """All lists as one."""
    rows, out = o.output("Rows"), o.output("Out")
    total, width = out.shape
    if not total:
        return
    lists = o.inputs("Ids")
    # Keys number places over all lists, so that several lists are laid out as one; a single list is that already.
    values = o.inputs("X")[0] if len(o.inputs("X")) == 1 else o.scratch(total * width, out.dtype)
    begin = 0
    for column, x in zip(lists, o.inputs("X"), strict=True):
        count = product(column.shape)
        if count and x is not values:
            o.call(copy, x, Offset(values, begin * width), count * width, dtype=out.dtype)
        begin += count
    keys, places = sorted_keys(o, lists, o.attrs["padding_idx"] or [-1] * len(lists), o.attrs["height"]), o.scratch(total, "int64")
    o.call(mark_first, keys, places, total)
    o.call(count_before, places, total)
    o.call(clear_rows, rows, out, total, width)
    o.call(add_rows, keys, places, values, rows, out, total, width)
