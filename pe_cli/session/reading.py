"""How fast data comes: the reader alone, and beside training steps."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from pe_cli.session.job import Job


def open_data(job: Job) -> float:
    """Open the data that is timed, and return the seconds that it took."""
    begin = time.perf_counter()
    program = job.built.train or job.built.eval
    job.loader(_split(job), program, job.batch_size)
    return time.perf_counter() - begin


def measure_reading(job: Job, fed_ms: float, steps: int, seconds: float) -> dict[str, Any]:
    """Time the reader alone, and training steps that take their batches from it.

    Args:
        job: with initial values.
        fed_ms: milliseconds of a step that is fed from memory.
        steps: that are timed.
        seconds: for which the reader alone is timed.

    Returns:
        `data_samples_per_s` of the reader alone, `ms_per_reading_step`, and `beyond_step`, the share of such a step that a step fed
        from memory does not take.
    """
    program = job.built.train or job.built.eval
    split = _split(job)
    executor = job.executor(program)

    def batches() -> Iterator[Any]:
        loader = job.loader(split, program, job.batch_size, drop_last=len(job.dataset(split)) >= job.batch_size)
        return itertools.chain.from_iterable(map(loader.epoch, itertools.count()))

    samples, begin = 0, time.perf_counter()
    for feed in batches():
        samples += executor.samples(feed)
        if time.perf_counter() - begin > seconds:
            break
    rate = samples / (time.perf_counter() - begin)
    times, last = [], time.perf_counter()
    for i, feed in enumerate(itertools.islice(batches(), steps + 1)):
        executor.run(feed, [], i)
        now = time.perf_counter()
        times.append((now - last) * 1000)
        last = now
    reading = statistics.median(times[1:])  # the first makes the plan
    return {
        "data_samples_per_s": round(rate, 1),
        "ms_per_reading_step": round(reading, 4),
        "beyond_step": round(max(0.0, 1 - fed_ms / reading), 3),
    }


def _split(job: Job) -> str:
    return "train" if job.built.train is not None else "eval"
