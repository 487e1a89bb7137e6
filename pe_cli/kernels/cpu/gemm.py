"""Matrix products from microkernels: C[m, n] (+)= op(A) op(B), row-major, for any sizes and strides."""

# ruff: noqa: C901, PLR0912 - kernels take addresses, sizes and strides one by one, and loop in loops
from __future__ import annotations

from typing import Any

from pe_cli.kernels.compiler.target import vector_registers
from pe_cli.kernels.cpu.dot_products import MOST, dots
from pe_cli.kernels.cpu.microkernels import PAST, WIDEST, block_units, panel
from pe_cli.kernels.cpu.non_temporal import fence_non_temporal, is_non_temporal, touch
from pe_cli.kernels.cpu.transpose import transpose
from pe_cli.kernels.language import LANES, SIZE, UNIT, PerType, T, helper, pointer, shared
from pe_cli.kernels.math.vector_math import fma

#: Most rows of B in a block. Of float64, half as many, so that the bytes are the same.
DEPTH = 512
#: The same of longer sums where A is stored transposed: its rows may lie on a page each, of which processors remember some hundreds.
DEPTH_TRANSPOSED = 256
#: Columns of B in a packed block: with DEPTH they take 512 KiB, half of a common L2.
WIDTH = 256
#: Elements of B in a packed block of all its columns: a little more than that, where A is read once then and not twice.
BLOCK = 176 * 1024
#: Rows of A in a block: with DEPTH they stay in the other half of L2.
ROWS = 192
#: Rows, or columns, of C from which on operands are brought near first: with fewer there is less to compute than to bring.
FEW = 32
#: Rows of A whose products ask for what comes next of B.
ASKING = 32
#: Rows and columns of B that are brought there before they are transposed.
TURNED = (16, 256)
#: From this many rows of A copying B pays even when B needs no transposing; not where A is stored transposed.
PACK_ROWS = 256
#: Elements of A in a block that is transposed first: a fifth of a small L2.
TURNED_ROOM = 24 * 1024
#: Rows and columns of C from which on that pays: many registers hold so many sums that rows which lie on a page each matter less.
TURNED_SIDE: Any = PerType("TURNED_SIDE", lambda _: 400 if vector_registers() == 32 else 128)
#: Terms of its sums from which on it does.
TURNED_DEPTH = 48
#: Terms of a sum from which on columns that leave more than half of a unit empty are done apart, and where A is stored transposed.
APART, APART_TRANSPOSED = 128, 32
#: Elements of scratch for those: half of a unit of columns, as many rows as B's blocks have.
APART_ROOM = 8 * DEPTH
#: Sides up to this size are done as dot products: a vector of columns would be mostly empty.
NARROW = 3


