"""How tensors are reduced along any axes: what reduce_*, and the gradients of broadcast operands, are made of.

Axes are joined until kept and reduced ones alternate. Where the last is reduced, every result is a reduction of runs of neighbours; where
it is kept, whole rows are combined. Both orders are fixed, and float sums are collected in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import (
    SIZE,
    Helper,
    Int,
    Kernel,
    Ptr,
    PtrF64,
    PtrI64,
    Real,
    T,
    address,
    helper,
    kernel,
    make_kernel,
    pointer,
)
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Offset
from pe_cli.ops.define.strided_copy import copy_box, place_of, row_major
from pe_cli.ops.define.work_parts import thread_parts
from pe_cli.ops.math.mean import pairwise_sum

#: Columns that make a row worth vectorising: several rows that are much narrower are taken as one, and a much narrower Y is repeated.
WIDE = 256

Axis = tuple[int, int]  # size, step in elements
#: Kind of device -> what appends the calls of `sum_axes` where one call does not keep it busy, and says whether it did.
IN_STAGES: dict[str, Callable[[Lowering, Buffer, Buffer, list[tuple[int, int, bool]], float], bool]] = {}


@kernel
def sum_inner(
    x: Ptr, out: Ptr, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int, n: Int, factor: Real
):
    """Write factor times the sum of `groups` runs of n neighbours, for each of count results."""
    for k in range(count):
        at = place_of(k, kept_rank, kept, 1)
        total = 0.0
        for q in range(groups):
            begin = at + place_of(q, outer_rank, outer, 1)
            # Pairwise within a run and float64 across runs: rounding grows with the logarithm of a sum's length.
            total += pairwise_sum(pointer(address(x) + SIZE * begin), n)
        out[k] = T(total * factor)


@kernel(exact=True)
def sum_rows(
    x: Ptr, out: Ptr, total: PtrF64, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int,
    rows: Int, step: Int, n: Int, factor: Real,
):  # fmt: skip
    """Write factor times the sum of groups * rows rows of n, for each of count rows of results; rows lie step apart.

    Eight rows are added in T before they go to float64: an eighth of the traffic, and no digits lost.
    """
    for k in range(count):
        at = place_of(k, kept_rank, kept, 1)
        for i in range(n):
            total[i] = 0.0
        for q in range(groups):
            a = at + place_of(q, outer_rank, outer, 1)
            whole = rows - rows % 8
            for r in range(0, whole, 8):
                b = a + r * step
                for i in range(n):
                    # Eight rows are added as a tree in the element type, then once to float64: converting each row would cost more than
                    # adding it.
                    low = (x[b + i] + x[b + step + i]) + (x[b + 2 * step + i] + x[b + 3 * step + i])
                    high = (x[b + 4 * step + i] + x[b + 5 * step + i]) + (x[b + 6 * step + i] + x[b + 7 * step + i])
                    total[i] += low + high
            for r in range(whole, rows):
                for i in range(n):
                    total[i] += x[a + r * step + i]
        for i in range(n):
            out[k * n + i] = T(total[i] * factor)


def _inner(start: Helper, combine: Helper) -> Any:
    def inner(x: Ptr, out: Ptr, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int, n: Int):
        for k in range(count):
            at = place_of(k, kept_rank, kept, 1)
            total = start(x[at])
            for q in range(groups):
                begin = at + place_of(q, outer_rank, outer, 1)
                for i in range(n):
                    total = combine(total, x[begin + i])
            out[k] = total

    return inner


def _rows(start: Helper, combine: Helper) -> Any:
    def over_rows(
        x: Ptr, out: Ptr, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int, rows: Int,
        step: Int, n: Int,
    ):  # fmt: skip
        for k in range(count):
            at = place_of(k, kept_rank, kept, 1)
            for i in range(n):
                out[k * n + i] = start(x[at + i])
            for q in range(groups):
                a = at + place_of(q, outer_rank, outer, 1)
                for r in range(rows):
                    for i in range(n):
                        out[k * n + i] = combine(out[k * n + i], x[a + r * step + i])

    return over_rows


def _rows_cuda(start: Helper, combine: Helper) -> Any:
    def over_rows(
        x: Ptr, out: Ptr, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int, rows: Int,
        step: Int, n: Int,
    ):  # fmt: skip
        for e in range(count * n):
            at = place_of(e // n, kept_rank, kept, 1) + e % n
            so_far = start(x[at])
            for q in range(groups):
                begin = at + place_of(q, outer_rank, outer, 1)
                for r in range(rows):
                    so_far = combine(so_far, x[begin + r * step])
            out[e] = so_far

    return over_rows


class Reduction:
    """Kernels of one way to combine elements, in the elements' own type.

    Args:
        name: unique.
        start: helper `(first element) -> value to begin with`; every element is combined with it, the first too.
        combine: helper `(so far, element) -> so far`, the same in any order.
    """

    def __init__(self, name: str, start: Helper, combine: Helper) -> None:
        self.inner: Kernel = make_kernel(_inner(start, combine), f"{__name__}:{name}_inner")
        self.rows: Kernel = make_kernel(_rows(start, combine), f"{__name__}:{name}_rows")
        deal(self.inner)
        on_cuda(self.rows)(_rows_cuda(start, combine))


@helper
def _itself(x):
    return x


@helper
def _one(x):
    return T(1)


@helper
def _zero(x):
    return T(0)


@helper
def _add(a, b):
    return T(a + b)


@helper
def _times(a, b):
    return T(a * b)


@helper
def _larger(a, b):
    return a if a > b or a != a else b


@helper
def _smaller(a, b):
    return a if a < b or a != a else b


ADD = Reduction("add", _zero, _add)
TIMES = Reduction("times", _one, _times)
LARGEST = Reduction("largest", _itself, _larger)
SMALLEST = Reduction("smallest", _itself, _smaller)


def runs(shape: Sequence[int], reduced: Sequence[bool]) -> list[tuple[int, int, bool]]:
    """Return (size, step, reduced) of a dense tensor's axes: none of size 1, neighbours of a kind joined."""
    found: list[tuple[int, int, bool]] = []
    for size, step, gone in zip(shape, row_major(shape), reduced, strict=True):
        if size == 1:
            continue
        if found and found[-1][2] == gone:
            found[-1] = (found[-1][0] * size, step, gone)
        else:
            found.append((size, step, gone))
    return found


