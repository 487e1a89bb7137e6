"""Updates of all rows of a table by gradients for some: lists of the places where a row's gradients are, and momentum and adam by those."""

from __future__ import annotations

from pe_cli.core.types import product
from pe_cli.kernels.cpu.non_temporal import AHEAD, prefetch_row
from pe_cli.kernels.language import (
    SIZE,
    Addr,
    Int,
    Kernel,
    Ptr,
    PtrI32,
    PtrI64,
    PtrU,
    Real,
    T,
    address,
    helper,
    kernel,
    pointer,
)
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.work_parts import thread_parts
from pe_cli.ops.update.update_kernels import accelerate, adam_corrected, adam_where_needed, descend

#: Elements of narrow rows that are updated at a time: vectors of a row alone would be mostly empty.
TOGETHER = 128


@helper
def list_places(ids, count, begin, end, padding, first, after):
    """Make a list of the places of the ids of every row from begin to end, in order.

    first[row - begin] is the first place of a row, after[place] the next; -1 ends a list.
    """
    for row in range(end - begin):
        first[row] = -1
    # From the last to the first, so that the head of each list is the first place.
    for back in range(count):
        place = count - 1 - back
        k = ids[place]
        if k != padding and k >= begin and k < end:
            after[place] = first[k - begin]
            first[k - begin] = place


@helper
def prepare(ids, count, begin, end, width, padding, first, after, room):
    """Make the lists of places, and the row of zeros; see `row_gradient`."""
    nothing = pointer(room)
    for j in range(width):
        nothing[j] = T(0)
    list_places(ids, count, begin, end, padding, first, after)


@helper
def row_gradient(g, place, after, width, room):
    """Return the address of a row's gradient: the sum over its places from the given one on, zeros where that is -1.

    room: address of a row of zeros, and of one for the sum behind it.
    """
    if place < 0:
        # A row without a gradient reads one shared row of zeros: moments decay in every row.
        return room
    at = address(g) + SIZE * place * width
    place = after[place]
    # A row with one gradient, the usual case, is read where it lies.
    if place < 0:
        return at
    out = room + SIZE * width
    one, other, total = pointer(at), pointer(address(g) + SIZE * place * width), pointer(out)
    for j in range(width):
        total[j] = one[j] + other[j]
    place = after[place]
    while place >= 0:
        other = pointer(address(g) + SIZE * place * width)
        for j in range(width):
            total[j] += other[j]
        place = after[place]
    return out


@helper
def ask_ahead(g, first, row, rows, width):
    """Ask for the gradient of a row that is soon to come."""
    if row + AHEAD < rows:
        prefetch_row(g, first[row + AHEAD], width)


@helper
def gradients_of(g, first, after, row, count, rows, width, room):
    """Return the address of the gradients of some rows from one on, one after the other: zeros where none of them has any.

    room: see `adam_by_places`, as `prepare` left it.
    """
    found = 0
    for r in range(row, row + count):
        ask_ahead(g, first, r, rows, width)
        found = max(found, first[r] + 1)
    # A stretch of rows without any gradient needs no copy.
    if found == 0:
        return room
    out = room + SIZE * count * width
    aside = out + SIZE * count * width
    if count == 1:
        return row_gradient(g, first[row], after, width, aside)
    all_ = pointer(out)
    for j in range(count * width):
        all_[j] = T(0)
    for r in range(count):
        if first[row + r] >= 0:
            source, target = pointer(row_gradient(g, first[row + r], after, width, aside)), pointer(out + SIZE * r * width)
            for j in range(width):
                target[j] = source[j]
    return out


@kernel
def adam_by_places(
    p: Ptr, g: Ptr, ids: PtrI64, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, first: PtrI32, after: PtrI32, room: Addr,
    count: Int, begin: Int, end: Int, width: Int, padding: Int, b1: Real, b2: Real, eps: Real,
):  # fmt: skip
    """adam_step in the rows from begin to end, but for the powers; room: address of two rows and of twice as many as are done together."""
    # Narrow rows are done several at a time, so that vectors are filled.
    together = max(1, TOGETHER // width)
    step = T(adam_corrected(rate, pow1, pow2))
    prepare(ids, count, begin, end, together * width, padding, first, after, room)
    for row in range(0, end - begin, together):
        some = min(together, end - begin - row)
        at = SIZE * (begin + row) * width
        slope = pointer(gradients_of(g, first, after, row, some, end - begin, width, room))
        one, two = pointer(address(m) + at), pointer(address(v) + at)
        adam_where_needed(pointer(address(p) + at), slope, one, two, 0, some * width, step, b1, b2, eps)


@kernel
def momentum_by_places(
    p: Ptr, g: Ptr, ids: PtrI64, v: Ptr, rate: PtrU, first: PtrI32, after: PtrI32, room: Addr, count: Int, begin: Int, end: Int,
    width: Int, padding: Int, mu: Real, nesterov: Int,
):  # fmt: skip
    """momentum_step in the rows from begin to end of a table; see `adam_by_places`."""
    step = T(rate[0])
    together = max(1, TOGETHER // width)
    prepare(ids, count, begin, end, together * width, padding, first, after, room)
    for row in range(0, end - begin, together):
        some = min(together, end - begin - row)
        slope = pointer(gradients_of(g, first, after, row, some, end - begin, width, room))
        at = SIZE * (begin + row) * width
        own, speed = pointer(address(p) + at), pointer(address(v) + at)
        for i in range(some * width):
            now = accelerate(speed[i], slope[i], mu)
            speed[i] = now
            own[i] = descend(own[i], step, accelerate(now, slope[i], mu) if nesterov else now)


def by_places(
    o: Lowering, kernel_: Kernel, before: tuple[Buffer, ...], ids: Buffer, padding: int, settings: tuple[float, ...]
) -> None:
    """Append the calls of a kernel like `adam_by_places`, for every thread's rows of the table.

    Args:
        o: the op; ParamOut is the table.
        kernel_: takes `before`, lists of places, room as that one wants, sizes, and `settings`.
        before: its first arguments.
        ids: rows that gradients are for.
        padding: an id that has none; -1 is no row anyway.
        settings: its last arguments.
    """
    table = o.output("ParamOut")
    (rows, width), count = table.shape, product(ids.shape)
    for part, begin, end in thread_parts(rows, o.threads, table.type.nbytes):
        # int32 holds every place of a batch, and halves what a pass over all rows reads besides the table.
        first, after = o.scratch(end - begin, "int32"), o.scratch(count, "int32")
        room = o.scratch(2 * (width + max(width, TOGETHER)), table.dtype)
        o.call(kernel_, *before, first, after, room, count, begin, end, width, padding, *settings, part=part)
