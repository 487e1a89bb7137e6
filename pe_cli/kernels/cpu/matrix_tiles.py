"""Matrix products of bfloat16 by the unit that a processor has for them: C[m, n] (+)= op(A) op(B), sums of float32.

Factors are copied into blocks of whole tiles, filled up with zeros, that stay in the second cache. A block of results is 2 x 2 tiles, and
leaves them by way of the first cache, where it is added to C, finished, and cut to C's size.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.tile_code import (
    HALF,
    LINE,
    MOST_TERMS,
    SIDE,
    TERMS,
    TILE,
    configure_tiles,
    copy_halves,
    multiply_tiles,
    pair_halves,
    release_tiles,
)
from pe_cli.kernels.cpu.tile_results import finish_block
from pe_cli.kernels.cpu.transpose import transpose
from pe_cli.kernels.language import T, helper, pointer, shared

#: Terms of a sum that are taken at once, as `gemm` takes them: `adds_at_once` says what follows from it.
DEPTH = 512
#: Most elements of B in a packed block: 512 KiB.
BLOCK = 256 * 1024


def tiles_scratch(n: int, k: int) -> int:
    """Return the elements of float32 of scratch that `gemm_tiles` uses for a shape or a smaller one, with any m.

    Args:
        n: columns of C.
        k: length of the sums.
    """
    filled = -(-min(k, DEPTH) // MOST_TERMS) * MOST_TERMS
    # B's block, A's twice, a block of results, and what aligns them to lines
    return min(-(-n // SIDE) * SIDE * filled, BLOCK) // 2 + SIDE * filled + SIDE * SIDE + 16


@helper
def _pack_columns(tb, b, ldb, depth, columns, strips, work):
    """Copy op(B)[depth, columns] to columns of tiles: each has the pairs of 16 columns of B, one pair of rows behind the other."""
    filled = (depth + TERMS - 1) // TERMS * TERMS
    step = filled * TILE * 2
    if tb:
        for j in range(0, columns, TILE):
            wide = min(TILE, columns - j)
            for c in range(wide):
                copy_halves(b + 2 * (j + c) * ldb, work + 2 * c * filled, depth)
            if wide < TILE:
                blank = pointer(work + 2 * wide * filled)
                for i in range((TILE - wide) * filled // 2):
                    blank[i] = T(0)
            transpose(work, filled // 2, strips + j // TILE * step, TILE, TILE, filled // 2)
    else:
        for p in range(depth // 2):
            pair_halves(b + 4 * p * ldb, b + (4 * p + 2) * ldb, strips + 4 * TILE * p, columns, step)
        if depth % 2:
            pair_halves(b + 2 * (depth - 1) * ldb, 0, strips + 4 * TILE * (depth // 2), columns, step)
        for j in range(0, columns, TILE):
            blank = pointer(strips + j // TILE * step + 4 * TILE * ((depth + 1) // 2))
            for i in range((filled // 2 - (depth + 1) // 2) * TILE):
                blank[i] = T(0)


@helper
def pack_rows(ta, a, lda, depth, rows, block, work):
    """Copy op(A)[rows, depth] to rows side by side, filled up with zeros to whole tiles; rows is at most SIDE."""
    filled = (depth + TERMS - 1) // TERMS * TERMS
    if ta:
        for p in range(depth // 2):
            pair_halves(a + 4 * p * lda, a + (4 * p + 2) * lda, work + 4 * SIDE * p, rows, 4 * TILE)
        if depth % 2:
            pair_halves(a + 2 * (depth - 1) * lda, 0, work + 4 * SIDE * (depth // 2), rows, 4 * TILE)
        blank = pointer(work + 4 * SIDE * ((depth + 1) // 2))
        for i in range((filled // 2 - (depth + 1) // 2) * SIDE):
            blank[i] = T(0)
        transpose(work, SIDE, block, filled // 2, filled // 2, (rows + TILE - 1) // TILE * TILE)
    else:
        for r in range(rows):
            copy_halves(a + 2 * r * lda, block + 2 * r * filled, depth)
        if rows % TILE:
            blank = pointer(block + 2 * rows * filled)
            for i in range((TILE - rows % TILE) * filled // 2):
                blank[i] = T(0)


@shared
def gemm_tiles(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch, bias, cut):
    """Write C[m, n] (+)= op(A)[m, k] op(B)[k, n], A and B of bfloat16, C of float32; for float32 as the kernel's element type.

    Args:
        ta, tb, m, n, k, lda, ldb, c, ldc, bias, cut: as for `gemm_bias`.
        a, b: addresses of bfloat16.
        acc: as for `gemm_bias`.
        scratch: address of `tiles_scratch(n, k)` elements.
    """
    if m <= 0 or n <= 0:
        return
    block = (scratch + 63) // 64 * 64
    work = block + HALF * SIDE * ((min(k, DEPTH) + TERMS - 1) // TERMS * TERMS)
    made = work + (work - block)
    strips = made + 4 * SIDE * SIDE
    configure_tiles()
    done = 0
    while True:
        depth = min(DEPTH, k - done)
        filled = (depth + TERMS - 1) // TERMS * TERMS
        add = 1 if done > 0 else acc
        last = done + depth >= k
        width = BLOCK // max(filled, TERMS) // SIDE * SIDE
        for j0 in range(0, n, width):
            wide = min(width, n - j0)
            if depth > 0:
                _pack_columns(tb, b + 2 * (j0 * ldb + done if tb else done * ldb + j0), ldb, depth, wide, strips, work)
            for i0 in range(0, m, SIDE):
                rows = min(SIDE, m - i0)
                if depth > 0:
                    pack_rows(ta, a + 2 * (done * lda + i0 if ta else i0 * lda + done), lda, depth, rows, block, work)
                for j in range(0, wide, SIDE):
                    columns = min(SIDE, wide - j)
                    multiply_tiles(
                        (rows + TILE - 1) // TILE, (columns + TILE - 1) // TILE, block, 2 * filled, strips + j // TILE * filled * TILE * 2,
                        LINE, filled * TILE * 2, 1, 0, filled // TERMS, made,
                    )  # fmt: skip
                    at = bias + 4 * (j0 + j) if bias != 0 and last else 0
                    finish_block(made, rows, columns, add, c + 4 * (i0 * ldc + j0 + j), ldc, at, cut)
        done += depth
        if last:
            break
    release_tiles()