def _walk(axes: Sequence[Axis]) -> tuple[Numbers, int, int]:
    """Return geometry for `place_of`, rank and number of places."""
    return Numbers(tuple(v for size, step in reversed(axes) for v in (size, step, 0))), len(axes), math.prod(s for s, _ in axes)


def reduce_with(o: Lowering, how: Reduction, x: Buffer, out: Buffer, shape: Sequence[int], reduced: Sequence[bool]) -> None:
    """Append the calls that combine a non-empty x, dense of that shape, along the reduced axes into out."""
    axes = runs(shape, reduced)
    if not any(gone for *_, gone in axes):
        o.call(copy, x, out, out.size)
        return
    kept = [(s, step) for s, step, gone in axes if not gone]
    gone = [(s, step) for s, step, gone in axes if gone]
    if axes[-1][2]:
        n, _ = gone.pop()
        o.call(how.inner, x, out, *_walk(kept), *_walk(gone), n)
        return
    n, _ = kept.pop()
    rows, step = gone.pop()
    o.call(how.rows, x, out, *_walk(kept), *_walk(gone), rows, step, n)


def sum_axes(
    o: Lowering, x: Buffer, out: Buffer, shape: Sequence[int], reduced: Sequence[bool], factor: float = 1.0
) -> None:
    """Append the calls that write factor times the sums of a non-empty float x, dense of that shape, along the reduced axes.

    They are parts, of which threads take one each, where the first axis stays.
    """
    axes = runs(shape, reduced)
    if o.place in IN_STAGES and IN_STAGES[o.place](o, x, out, axes, factor):
        return
    kept = [(s, step) for s, step, gone in axes if not gone]
    gone = [(s, step) for s, step, gone in axes if gone]
    inner = not axes or axes[-1][2]
    n, _ = (gone.pop() if gone else (1, 1)) if inner else kept.pop()
    rows, step = (1, n) if inner or not gone else gone.pop()
    if o.place == "cpu" and not inner and n <= WIDE // 4 and len(axes) == 2 and rows >= 8 * (WIDE // n):
        _sum_narrow(o, x, out, rows, n, factor)
        return
    size, far = kept[0] if kept and not axes[0][2] else (1, 0)
    each = out.size // size
    for part, begin, end in thread_parts(size, o.threads, x.type.nbytes):
        source, target = Offset(x, begin * far), Offset(out, begin * each)
        walks = (*_walk([(end - begin, far), *kept[1:]] if far else kept), *_walk(gone))
        if inner:
            o.call(sum_inner, source, target, *walks, n, factor, part=part)
        else:
            o.call(sum_rows, source, target, o.scratch(n, "float64"), *walks, rows, step, n, factor, part=part)


def _sum_narrow(o: Lowering, x: Buffer, out: Buffer, rows: int, n: int, factor: float) -> None:
    """Sum many narrow rows: some of them side by side are as many wide rows; their sum and the rows left over are summed last."""
    times = WIDE // n
    wide, left = divmod(rows, times)
    few = o.scratch((times + left) * n, out.dtype)
    none = _walk([])
    total = o.scratch(times * n, "float64")
    o.call(sum_rows, x, few, total, *none, *none, wide, times * n, times * n, 1.0)
    if left:
        o.call(copy, Offset(x, wide * times * n), Offset(few, times * n), left * n)
    o.call(sum_rows, few, out, total, *none, *none, times + left, n, n, factor)


def spread(o: Lowering, x: Buffer, out: Buffer, x_shape: Sequence[int], shape: Sequence[int]) -> None:
    """Append the call that repeats x along axes of size 1 of x_shape until it has the other shape, of the same rank."""
    steps = [0 if size == 1 else step for size, step in zip(x_shape, row_major(x_shape), strict=True)]
    copy_box(o, x, out, shape, steps, row_major(shape))
