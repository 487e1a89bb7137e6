"""Plans of one executor share memory: it holds nothing from step to step, and goes with the last plan that uses it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.types import Place
from pe_cli.execute.memory.arenas import Arenas
from pe_cli.session.job import Job
from tests.execute.test_executor import batch, make

CONFIGS = Path(__file__).parents[3] / "configs"


def arenas(executor) -> list[set[int]]:
    """By device: the memory that plans have their temporaries in."""
    plans = executor.plans.values()
    return [
        {id(s.memory) for plan in plans for s in plan._places._spots.values() if s.space == d} for d in range(len(executor.places))
    ]


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_batches_of_other_sizes_use_the_memory_of_the_largest(devices):
    executor, alone = make(devices), make(devices)
    for step, samples in enumerate((600, 7, 600, 12, 100, 90, 7, 600)):
        feed = batch(samples, step)
        found = executor.run(feed, ["loss", "p"], step).values
        alone.drop()
        expected = alone.run(feed, ["loss", "p"], step).values
        for one, other in zip(found, expected, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])
    assert [len(of_device) for of_device in arenas(executor)] == [1] * devices
    assert len(set.union(*arenas(executor))) == devices
    executor.run(batch(900, 0), ["loss", "p"])
    assert [len(of_device) for of_device in arenas(executor)] == [2] * devices


def test_memory_goes_with_the_last_plan_that_uses_it():
    taken = Arenas()
    first = taken.take(0, Place("cpu", 0), 1000)
    assert taken.take(0, Place("cpu", 0), 900) is first
    assert taken.take(1, Place("cpu", 1), 900) is not first
    larger = taken.take(0, Place("cpu", 0), 2000)
    assert larger is not first
    assert taken.take(0, Place("cpu", 0), 10) is larger
    gone = weakref.ref(larger)
    gc.disable()
    try:
        del larger
        assert gone() is None
    finally:
        gc.enable()
    assert taken.take(0, Place("cpu", 0), 10) is first


def test_a_run_evaluates_in_the_memory_that_it_trains_in(tmp_path):
    job = Job.open(CONFIGS / "digits.yaml", ("executor.devices=2", f"output.dir={tmp_path}"))
    job.initialise()
    train, evaluation = job.executor(job.built.train), job.executor(job.built.eval)
    beside = job.executor(job.built.train, alone=False)
    feed = next(iter(job.data.loader("train", job.built.train, 64).epoch(0)))
    loss = job.built.fetches["loss"]
    for executor in (train, evaluation, beside):
        executor.run(feed, [loss])
    assert arenas(train) == arenas(evaluation)
    assert not set.union(*arenas(train)) & set.union(*arenas(beside))
