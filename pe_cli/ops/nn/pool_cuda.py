"""pool2d on CUDA: one thread per window forward, one thread per element of the image backward."""

from __future__ import annotations

from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.nn.pool import (
    CHANNELS,
    HEIGHT,
    INSIDE,
    OUT_HEIGHT,
    OUT_WIDTH,
    PAD_X,
    PAD_Y,
    STRIDE_X,
    STRIDE_Y,
    TAPS_X,
    TAPS_Y,
    WIDTH,
    average_backward,
    average_forward,
    max_backward,
    max_forward,
    pool2d,
    window,
)  # fmt: skip


@helper
def _place(e, C, columns, rows):
    """Return channel, column, row and image of an element."""
    pixel = quotient(e, C)
    line = quotient(pixel, columns)
    image = quotient(line, rows)
    return e - pixel * C, pixel - line * columns, line - image * rows, image


@helper
def _windows(at, pad, taps, stride, count):
    """Return the first window that a row or column lies in, and the one past the last."""
    return quotient(max(0, at + pad - taps + stride), stride), min(count, quotient(at + pad, stride) + 1)


@on_cuda(max_forward)
def max_forward_cuda(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """One thread per window."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for e in range(n * OH * OW * C):
        c, j, i, image = _place(e, C, OW, OH)
        r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
        c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
        best = x[((image * H + r0) * W + c0) * C + c]
        for r in range(r0, r1):
            for s in range(c0, c1):
                v = x[((image * H + r) * W + s) * C + c]
                best = best if (best >= v or best != best) else v
        y[e] = best


@on_cuda(max_backward)
def max_backward_cuda(x: Ptr, y: Ptr, dy: Ptr, dx: Ptr, left: Ptr, g: PtrI64, n: Int):
    """One thread per input element: it gathers from the windows whose first largest value it is."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for e in range(n * H * W * C):
        # Gathering instead of scattering: an element asks the windows that it lies in, so no two threads add to one place.
        c, w, h, image = _place(e, C, W, H)
        i0, i1 = _windows(h, g[PAD_Y], g[TAPS_Y], g[STRIDE_Y], OH)
        j0, j1 = _windows(w, g[PAD_X], g[TAPS_X], g[STRIDE_X], OW)
        v = x[e]
        total = T(0)
        for i in range(i0, i1):
            r0, _ = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
            for j in range(j0, j1):
                c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
                out = ((image * OH + i) * OW + j) * C + c
                mine = v == y[out] or v != v
                # It is the first largest if no element before it in the window has that value.
                for r in range(r0, h + 1):
                    for s in range(c0, w if r == h else c1):
                        u = x[((image * H + r) * W + s) * C + c]
                        if u == y[out] or u != u:
                            mine = False
                if mine:
                    total += dy[out]
        dx[e] = total


@helper
def _shares(r0, r1, c0, c1, g):
    """Return how many elements an average is over."""
    return max((r1 - r0) * (c1 - c0) if g[INSIDE] != 0 else g[TAPS_Y] * g[TAPS_X], 1)


@on_cuda(average_forward)
def average_forward_cuda(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """One thread per window."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for e in range(n * OH * OW * C):
        c, j, i, image = _place(e, C, OW, OH)
        r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
        c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
        total = T(0)
        for r in range(r0, r1):
            for s in range(c0, c1):
                total += x[((image * H + r) * W + s) * C + c]
        y[e] = total * (T(1) / T(_shares(r0, r1, c0, c1, g)))


@on_cuda(average_backward)
def average_backward_cuda(dy: Ptr, dx: Ptr, g: PtrI64, n: Int):
    """One thread per input element: it gathers from the windows that it lies in."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for e in range(n * H * W * C):
        c, w, h, image = _place(e, C, W, H)
        i0, i1 = _windows(h, g[PAD_Y], g[TAPS_Y], g[STRIDE_Y], OH)
        j0, j1 = _windows(w, g[PAD_X], g[TAPS_X], g[STRIDE_X], OW)
        total = T(0)
        for i in range(i0, i1):
            r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
            for j in range(j0, j1):
                c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
                total += dy[((image * OH + i) * OW + j) * C + c] * (T(1) / T(_shares(r0, r1, c0, c1, g)))
        dx[e] = total


also_on_cuda(pool2d)
