"""Matrix products on CUDA: a block computes a square of 64, tile by tile of the factors, and each of its threads 16 elements of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.cuda import cuda, on_cuda
from pe_cli.kernels.lang import Int, Ptr, PtrI64, Real, T, helper
from pe_cli.ops.math.matrix_product import products

#: Threads of a block along each axis, and how deep a tile is.
SIDE: Any = 16
#: Rows and columns of the square.
SQUARE: Any = 64
#: Threads of a block.
ALL: Any = 256
#: Elements that a tile's lines lie apart: threads that fill it write to different banks of shared memory.
LINE: Any = 66
#: An index without a sign: one with a sign could count from the end.
At: Any = np.uint64


@on_cuda(products)
def no_products(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """Without a product C is zero."""
    for i in range(size if count == 0 else 0):
        c[i] = T(0)


@helper
def fill(tile, x, at, line, across, first, begin, rows, depth, me):
    """Fill a tile, [SIDE, LINE]: what a factor has at rows from first and terms from begin, and 0 beyond its ends.

    Neighbours in memory are read by neighbours among threads; across: they are rows.
    """
    t = me
    while t < SQUARE * SIDE:
        row, inner = (t % SQUARE, t // SQUARE) if across else (t // SIDE, t % SIDE)
        value = T(0)
        if first + row < rows and begin + inner < depth:
            value = x[at + ((begin + inner) * line + first + row if across else (first + row) * line + begin + inner)]
        tile[At(inner), At(row)] = value
        t += ALL


@helper
def put(c, at, total, alpha, adds):
    """Write an element of the product, or add to it."""
    c[at] = c[at] + total if adds else alpha * total


@helper
def put_row(c, at, s0, s1, s2, s3, alpha, adds, left):
    """Write as many of four neighbours as there are."""
    if left > 0:
        put(c, at, s0, alpha, adds)
    if left > 1:
        put(c, at + 1, s1, alpha, adds)
    if left > 2:
        put(c, at + 2, s2, alpha, adds)
    if left > 3:
        put(c, at + 3, s3, alpha, adds)


@on_cuda(products, block=(SIDE, SIDE, 1), threads=("(m + 3) // 4", "(n + 3) // 4", "count"))
def products_cuda(  # noqa: C901 - sixteen sums have names, so that they lie in registers
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """Four by four elements of C a thread; of the products that are added up in one place, the first block does all, in order."""
    left = cuda.shared.array((SIDE, LINE), T)
    right = cuda.shared.array((SIDE, LINE), T)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    me = int(ty * SIDE + tx)
    top, side = int(cuda.blockIdx.x * SQUARE), int(cuda.blockIdx.y * SQUARE)
    row, column = At(4 * ty), At(4 * tx)
    z = int(cuda.blockIdx.z)
    while z < count:
        if table[4 * z + 3] == 1:
            z += cuda.gridDim.z
            continue
        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = T(0)
        s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = T(0)
        last = count if size < count * m * n else z + 1
        for q in range(z, last):
            if table[4 * q + 2] != table[4 * z + 2]:
                continue
            begin = 0
            while begin < k:
                fill(left, a, table[4 * q], lda, ta, top, begin, m, k, me)
                fill(right, b, table[4 * q + 1], ldb, not tb, side, begin, n, k, me)
                cuda.syncthreads()
                for i in range(SIDE):
                    x0, x1, x2, x3 = left[i, row], left[i, row + At(1)], left[i, row + At(2)], left[i, row + At(3)]
                    y0, y1, y2, y3 = right[i, column], right[i, column + At(1)], right[i, column + At(2)], right[i, column + At(3)]
                    s00, s01 = s00 + x0 * y0, s01 + x0 * y1
                    s02, s03 = s02 + x0 * y2, s03 + x0 * y3
                    s10, s11 = s10 + x1 * y0, s11 + x1 * y1
                    s12, s13 = s12 + x1 * y2, s13 + x1 * y3
                    s20, s21 = s20 + x2 * y0, s21 + x2 * y1
                    s22, s23 = s22 + x2 * y2, s23 + x2 * y3
                    s30, s31 = s30 + x3 * y0, s31 + x3 * y1
                    s32, s33 = s32 + x3 * y2, s33 + x3 * y3
                cuda.syncthreads()
                begin += SIDE
        adds, scale = table[4 * z + 3] == 2, T(alpha)
        at, more = table[4 * z + 2] + (top + 4 * ty) * ldc + side + 4 * tx, n - side - 4 * tx
        if top + 4 * ty + 0 < m:
            put_row(c, at + 0 * ldc, s00, s01, s02, s03, scale, adds, more)
        if top + 4 * ty + 1 < m:
            put_row(c, at + 1 * ldc, s10, s11, s12, s13, scale, adds, more)
        if top + 4 * ty + 2 < m:
            put_row(c, at + 2 * ldc, s20, s21, s22, s23, scale, adds, more)
        if top + 4 * ty + 3 < m:
            put_row(c, at + 3 * ldc, s30, s31, s32, s33, scale, adds, more)
        z += cuda.gridDim.z
