"""A pool of threads that decode and transform pictures, mostly without the GIL."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from pe_cli.core.limits import usable_cores

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: Parts of a batch for each thread: more than one, because pictures differ in how long they take.
PARTS = 2


@functools.cache
def _executor(count: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(count, thread_name_prefix="pictures")


def in_parts(work: Callable[[int, int], None], total: int, count: int | None = None) -> None:
    """Call `work(start, end)` for parts of range(total) in several threads, and wait for all of them.

    Args:
        work: may run in any thread.
        total: number of samples.
        count: number of threads; `usable_cores()` when None.

    Raises:
        BaseException: what the first of the parts that failed has raised.
    """
    count = count or usable_cores()
    parts = min(total, count * PARTS)
    if count == 1 or parts <= 1:
        work(0, total)
        return
    bounds = [total * i // parts for i in range(parts + 1)]
    jobs = [_executor(count).submit(work, start, end) for start, end in itertools.pairwise(bounds)]
    failures = [job.exception() for job in jobs]
    for failure in failures:
        if failure is not None:
            raise failure
