"""Two tensors of different shapes walked together: fluid's `axis` rule, and kernels made from scalar functions of two numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cpu.non_temporal import FAR, fence_non_temporal, store_run
from pe_cli.kernels.cuda.int32_index import divided, left_over, reciprocal
from pe_cli.kernels.cuda.language import CHOSEN, CudaKernel, cuda_kernel, on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import SIZE, Helper, Kernel, address, helper, kernel_code, make_kernel
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Offset
from pe_cli.ops.define.strided_copy import copy_box, place_of, row_major
from pe_cli.ops.math.reduction import WIDE, spread

Shape = tuple[int, ...]

#: Kernels of `binary_kernel` -> those that take over where a result is larger than the caches; these have scratch of PIECE after out.
_FAR_KERNELS: dict[Kernel, Kernel] = {}

#: How the innermost axis is walked: both operands move, Y stands still, X stands still.
BOTH, Y_STILL, X_STILL = 0, 1, 2

#: Elements that are made near at a time; a few thousand bytes, so that they and what they are made of stay in the first cache.
PIECE = 1024

#: The loop over one pointer is for calls in place: two pointers that may overlap would cost them the vector loop.
_BINARY = """
from __future__ import annotations
def loop(x: Ptr, y: Ptr, out: {kind}, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int, mode: Int):
    for b in range(blocks):
        xb = place_of(b, rank, geometry, 1)
        yb = place_of(b, rank, geometry, 2)
        ob = b * rows * n
        for r in range(rows):
            o = ob + r * n
            p = xb + r * xr
            q = yb + r * yr
            if mode == 0:
                if {inplace}:
                    for i in range(n):
                        out[o + i] = f(out[o + i], y[q + i])
                else:
                    for i in range(n):
                        out[o + i] = f(x[p + i], y[q + i])
            elif mode == 1:
                still = y[q]
                if {inplace}:
                    for i in range(n):
                        out[o + i] = f(out[o + i], still)
                else:
                    for i in range(n):
                        out[o + i] = f(x[p + i], still)
            else:
                still = x[p]
                for i in range(n):
                    out[o + i] = f(still, y[q + i])
"""

_BACK = """
from __future__ import annotations
def loop(g: Ptr, x: Ptr, y: Ptr, out: Ptr, n: Int):
    if address(g) == address(out):
        for i in range(n):
            out[i] = f(out[i], x[i], y[i])
    else:
        for i in range(n):
            out[i] = f(g[i], x[i], y[i])
