"""merge_selected_rows on CUDA: every id looks whether it is the first of its row, and adds up what the later ones have, in order."""

from __future__ import annotations

from pe_cli.core.types import product
from pe_cli.kernels.cuda import cuda_kernel
from pe_cli.kernels.lang import Int, Ptr, PtrI64, T
from pe_cli.ops.define.lowering import Lowering, Offset
from pe_cli.ops.define.moves import copy
from pe_cli.ops.update.selected_rows import merge_selected_rows


@cuda_kernel
def kept_ids(ids: PtrI64, out: PtrI64, begin: Int, count: Int, height: Int, padding: Int):
    """out[begin + i] = id i, or -1 for one that is left out."""
    for i in range(count):
        row = ids[i]
        out[begin + i] = row if 0 <= row < height and row != padding else -1


@cuda_kernel
def find_first(ids: PtrI64, first: PtrI64, total: Int):
    """first[i] = 1 where no id before i is the same."""
    for i in range(total):
        found = 1 if ids[i] >= 0 else 0
        for j in range(i):
            if ids[j] == ids[i]:
                found = 0
                break
        first[i] = found


@cuda_kernel
def clear_rows(rows: PtrI64, out: Ptr, total: Int, width: Int):
    """No row, and zeros."""
    for e in range(total * width):
        out[e] = T(0)
        if e % width == 0:
            rows[e // width] = -1


@cuda_kernel
def add_rows(ids: PtrI64, first: PtrI64, x: Ptr, rows: PtrI64, out: Ptr, total: Int, width: Int):
    """The sums of rows by first appearance, one thread per number."""
    for e in range(total * width):
        i, j = e // width, e % width
        if first[i]:
            place = 0
            for k in range(i):
                place += first[k]
            sums = x[e]
            for k in range(i + 1, total):
                if ids[k] == ids[i]:
                    sums += x[k * width + j]
            out[place * width + j] = sums
            if j == 0:
                rows[place] = ids[i]


@merge_selected_rows.lower("cuda")
def merge_selected_rows_cuda(o: Lowering) -> None:
    """All lists as one."""
    rows, out = o.output("Rows"), o.output("Out")
    total, width = out.shape
    if not total:
        return
    ids, first = o.scratch(total, "int64"), o.scratch(total, "int64")
    values = o.inputs("X")[0] if len(o.inputs("X")) == 1 else o.scratch(total * width, out.dtype)
    paddings = o.attrs["padding_idx"] or [-1] * len(o.inputs("Ids"))
    begin = 0
    for column, x, padding in zip(o.inputs("Ids"), o.inputs("X"), paddings, strict=True):
        count = product(column.shape)
        if count:
            o.call(kept_ids, column, ids, begin, count, o.attrs["height"], padding)
        if count and x is not values:
            o.call(copy, x, Offset(values, begin * width), count * width, dtype=out.dtype)
        begin += count
    o.call(find_first, ids, first, total)
    o.call(clear_rows, rows, out, total, width)
    o.call(add_rows, ids, first, values, rows, out, total, width)
