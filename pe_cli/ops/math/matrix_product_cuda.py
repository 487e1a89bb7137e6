"""Matrix products on CUDA: which tiles a product is cut into, and how many blocks share the sums of one tile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.calls import Numbers, Tickets
from pe_cli.kernels.cuda.block_sums import tickets_of
from pe_cli.kernels.cuda.language import CudaKernel
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.math import product_bfloat16_cuda, product_tensor_cores_cuda, product_tiles_cuda
from pe_cli.ops.math.matrix_product import Matrices, broadcast
from pe_cli.ops.math.product_library import offer_product, product_of, type_of
from pe_cli.ops.math.product_tiles_cuda import Tile

#: Blocks that give every multiprocessor of a large card something to do; a constant, so that every card adds up in the same order.
BLOCKS = 132
#: Terms of a sum that are worth a block of their own.
TERMS = 64
#: Most blocks that share the sums of a tile.
SHARES = 32
#: What stands for a precision where both factors are bfloat16 in memory.
HALVES = "halves"

Pairs = list[list[tuple[int, int]]]


def multiply_cuda(
    o: Lowering,
    factors: tuple[Any, Matrices],
    others: tuple[Any, Matrices],
    out: tuple[Any, Matrices],
    alpha: float,
    acc: int = 0,
    part: int = 0,
    weights: bool = False,
    bias: Any = None,
    cut: bool = False,
) -> None:
    """Append the calls for out (+)= alpha factors @ others.

    Args:
        o, factors, others, out, alpha, acc, part, weights: see `matrix_product.multiply`.
        bias: of each column, added to the product; None for none.
        cut: with a bias: numbers below 0 become 0.
    """
    del part, weights  # of threads of a CPU
    (a, left), (b, right), (c, result) = factors, others, out
    m, n, k = left.height, right.width, left.width
    pairs = _pairs(left, right, result)
    if len(pairs) == 1 and _is_run(pairs[0], left, right):
        pairs, k = [pairs[0][:1]], k * len(pairs[0])
    if not c.size:
        return
    begin, starts = len(o.calls), list(dict.fromkeys(result.offsets(result.batch)))
    end = 0 if bias is None else 2 if cut else 1
    stored = type_of(a, b)
    wishes = o.precision, alpha, bool(acc), end > 0, end > 1, o.deterministic
    what = product_of(m, n, k, left, right, pairs, starts, stored, c.dtype, *wishes)
    kind = HALVES if stored == BFLOAT16 and o.precision == "bf16" else o.precision
    tile, shares = plan(m, n, k, pairs, c.dtype, kind)
    chunk = -(-k // shares // tile.depth) * tile.depth if k else tile.depth
    # A share is whole tiles deep, so that fewer blocks may do than were planned; none is left without terms.
    shares = max(1, -(-k // chunk))
    begins = itertools.accumulate(map(len, pairs), initial=0)
    table = Numbers((*begins, *(x for group in pairs for pair in group for x in pair)))
    kernel = _kernel(tile, kind, c.dtype, left, right)
    nothing = Numbers(()) if c.dtype == BFLOAT16 else c
    tiles = -(-m // tile.rows) * -(-n // tile.columns) * len(pairs)
    each = tickets_of(shares)
    parts = o.scratch(shares * tiles * tile.rows * tile.columns, c.dtype) if shares > 1 else nothing
    tickets = Tickets(tiles * each) if shares > 1 else Numbers(())
    o.call(
        kernel, int(left.transposed), int(right.transposed), m, n, k, a, left.columns, b, right.columns, c, alpha, acc,
        nothing if bias is None else bias, end,
        table, len(pairs), chunk, shares, parts, tickets, each,
    )  # fmt: skip
    offer_product(o, begin, what, pairs, (a, b, c, c if bias is None else bias))


def plan(m: int, n: int, k: int, pairs: Pairs, dtype: str, precision: str) -> tuple[Tile, int]:
    """Return the largest tile that keeps BLOCKS busy, and how many blocks share each tile's sums.

    Args:
        m, n, k: sizes.
        pairs: of factors, for each matrix of C.
        dtype: of them.
        precision: see `Lowering`, or HALVES.
    """
    alone = all(len(group) == 1 for group in pairs)
    most = max(1, min(SHARES, k // TERMS)) if alone else 1
    tiles = tiles_of(dtype, precision)
    blocks = {tile: -(-m // tile.rows) * -(-n // tile.columns) * len(pairs) for tile in tiles}
    tile = next((tile for tile in tiles if blocks[tile] * most >= BLOCKS), tiles[-1])
    return tile, min(most, -(-BLOCKS // blocks[tile]))


def tiles_of(dtype: str, precision: str) -> Sequence[Tile]:
    """Return the tiles of a type and precision, from the largest."""
    if dtype == "float64":
        return product_tiles_cuda.TILES[1:]
    if precision == HALVES:
        return product_bfloat16_cuda.TILES
    return product_tiles_cuda.TILES if precision == "float32" else product_tensor_cores_cuda.TILES


def _kernel(tile: Tile, precision: str, dtype: str, left: Matrices, right: Matrices) -> CudaKernel:
    if precision == "float32" or dtype == "float64":
        return product_tiles_cuda.kernel_of(tile)
    if precision == HALVES:
        return product_bfloat16_cuda.kernel_of(tile, int(left.transposed), int(right.transposed))
    return product_tensor_cores_cuda.kernel_of(tile, precision, int(left.transposed), int(right.transposed))


def _pairs(left: Matrices, right: Matrices, result: Matrices) -> Pairs:
    """Return where the factors begin whose products are added up, for each matrix of C in order."""
    found: dict[int, list[tuple[int, int]]] = {at: [] for at in result.offsets(result.batch)}
    batch = broadcast(left.batch, right.batch, result.batch)
    for at_a, at_b, at_c in zip(left.offsets(batch), right.offsets(batch), result.offsets(batch), strict=True):
        found[at_c].append((at_a, at_b))
    return list(found.values())


def _is_run(pairs: Sequence[tuple[int, int]], left: Matrices, right: Matrices) -> bool:
    """Return whether several products that are added up lie in memory as if they were one, of longer sums."""
    size_a, size_b = left.rows * left.columns, right.rows * right.columns
    run = all(pair == (pairs[0][0] + i * size_a, pairs[0][1] + i * size_b) for i, pair in enumerate(pairs))
    return len(pairs) > 1 and left.transposed and not right.transposed and run
