"""How ops are split into parts for threads. No split changes a bit: every element is computed by one thread in a fixed order."""

from __future__ import annotations

import itertools

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cpu.gemm import NARROW

#: Floating-point operations that are worth a thread: about 10 us, many times what handing them over takes.
ENOUGH = 2_000_000
#: Bytes touched that are worth a thread, for the same reason.
ENOUGH_BYTES = 256 * 1024
#: Floating-point operations that a thread without other work is called for: it finds the data in no cache.
HELP = 10_000_000
#: Most parts of an op that threads help with: the last of them is what devices end apart by.
HELP_PARTS = 4
#: Rows and columns of a part from which on a product is as fast as a whole one.
HIGH, WIDE = 256, 128
#: Columns of a part are a multiple of these: whole vectors, and no two threads write to one cache line.
COLUMNS = 32

Pair = tuple[int, int]


@dataclass(frozen=True)
class Area:
    """Rows and columns of a matrix, from and to."""

    rows: Pair
    columns: Pair


def worth(threads: int, nbytes: int) -> int:
    """Return how many of the threads are worth their start for work that touches so many bytes, at least one."""
    return max(1, min(threads, nbytes // ENOUGH_BYTES))


def thread_parts(n: int, threads: int, nbytes: int) -> list[tuple[int | None, int, int]]:
    """Cut n things, of nbytes in all, into parts that threads share: (number, from, to); one that is alone has no number."""
    found = pairs(n, worth(threads, nbytes))
    return [(number if len(found) > 1 else None, begin, end) for number, (begin, end) in enumerate(found)]


def column_pairs(n: int, parts: int) -> list[Pair]:
    """Cut n columns into parts, from and to; multiples of `COLUMNS` but for the last."""
    units = -(-n // COLUMNS)
    parts = max(1, min(parts, units))
    return list(itertools.pairwise(min(n, COLUMNS * (units * p // parts)) for p in range(parts + 1)))


def pairs(n: int, parts: int) -> list[Pair]:
    """Cut n things into parts that differ by one at most, from and to; no part is empty, unless n is 0."""
    parts = max(1, min(parts, n))
    return list(itertools.pairwise(n * p // parts for p in range(parts + 1)))


def quarters(m: int, n: int, k: int) -> list[Area]:
    """Cut a product [m, k] [k, n] in two each way, where the parts are worth it: for a thread that does most of them itself."""
    # 0 for a product that is not worth help: then both cuts below give one part.
    few = min(HELP_PARTS, 2 * m * n * k // HELP)
    columns = column_pairs(n, min(few, 2, n // WIDE))
    return [Area(rows, pair) for rows in pairs(m, min(few // len(columns), 2, m // HIGH)) for pair in columns]


def areas(m: int, n: int, k: int, threads: int, *, by_columns: bool | None = None) -> list[Area]:
    """Cut a product [m, k] [k, n] for threads.

    No part is as narrow as a product that `gemm` does by dot products.

    Args:
        m, n, k: sizes.
        threads: most parts.
        by_columns: whether columns are divided, and not rows; default: the longer side, so that all together they read the least.
    """
    touched = 4 * (m * k + k * n + m * n)  # of few rows, bringing weights near takes longer than computing with them
    parts = max(1, min(threads, max(2 * m * n * k // ENOUGH, touched // ENOUGH_BYTES)))
    if (n > m if by_columns is None else by_columns) and n // parts >= COLUMNS:
        return [Area((0, m), pair) for pair in column_pairs(n, parts)]
    return [Area(pair, (0, n)) for pair in pairs(m, min(parts, m // (4 * NARROW)))]