def gemm_scratch(n: int, k: int, *, ta: bool = True) -> int:
    """Return the elements of scratch that `gemm` may use for a shape or a smaller one, the same for every element type and any m.

    Args:
        n: columns of C.
        k: length of the sums.
        ta: whether A may be stored transposed.
    """
    turned = TURNED_ROOM if ta and n >= TURNED_SIDE.value("float32") and k >= TURNED_DEPTH else 0
    return min(-(-max(n, 1) // 16) * 16 * min(max(k, 1), DEPTH), BLOCK) + APART_ROOM + turned


def adds_at_once(m: int, n: int, k: int, size: int) -> bool:
    """Return whether `gemm` adds every element's whole sum to C in one addition, for elements of that many bytes."""
    return k <= DEPTH * 4 // size and min(m, n) > NARROW


def strips_size(columns: int, depth: int) -> int:
    """Return the elements of the strips of a matrix [depth, columns], the same for every element type."""
    return -(-columns // 16) * 16 * depth


@helper
def _columns_at_once(n, depth):
    """Return how many columns of B are in a packed block of so many rows."""
    return n if (n + 15) // 16 * 16 * depth <= BLOCK * 4 // SIZE else min(n, WIDTH)


@helper
def _turn(x, xr, y, yr, rows, columns, ahead):
    """Do `transpose`, ahead with parts of x brought into the first cache in one run of addresses just before."""
    if ahead == 0 or rows % TURNED[0] != 0:
        transpose(x, xr, y, yr, rows, columns)
        return
    for i in range(0, rows, TURNED[0]):
        for j in range(0, columns, TURNED[1]):
            wide = min(TURNED[1], columns - j)
            touch(x + SIZE * (i * xr + j), xr, TURNED[0], wide)
            transpose(x + SIZE * (i * xr + j), xr, y + SIZE * (j * yr + i), yr, TURNED[0], wide)


@helper
def make_strip(tb, b, ldb, depth, units, columns, strip, ahead):
    """Copy op(B)[depth, columns], of the columns as many as units have, to [depth][units * UNIT]; see `make_strips`."""
    wide = units * UNIT
    used = min(wide, columns)
    if tb:
        _turn(b, ldb, strip, wide, used, depth, ahead)
    else:
        source = pointer(b)
        target = pointer(strip)
        for k in range(depth):
            for j in range(used):
                target[k * wide + j] = source[k * ldb + j]


@helper
def make_strips(tb, b, ldb, depth, columns, scratch, ahead):
    """Copy op(B)[depth, columns] into strips of [depth][units * UNIT], one after the other.

    Args:
        tb: 1 when B is stored [columns, depth], 0 for [depth, columns].
        b: address of B.
        ldb: elements between rows of B as stored.
        depth: rows of op(B).
        columns: of op(B).
        scratch: address of `strips_size(columns, depth)` elements; 64-byte alignment is faster.
        ahead: 1 where B may come from memory: what is transposed is then brought into the caches first.
    """
    left = (columns + UNIT - 1) // UNIT
    column = 0
    while left > 0:
        d = block_units(left)
        make_strip(tb, b + SIZE * column * (ldb if tb else 1), ldb, depth, d, columns - column, scratch, ahead)
        scratch += SIZE * d * UNIT * depth
        column += d * UNIT
        left -= d


@helper
def last_strip(n):
    """Return the columns of the last strip of a matrix of n columns, those included that fill it up."""
    left = (n + UNIT - 1) // UNIT
    d = 0
    while left > 0:
        d = block_units(left)
        left -= d
    return d * UNIT


@helper
def strips_product(m, n, k, a, xr, xk, strips, acc, c, ldc, ahead):
    """Write C[m, n] (+)= A[m, k] B[k, n] with B in strips; for a k of hundreds, so that a strip stays in cache.

    Args:
        m: rows of C.
        n: columns of C.
        k: length of the sums.
        a: address of A.
        xr: elements between rows of A.
        xk: elements between columns of A.
        strips: address of what `make_strips` made of B.
        acc: 1 to add to C, 0 to overwrite it.
        c: address of C.
        ldc: elements between rows of C.
        ahead: address of what is wanted next, where xk is 1; k times `last_strip` elements are asked for. 0: nothing.
    """
    left = (n + UNIT - 1) // UNIT
    j = 0
    while left > 0:
        d = block_units(left)
        w, y = strips + SIZE * j * k, c + SIZE * j
        panel(d, m, n - j, a, w, y, 1, 0, 0, 1, 0, 0, k, xk, d * UNIT, xr, ldc, acc, ahead if left == d else 0, d * UNIT)
        j += d * UNIT
        left -= d


@helper
def _narrow(transposed, m, n, k, a, lda, b, ldb, acc, c, cr, cc, scratch):
    """Do C[m, n] with n <= MOST by dot products of rows of A and columns of op(B); C's strides are (cr, cc)."""
    done = 0
    while True:
        depth = min(DEPTH * 4 // SIZE, k - done)
        add = 1 if done > 0 else acc
        if transposed:
            dots(m, n, a + SIZE * done, lda, b + SIZE * done, ldb, 1, 0, 0, depth, c, cr, cc, add)
        else:
            transpose(b + SIZE * done * ldb, ldb, scratch, depth, depth, n)
            dots(m, n, a + SIZE * done, lda, scratch, depth, 1, 0, 0, depth, c, cr, cc, add)
        done += depth
        if done >= k:
            break


@helper
def _is_narrow(side, k):
    """Return whether a side of C is done as dot products."""
    return side <= NARROW or (side == MOST and k >= APART)


@helper
def _narrow_product(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch):
    """Do the product of a C that has a narrow side, along which B or A has its rows."""
    if ta == 0 and _is_narrow(n, k):
        _narrow(tb, m, n, k, a, lda, b, ldb, acc, c, ldc, 1, scratch)
    else:
        _narrow(1 - ta, n, m, k, b, ldb, a, lda, acc, c, 1, ldc, scratch)


@helper
def _left_over(ta, n, k):
    """Return how many last columns of n are done apart, because they would leave a unit mostly empty."""
    extra = n % UNIT
    return extra if n > UNIT and 2 * extra <= UNIT and k >= (APART_TRANSPOSED if ta else APART) else 0


@helper
def _apart(ta, tb, m, n, k, a, lda, b, ldb, add, c, ldc, scratch, row):
    """Write C[m, n] (+)= op(A) op(B) for the columns of `_left_over`: as dot products, or as rows of C transposed.

    row: the first one of C; in the call for row 0 scratch gets what the others for the same B read too.
    """
    if ta:
        _as_rows(m, n, k, a, lda, b, ldb if tb else 1, 1 if tb else ldb, add, c, ldc, scratch)
        return
    if tb == 0 and row == 0:
        transpose(b, ldb, scratch, k, k, n)
    w, wr = (b, ldb) if tb else (scratch, k)
    for j in range(0, n, MOST):
        dots(m, min(MOST, n - j), a, lda, w + SIZE * j * wr, wr, 1, 0, 0, k, c + SIZE * j, ldc, 1, add)


@helper
def _as_rows(m, n, k, a, lda, b, br, bk, add, c, ldc, scratch):
    """Write C[m, n] (+)= A' op(B), A stored [k, m], as op(B)' A, which has few rows; m is at most ROWS, scratch [n, ROWS]."""
    left = (m + UNIT - 1) // UNIT
    column = 0
    while left > 0:
        d = block_units(left)
        w, y = a + SIZE * column, scratch + SIZE * column
        panel(d, n, m - column, b, w, y, 1, 0, 0, 1, 0, 0, k, bk, lda, br, ROWS, 0, w + SIZE * d * UNIT, lda)
        column += d * UNIT
        left -= d
    made, out = pointer(scratch), pointer(c)
    factor = T(1) if add <= PAST else pointer(add)[0]
    for i in range(m):
        for j in range(n):
            total = made[j * ROWS + i]
            out[i * ldc + j] = total if add == 0 or add == PAST else fma(factor, total, out[i * ldc + j])


@helper
def add_bias(c, ldc, m, n, bias, cut):
    """Add a row to m rows of n elements; cut: and make negative sums 0. c and bias are addresses."""
    row = pointer(bias)
    for i in range(m):
        out = pointer(c + SIZE * i * ldc)
        if cut:
            for j in range(n):
                total = out[j] + row[j]
                out[j] = T(0) if total <= T(0) else total
        else:
            for j in range(n):
                out[j] = out[j] + row[j]


@helper
def _rows(d, m, columns, depth, a, xr, xk, w, wk, c, ldc, add, more_a, more, pace):
    """Compute m rows of a strip, some of which ask for what comes next: for as many rows of A as a strip has columns, or the next strip.

    Args:
        more_a: whether further rows of A, which have stride 1, are asked for.
        more: address of the next strip as it is stored, or of the rows of A after these; 0 for none.
        pace: of that, as panels take it: elements between rows; below 0 where B is stored transposed, and of A.
    """
    row = 0
    while row < m:
        rows, ahead, step = m - row, 1, 0
        if more_a and rows > d * UNIT:
            rows = d * UNIT
            ahead, step = a + SIZE * (row + rows) * xr, -xr
        elif more != 0:
            rows = min(rows, ASKING)
            ahead, step = more, pace
            more = 0
        panel(d, rows, columns, a + SIZE * row * xr, w, c + SIZE * row * ldc, 1, 0, 0, 1, 0, 0, depth, xk, wk, xr, ldc, add, ahead, step)
        row += rows


@helper
def gemm(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch):
    """Write C[m, n] (+)= op(A)[m, k] op(B)[k, n]; see `gemm_bias`, without a bias."""
    gemm_bias(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch, 0, 0)


@shared
def gemm_bias(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch, bias, cut):
    """Write C[m, n] (+)= op(A)[m, k] op(B)[k, n], then add a bias to every row, block by block while C is in cache.

    Args:
        ta: 1 when A is stored [k, m], 0 for [m, k].
        tb: 1 when B is stored [n, k], 0 for [k, n].
        m: rows of C; 0 does nothing.
        n: columns of C; 0 does nothing.
        k: length of the sums; 0 writes zeros, or nothing when acc.
        a: address of A.
        lda: elements between rows of A as stored.
        b: address of B.
        ldb: elements between rows of B as stored.
        acc: 1 to add to C, 0 to overwrite it; where `adds_at_once`, also the address of a factor, to add factor times the product.
        c: address of C; overlaps neither A nor B.
        ldc: elements between rows of C.
        scratch: address of `gemm_scratch(n, k)` elements; 64-byte alignment is faster.
        bias: address of n elements, 0 for none.
        cut: 1 to make what is negative then 0.
    """
    if m <= 0 or n <= 0:
        return
    # with few columns, vectors along the columns would be mostly empty: vectors run along the sums instead
    if (ta == 0 and _is_narrow(n, k)) or (tb and _is_narrow(m, k)):
        _narrow_product(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch)
        if bias != 0:
            add_bias(c, ldc, m, n, bias, cut)
        return
    ar, ak = (1, lda) if ta else (lda, 1)
    extra = _left_over(ta, n, k)
    n -= extra
    aside, scratch = scratch, scratch + SIZE * (APART_ROOM if extra > 0 else 0)
    if bias == 0 and n == 1 and ldc == 1 and tb == 0:
        # A column is a row of C transposed: B's elements are broadcast, and A gives whole vectors.
        ar, ak, a, b, ldb, n, m = 1, ldb, b, a, lda, m, 1
    # packing costs a pass over B: it pays where many rows of A reuse the strip, or where B's columns do not lie side by side
    turn = ta != 0 and min(m, n) >= TURNED_SIDE and k >= TURNED_DEPTH
    pack = tb != 0 or turn or (ta == 0 and m >= PACK_ROWS and ldb >= 2 * LANES)
    once = k <= DEPTH * 4 // SIZE
    past = is_non_temporal(c, ldc, m * n) and bias == 0 and once
    done = 0
    while True:
        depth = k if once else min((DEPTH_TRANSPOSED if ta else DEPTH) * 4 // SIZE, k - done)
        add = 1 if done > 0 else (acc if acc != 0 else (PAST if past else 0))
        # blocks keep depth x width elements of B in the second cache while all rows of A pass
        width = min(n, BLOCK * 4 // SIZE // depth // 48 * 48) if turn else _columns_at_once(n, depth)
        block = min(ROWS, TURNED_ROOM * 4 // SIZE // depth // 12 * 12) if turn else ROWS
        for j0 in range(0, n, width):
            wide = min(width, n - j0)
            for i0 in range(0, m, block):
                high = min(block, m - i0)
                rows, xr, xk = a + SIZE * (i0 * ar + done * ak), ar, ak
                if turn:
                    rows, xr, xk = scratch + SIZE * ((width + 15) // 16 * 16 * depth), depth, 1
                    _turn(a + SIZE * (i0 * ar + done * ak), lda, rows, depth, depth, high, 1)
                near = ta == 0 and n >= FEW and j0 == 0
                if near:  # the first rows of A; they ask for the others
                    touch(a + SIZE * (i0 * lda + done), lda, min(high, WIDEST * LANES), depth)
                left = (wide + UNIT - 1) // UNIT
                strip = scratch
                j = j0
                while left > 0:
                    d = block_units(left)
                    from_b = b + SIZE * (j * ldb + done if tb else done * ldb + j)
                    if pack and i0 == 0:
                        make_strip(tb, from_b, ldb, depth, d, j0 + wide - j, strip, 1 if m >= FEW and j == j0 else 0)
                    w, wk = (strip, d * UNIT) if pack else (from_b, ldb)
                    more, pace = 0, 0
                    # The first pass over rows of A brings the next strip of B near; the last strip, the next rows of A.
                    if i0 == 0 and j + d * UNIT < n:
                        more, pace = from_b + SIZE * d * UNIT * (ldb if tb else 1), -ldb if tb else ldb
                    elif near and left == d and i0 + high < m:
                        more, pace = a + SIZE * ((i0 + high) * lda + done), -lda
                    _rows(
                        d, high, n - j, depth, rows, xr, xk, w, wk, c + SIZE * (i0 * ldc + j), ldc, add,
                        near and j == j0, more, pace,
                    )  # fmt: skip
                    strip, j, left = strip + SIZE * d * UNIT * depth, j + d * UNIT, left - d
                last = extra if j0 + wide == n else 0
                if last > 0:
                    from_b = b + SIZE * (n * ldb + done if tb else done * ldb + n)
                    into = c + SIZE * (i0 * ldc + n)
                    _apart(ta, tb, high, last, depth, a + SIZE * (i0 * ar + done * ak), lda, from_b, ldb, add, into, ldc, aside, i0)
                if bias != 0 and done + depth >= k:
                    add_bias(c + SIZE * (i0 * ldc + j0), ldc, high, wide + last, bias + SIZE * j0, cut)
        done += depth
        if done >= k:
            break
    if past:
        fence_non_temporal()
