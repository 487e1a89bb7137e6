"""Products of batches of matrices, which mul and matmul are made of: how they are cut for threads, added up and differentiated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cpu.gemm import adds_at_once, gemm, gemm_scratch
from pe_cli.kernels.cpu.matrix_tiles import gemm_tiles, tiles_scratch
from pe_cli.kernels.cpu.tile_code import HALF
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrI64, PtrU, Real, T, address, kernel
from pe_cli.kernels.math.vector_math import fma
from pe_cli.ops.define.addto import beside, preload
from pe_cli.ops.define.lowering import Lowering, Numbers, Offset
from pe_cli.ops.define.registry import rate_slot
from pe_cli.ops.define.tile_products import by_tiles
from pe_cli.ops.define.work_parts import ENOUGH, ENOUGH_BYTES, Area, areas, quarters


@kernel
def products(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """Do C = alpha op(A) op(B) for count matrices; a row of table: offsets in a, b and c, and whether to add to C.

    C's size is in elements, all matrices together; without a product it is zero. To add to C is 1 after another product of the same
    place, and 2 where C's old value counts; with that alpha is 1, and so it is where C's rows lie further apart than n.
    """
    if count == 0:
        for i in range(size):
            c[i] = T(0)
    for i in range(count):
        at_a = address(a) + SIZE * table[4 * i]
        at_b = address(b) + SIZE * table[4 * i + 1]
        at_c = address(c) + SIZE * table[4 * i + 2]
        gemm(ta, tb, m, n, k, at_a, lda, at_b, ldb, min(table[4 * i + 3], 1), at_c, ldc, address(scratch))
    # The factor comes last, over all matrices: products of one place are added up before it, and gemm itself has none.
    if alpha != 1.0:
        for i in range(size):
            c[i] *= T(alpha)


def _tiles_room(ta: int, tb: int, m: int, n: int, k: int, *rest: Any) -> int:
    """Return the elements of scratch of a product by matrix tiles."""
    del ta, tb, m, rest
    return tiles_scratch(n, k)


@by_tiles(products, "a", "b", scratch="scratch", room=_tiles_room)
@kernel
def tile_products(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Addr, lda: Int, b: Addr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """Do `products` with A and B of bfloat16."""
    if count == 0:
        for i in range(size):
            c[i] = T(0)
    for i in range(count):
        at_a = a + HALF * table[4 * i]
        at_b = b + HALF * table[4 * i + 1]
        at_c = address(c) + SIZE * table[4 * i + 2]
        gemm_tiles(ta, tb, m, n, k, at_a, lda, at_b, ldb, min(table[4 * i + 3], 1), at_c, ldc, address(scratch), 0, 0)
    if alpha != 1.0:
        for i in range(size):
            c[i] *= T(alpha)


#: Terms of a sum that take as long as reading and writing the element that it is subtracted from.
AS_MUCH = 2 * 4 * ENOUGH // (2 * ENOUGH_BYTES)


@kernel
def negative(x: PtrU, out: Ptr):
    """out = -x, of one element."""
    out[0] = -T(x[0])


@kernel
def product_times(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, factor: Ptr, once: Int, whole: Ptr,
    scratch: Ptr,
):  # fmt: skip
    """c += factor op(a) op(b), with the bits of a product and then a step of sgd, whose rate is -factor.

    once is `adds_at_once`; if not, whole has room for the product, and ldc is n.
    """
    if once:
        gemm(ta, tb, m, n, k, address(a), lda, address(b), ldb, address(factor), address(c), ldc, address(scratch))
    else:
        gemm(ta, tb, m, n, k, address(a), lda, address(b), ldb, 0, address(whole), n, address(scratch))
        step = factor[0]
        for i in range(m * n):
            c[i] = fma(step, whole[i], c[i])


@by_tiles(product_times, "a", "b", scratch="scratch", room=_tiles_room)
@kernel
def tile_product_times(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Addr, lda: Int, b: Addr, ldb: Int, c: Ptr, ldc: Int, factor: Ptr, once: Int, whole: Ptr,
    scratch: Ptr,
):  # fmt: skip
    """Do `product_times` with A and B of bfloat16."""
    if once:
        gemm_tiles(ta, tb, m, n, k, a, lda, b, ldb, address(factor), address(c), ldc, address(scratch), 0, 0)
    else:
        gemm_tiles(ta, tb, m, n, k, a, lda, b, ldb, 0, address(whole), n, address(scratch), 0, 0)
        step = factor[0]
        for i in range(m * n):
            c[i] = fma(step, whole[i], c[i])


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices as stored.

    Args:
        batch: sizes of the axes before the last two.
        rows: of one matrix as stored.
        columns: of one matrix as stored.
        transposed: whether the product takes the transpose.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    transposed: bool = False

    @property
    def height(self) -> int:
        """Rows of the factor."""
        return self.columns if self.transposed else self.rows

    @property
    def width(self) -> int:
        """Columns of the factor."""
        return self.rows if self.transposed else self.columns

    def flipped(self) -> Matrices:
        """Return the transposed factor, in the same memory."""
        return Matrices(self.batch, self.rows, self.columns, not self.transposed)

    def offsets(self, batch: tuple[int, ...]) -> list[int]:
        """Return the start of the matrix for every index of a batch that this one is broadcast to, in elements."""
        own = (1,) * (len(batch) - len(self.batch)) + self.batch
        steps = [0] * len(own)
        step = self.rows * self.columns
        for axis in reversed(range(len(own))):
            steps[axis] = 0 if own[axis] == 1 else step
            step *= own[axis]
        return [
            sum(i * s for i, s in zip(index, steps, strict=True)) for index in itertools.product(*map(range, batch))
        ]


def multiply(
    o: Lowering,
    factors: tuple[Any, Matrices],
    others: tuple[Any, Matrices],
    out: tuple[Any, Matrices],
    alpha: float,
    acc: int = 0,
    part: int = 0,
    weights: bool = False,
) -> None:
    """Append the calls for out (+)= alpha factors @ others; products of one place of out are added up.

    Where threads may share it, a large product is several calls, for parts of out or of its matrices.

    Args:
        o: collects them.
        factors, others, out: each with its matrices.
        alpha: factor.
        acc: 1 to add to out.
        part: number of the first part.
        weights: it is the gradient of weights, cut into rows as their update is.
    """
    (a, left), (b, right), (c, result) = factors, others, out
    batch = broadcast(left.batch, right.batch, result.batch)
    seen: set[int] = set()
    table: list[tuple[int, int, int, int]] = []
    for at_a, at_b, at_c in zip(left.offsets(batch), right.offsets(batch), result.offsets(batch), strict=True):
        table.append((at_a, at_b, at_c, 1 if at_c in seen else 2 * acc))
        seen.add(at_c)
    m, n, k = left.height, right.width, left.width
    work = 2 * m * n * k * len(table)

    def call(area: Area, rows: Sequence[tuple[int, int, int, int]], start: int, size: int, number: int | None) -> None:
        high, wide = (end - begin for begin, end in (area.rows, area.columns))
        o.call(
            products, int(left.transposed), int(right.transposed), high, wide, k, a, left.columns, b, right.columns,
            Offset(c, start), n, size, alpha, Numbers(tuple(itertools.chain(*rows)) or (0,)), len(rows),
            o.scratch(gemm_scratch(wide, k, ta=left.transposed), c.dtype), part=number,
        )  # fmt: skip

    if len(table) == 1 and alpha == 1:
        found = quarters(m, n, k) if o.helped else areas(m, n, k, o.threads, by_columns=False if weights else None)
        if len(found) > 1:
            for number, area in enumerate(found, part):
                (top, _), (side, _) = area.rows, area.columns
                at_a, at_b = (
                    top * (1 if left.transposed else left.columns),
                    side * (right.columns if right.transposed else 1),
                )
                call(area, [(at_a, at_b, 0, table[0][3])], top * n + side, 0, number)
            return
    whole = Area((0, m), (0, n))
    # Products that are added up in one place must stay in one call, in order: two threads would write it at once.
    chunks = min(o.threads, work // ENOUGH, len(table)) if len(seen) == len(table) else 1
    if chunks < 2:
        call(whole, table, 0, c.size, part if o.threads > 1 and work >= ENOUGH else None)
        return
    for number in range(chunks):
        rows = table[len(table) * number // chunks : len(table) * (number + 1) // chunks]
        start = rows[0][2]
        call(whole, [(p, q, r - start, flag) for p, q, r, flag in rows], start, len(rows) * m * n, part + number)


def multiply_back(
    o: Lowering, x: Matrices, y: Matrices, out: Matrices, alpha: float, product: Callable[..., None] = multiply
) -> None:
    """Append the calls for the gradients of alpha x @ y that are wanted; product: `multiply`, or the same for another device."""
    g = o.input("Out@GRAD")
    if o.has("X@GRAD"):
        pair = ((g, out), (o.input("Y"), y.flipped()))
        # Of a factor that is stored transposed, the gradient is wanted as it is stored: (G Y^T)^T = Y G^T.
        _gradient(o, "X@GRAD", ((o.input("Y"), y), (g, out.flipped())) if x.transposed else pair, x, alpha, product)
    if o.has("Y@GRAD"):
        pair = ((o.input("X"), x.flipped()), (g, out))
        _gradient(o, "Y@GRAD", ((g, out.flipped()), (o.input("X"), x)) if y.transposed else pair, y, alpha, product)


def _gradient(
    o: Lowering,
    slot: str,
    pair: tuple[tuple[Any, Matrices], tuple[Any, Matrices]],
    result: Matrices,
    alpha: float,
    product: Callable[..., None],
) -> None:
    """Append the product that is a gradient: added by the kernel itself where that is one addition per element."""
    o.only(slot)
    weights = slot == "Y@GRAD"
    part = o.threads if weights else 0  # beside the parts of X@GRAD
    left, right = pair[0][1], pair[1][1]
    many = math.prod(broadcast(left.batch, right.batch, result.batch))
    sizes = left.height, right.width, left.width, o.output(slot).type.numpy.itemsize
    once = many == math.prod(result.batch) and adds_at_once(*sizes)
    if o.has(rate_slot(slot)):
        assert many == 1, "a parameter is one matrix"
        assert alpha == 1, "its gradient is the product alone"
        _descend(o, slot, pair, result, once=once)
    elif many and once and alpha == 1:
        product(o, *pair, (o.output(slot), result), alpha, preload(o, slot), part, weights)
    else:
        beside(o, slot, lambda out: product(o, *pair, (out, result), alpha, 0, part, weights))


def _descend(
    o: Lowering, slot: str, pair: tuple[tuple[Any, Matrices], tuple[Any, Matrices]], result: Matrices, *, once: bool
) -> None:
    """Append the product of two matrices that is a parameter's gradient, subtracted from the parameter where it lies.

    What reads the parameter as it was is done before: the first call here is no part, so it waits for the parts of other products.
    """
    preload(o, slot)
    out = o.output(slot)
    factor = o.scratch(1, out.dtype)
    o.call(negative, o.input(rate_slot(slot)), factor)
    (a, left), (b, right) = pair
    n, k = result.columns, left.width
    room = o.scratch(1 if once else out.size, out.dtype)
    # Cut as the product that reads the parameter in the next step, where that has k rows: each thread finds its own part in its cache.
    found = areas(result.rows, n, max(k, AS_MUCH), o.threads, by_columns=once and n > k)
    for number, area in enumerate(found):
        (top, end), (side, edge) = area.rows, area.columns
        o.call(
            product_times, int(left.transposed), int(right.transposed), end - top, edge - side, k,
            Offset(a, top * (1 if left.transposed else left.columns)), left.columns,
            Offset(b, side * (right.columns if right.transposed else 1)), right.columns, Offset(out, top * n + side), n,
            factor, int(once), Offset(room, 0 if once else top * n), o.scratch(gemm_scratch(edge - side, k, ta=left.transposed), out.dtype),
            part=number if len(found) > 1 else None,
        )  # fmt: skip


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common shape of batch axes, aligned at the right; an unknown size (-1) gives way to a known one.

    Raises:
        PeError: two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes))
    out = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        known = sizes - {-1}
        if len(known) > 1:
            raise PeError(
                f"batch axes {' and '.join(str(list(s)) for s in shapes)} cannot be broadcast: {sorted(known)} differ"
            )
        out.append(next(iter(known or sizes), 1))
    return tuple(out)
