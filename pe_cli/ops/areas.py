"""How ops are cut into parts that threads share. No cut changes a bit: every element is computed as without it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from pe_cli.kernels.gemm import NARROW

#: Floating-point operations that are worth a thread: about 10 us, many times what handing them over takes.
ENOUGH = 2_000_000
#: Bytes touched that are worth a thread, for the same reason.
ENOUGH_BYTES = 256 * 1024
#: Columns of a part are a multiple of these: whole vectors, and no two threads write to one cache line.
COLUMNS = 32

Pair = tuple[int, int]


@dataclass(frozen=True)
class Area:
    """Rows and columns of a matrix, from and to."""

    rows: Pair
    columns: Pair


def column_pairs(n: int, parts: int) -> list[Pair]:
    """Cut n columns into parts, from and to; multiples of `COLUMNS` but for the last."""
    units = -(-n // COLUMNS)
    parts = max(1, min(parts, units))
    return list(itertools.pairwise(min(n, COLUMNS * (units * p // parts)) for p in range(parts + 1)))


def areas(m: int, n: int, k: int, threads: int, *, weights: bool = False) -> list[Area]:
    """Cut a product [m, k] [k, n] for threads: along its longer side, so that all together they read the least.

    No part is as narrow as a product that `gemm` does by dot products.

    Args:
        m, n, k: sizes.
        threads: most parts.
        weights: the product is the gradient of weights: cut into rows, as their update is.
    """
    parts = max(1, min(threads, 2 * m * n * k // ENOUGH))
    if not weights and n > m and n // parts >= COLUMNS:
        return [Area((0, m), pair) for pair in column_pairs(n, parts)]
    parts = max(1, min(parts, m // (4 * NARROW)))
    return [Area(pair, (0, n)) for pair in itertools.pairwise(m * p // parts for p in range(parts + 1))]