"""

#: A result that no cache holds is made piece by piece in near, and goes past the caches from there unless it takes the place of x.
_BINARY_FAR = """
from __future__ import annotations
def loop(
    x: Ptr, y: Ptr, out: Ptr, near: Ptr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int, mode: Int
):
    for row in range(blocks * rows):
        p = place_of(row // rows, rank, geometry, 1) + row % rows * xr
        q = place_of(row // rows, rank, geometry, 2) + row % rows * yr
        for first in range(0, n, PIECE):
            size = min(PIECE, n - first)
            px = p if mode == 2 else p + first
            qy = q if mode == 1 else q + first
            if mode == 0:
                for i in range(size):
                    near[i] = f(x[px + i], y[qy + i])
            elif mode == 1:
                still = y[qy]
                for i in range(size):
                    near[i] = f(x[px + i], still)
            else:
                still = x[px]
                for i in range(size):
                    near[i] = f(still, y[qy + i])
            at = row * n + first
            if address(x) == address(out):
                for i in range(size):
                    out[at + i] = near[i]
            else:
                store_run(address(near), address(out) + SIZE * at, size)
    fence_non_temporal()
"""

#: CUDA has one thread per element; a call in place is nothing special there. This one knows all ways of broadcasting.
_BINARY_CUDA = """
from __future__ import annotations
def loop(x: Ptr, y: Ptr, out: {kind}, {near}geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int, mode: Int):
    for e in range(blocks * rows * n):
        row = quotient(e, n)
        i = e - row * n
        b = quotient(row, rows)
        r = row - b * rows
        p = place_of(b, rank, geometry, 1) + r * xr + (0 if mode == 2 else i)
        q = place_of(b, rank, geometry, 2) + r * yr + (0 if mode == 1 else i)
        out[e] = f(x[p], y[q])
"""

#: The common ways on CUDA. One operand is walked as the result is, `whole`; the other is walked so, too, or is one number, or has one for
#: each place in a row, for each row, or for each row of a block: `part`. Divisors come as their reciprocals.
_WAYS_CUDA = {
    "both": "out[e] = f(x[e], y[e])",
    "one": "out[e] = f({one})",
    "last": "i = left_over(e, divided(e, m, s), n)\n        out[e] = f({part})",
    "first": "i = divided(e, m, s)\n        out[e] = f({part})",
    "middle": "row = divided(e, m, s)\n        i = left_over(row, divided(row, bm, bs), rows)\n        out[e] = f({part})",
}
_WAY_CUDA = """
from __future__ import annotations
def loop(x: Ptr, y: Ptr, out: {kind}, size: Int, n: Int, m: Int, s: Int, rows: Int, bm: Int, bs: Int):
    {still}
    for e in range(size):
        {body}
"""

_BACK_CUDA = """
from __future__ import annotations
def loop(g: Ptr, x: Ptr, y: Ptr, out: Ptr, n: Int):
    for i in range(n):
        out[i] = f(g[i], x[i], y[i])
"""


def _made(text: str, cuda_text: str, f: Helper, name: str) -> Kernel:
    space: dict[str, Any] = {"f": f, "address": address, "place_of": place_of, "SIZE": SIZE, "PIECE": PIECE}
    space |= {"store_run": store_run, "fence_non_temporal": fence_non_temporal}
    exec(kernel_code(text), space)  # our own text: nothing in it comes from outside
    made = make_kernel(space["loop"], name, each=f)
    space = {**space, "quotient": quotient}
    exec(kernel_code(cuda_text), space)
    on_cuda(made, text=cuda_text)(space["loop"])
    return made


def _by_ways(made: Kernel, f: Helper, kind: str) -> None:
    """Give a binary kernel its common ways on CUDA."""

    @functools.cache
    def of(way: str, x_whole: bool) -> CudaKernel:
        whole, part = ("x", "y") if x_whole else ("y", "x")

        def args(other: str) -> str:
            return f"{whole}[e], {other}" if x_whole else f"{other}, {whole}[e]"

        body = _WAYS_CUDA[way].format(one=args("still"), part=args(f"{part}[i]"))
        text = _WAY_CUDA.format(kind=kind, still=f"still = {part}[0]" if way == "one" else "", body=body)
        space: dict[str, Any] = {"f": f, "divided": divided, "left_over": left_over}
        exec(kernel_code(text), space)
        name = f"{made.name}.{way}{'' if x_whole else '.of_x'}"
        found: CudaKernel = cuda_kernel(space["loop"], text=text, name=name)
        return found

    def choose(call: Call) -> Call | None:
        *buffers, geometry, _, blocks, rows, n, xr, yr, mode = call.args
        way = _way(geometry.values, rows, n, xr, yr, mode)
        if way is None:
            return None
        numbers = (blocks * rows * n, n, *reciprocal(n), rows, *reciprocal(rows))
        return replace(call, kernel=of(*way), args=(*buffers[:3], *numbers))

    CHOSEN[made] = choose


def _way(geometry: Sequence[int], rows: int, n: int, xr: int, yr: int, mode: int) -> tuple[str, bool] | None:
    """Return how a call broadcasts, and whether X is the operand that is walked as the result is; None for a way that is not common."""
    if mode == BOTH and not geometry and ((xr, yr) == (n, n) or rows == 1):
        return "both", True
    # One operand has to lie as the result does, block after block; the other must be the same in every block, so that its place follows
    # from that in a row, or from the row, by one division.
    for number, still, own, other in ((1, Y_STILL, xr, yr), (2, X_STILL, yr, xr)):
        in_blocks = [(geometry[k + number], geometry[k + 3 - number]) for k in range(0, len(geometry), 3)]
        size = rows * n
        is_whole = own == n or rows == 1
        for k, (step, _) in enumerate(in_blocks):
            is_whole &= step == size
            size *= geometry[3 * k]
        if not is_whole or any(step for _, step in in_blocks) or mode == 3 - still:
            continue
        x_whole = number == 1
        if mode == still and (rows == 1 or other == 0):
            return "one", x_whole
        if mode == BOTH and (rows == 1 or other == 0):
            return "last", x_whole
        if mode == still and other == 1:
            return ("middle" if geometry else "first"), x_whole
    return None


def binary_kernel(fn: Any) -> Kernel:
    """Return the kernel that maps `fn(x, y) -> T` over two broadcast tensors; out may be x."""
    f, name = helper(fn), f"{fn.__module__}:{fn.__qualname__}"
    inplace = "address(x) == address(out)"
    made = _made(_BINARY.format(kind="Ptr", inplace=inplace), _BINARY_CUDA.format(kind="Ptr", near=""), f, name)
    far = _FAR_KERNELS[made] = _made(_BINARY_FAR, _BINARY_CUDA.format(kind="Ptr", near="near: Ptr, "), f, f"{name}.far")
    _by_ways(made, f, "Ptr")
    CHOSEN[far] = CHOSEN[made]
    return made


def truth_kernel(fn: Any) -> Kernel:
    """Return the kernel that maps `fn(x, y) -> bool` over two broadcast tensors, into bytes."""
    text, cuda_text = _BINARY.format(kind="PtrU8", inplace="False"), _BINARY_CUDA.format(kind="PtrU8", near="")
    f = helper(fn)
    made = _made(text, cuda_text, f, f"{fn.__module__}:{fn.__qualname__}")
    _by_ways(made, f, "PtrU8")
    return made


def back_kernel(fn: Any) -> Kernel:
    """Return the kernel `(g, x, y, out, n)` that maps `fn(g, x, y)` over tensors of one shape; out may be g."""
    return _made(_BACK, _BACK_CUDA, helper(fn), f"{fn.__module__}:{fn.__qualname__}")


def aligned(shape: Sequence[int], rank: int, axis: int) -> Shape:
    """Return a shape with sizes of 1 added, so that it has that many axes.

    Args:
        shape: of an operand.
        rank: axes of the larger operand.
        axis: where its first axis goes, -1 for the last place that fits; sizes of 1 at its end that stick out are dropped.
    """
    if len(shape) == rank:
        return tuple(shape)
    start = rank - len(shape) if axis == -1 else axis
    kept = list(shape)
    while start + len(kept) > rank and kept and kept[-1] == 1:
        kept.pop()
    return (*([1] * start), *kept, *([1] * (rank - start - len(kept))))


def broadcast(name: str, x: Shape, y: Shape, axis: int) -> Shape:
    """Return the shape of the result.

    Args:
        name: of the op, for messages.
        x: sizes, -1 where not known.
        y: sizes likewise.
        axis: see `aligned`; of the operand with more axes.

    Raises:
        PeError: the shapes do not fit; names both.
    """
    rank = max(len(x), len(y))
    if axis < -1 or (len(x) != len(y) and axis > rank):
        raise PeError(f"{name}: axis must be -1 or an axis of the larger operand, got {axis} for X {_text(x)} and Y {_text(y)}")
    a, b = aligned(x, rank, axis), aligned(y, rank, axis)
    where = f" from axis {axis}" if axis >= 0 and len(x) != len(y) else ""
    if len(a) != rank or len(b) != rank:
        raise PeError(f"{name}: X is {_text(x)} and Y is {_text(y)}{where}, which has more axes than are left", hint="set axis: -1")
    out = []
    for i, (s, t) in enumerate(zip(a, b, strict=True)):
        if s != t and 1 not in (s, t) and -1 not in (s, t):
            hint = f"axis says which axis of {'X' if len(x) >= len(y) else 'Y'} the other's first axis stands for; sizes of 1 fit any"
            raise PeError(f"{name}: shapes do not fit: X is {_text(x)}, Y is {_text(y)}{where}, and {s} != {t} at axis {i}", hint=hint)
        out.append(t if s == 1 else (s if t in (1, -1) else (t if s == -1 else s)))
    return tuple(out)


def _text(shape: Shape) -> str:
    return "[" + ", ".join("batch" if s == -1 else str(s) for s in shape) + "]"


def _steps(shape: Shape) -> list[int]:
    return [0 if size == 1 else step for size, step in zip(shape, row_major(shape), strict=True)]


def _joined(out: Shape, x: Shape, y: Shape) -> list[tuple[int, int, int]]:
    """Return (size, step of x, step of y), neighbours joined where both are walked, or stand, as one."""
    found: list[tuple[int, int, int]] = []
    for size, a, b in zip(out, _steps(x), _steps(y), strict=True):
        if size == 1:
            continue
        # The outer axis goes on where the inner one ends, for both operands: one loop walks the two axes.
        if found and found[-1][1] == size * a and found[-1][2] == size * b:
            found[-1] = (found[-1][0] * size, a, b)
        else:
            found.append((size, a, b))
    return found or [(1, 1, 1)]


def call_binary(
    o: Lowering, kernel: Kernel, x: Buffer, y: Buffer, out: Buffer, axis: int, full: Shape | None = None, *,
    more: Sequence[Buffer] = (), values: Sequence[float] = (),
) -> None:  # fmt: skip
    """Append the calls of a binary kernel.

    Args:
        o: where to.
        kernel: from `binary_kernel` or `truth_kernel`.
        x: first operand.
        y: second operand.
        out: result; its memory may be x's.
        axis: see `aligned`.
        full: shape of the result where out is scratch.
        more: further results of the kernel, like out, after it.
        values: numbers that the kernel takes last.
    """
    shape = out.shape if full is None else full
    if math.prod(shape) == 0:
        return
    rank = len(shape)
    axes = _joined(shape, aligned(x.shape, rank, axis), aligned(y.shape, rank, axis))
    # A bias on narrow rows: a loop over a few elements costs more than its sums, so the bias is repeated first.
    if o.place == "cpu" and len(axes) == 2 and axes[1][2] == 1 and axes[0][2] == 0 and axes[0][1] == axes[1][0]:
        (rows, _, _), (n, _, _) = axes
        if n <= WIDE // 4 and rows >= 4 * (WIDE // n):
            _call_narrow(o, kernel, x, y, (out, *more), rows, n, values)
            return
    *others, (n, xs, ys) = axes
    mode = BOTH if xs == ys else (Y_STILL if ys == 0 else X_STILL)
    rows, xr, yr = others.pop() if others else (1, 0, 0)
    geometry = Numbers(tuple(v for triple in reversed(others) for v in triple))
    blocks = math.prod(size for size, _, _ in others)
    kernel, near = _near_or_far(o, kernel, out, math.prod(shape))
    o.call(kernel, x, y, out, *more, *near, geometry, len(others), blocks, rows, n, xr, yr, mode, *values)


def _near_or_far(o: Lowering, kernel: Kernel, out: Buffer, elements: int) -> tuple[Kernel, list[Buffer]]:
    """Return the kernel for a result of so many elements, and the scratch that it takes after its results."""
    # A result that no cache holds is stored past the caches, so that its lines are not read before they are overwritten.
    if o.place != "cpu" or kernel not in _FAR_KERNELS or elements * DTYPES[out.dtype] < FAR:
        return kernel, []
    return _FAR_KERNELS[kernel], [o.scratch(PIECE, out.dtype)]


def _call_narrow(
    o: Lowering, kernel: Kernel, x: Buffer, y: Buffer, outs: Sequence[Buffer], rows: int, n: int, values: Sequence[float]
) -> None:
    """Combine many narrow rows with one: repeat that until it is wide."""
    times = WIDE // n
    wide, left = divmod(rows, times)
    repeated = o.scratch(times * n, y.dtype)
    copy_box(o, y, repeated, (times, n), (0, 1), (n, 1))
    none = Numbers(())
    kernel, near = _near_or_far(o, kernel, outs[0], rows * n)
    o.call(kernel, x, repeated, *outs, *near, none, 0, 1, wide, times * n, times * n, 0, BOTH, *values)
    if left:
        done = wide * times * n
        rest = [Offset(out, done) for out in outs]
        o.call(kernel, Offset(x, done), repeated, *rest, *near, none, 0, 1, 1, left * n, 0, 0, BOTH, *values)


def expanded(o: Lowering, x: Buffer, full: Shape, axis: int) -> Buffer:
    """Return x in the shape of the result: itself, or repeated in scratch."""
    own = aligned(x.shape, len(full), axis)
    if own == tuple(full):
        return x
    made = o.scratch(math.prod(full), x.dtype)
    spread(o, x, made, own, full)
    return made
