"""A second batch of the same types takes a shortcut; whatever differs is checked as the first was."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.batch_shortcut import Shortcuts
from pe_cli.execute.plan.plan_cache import MAX_PLANS
from pe_cli.program.ir import Program
from tests.execute.test_executor import WIDTHS, batch, make


@pytest.fixture
def searches(monkeypatch) -> list[bool]:
    """Whether each search for a shortcut found one."""
    found: list[bool] = []
    plain = Shortcuts.find

    def find(self, *given):
        made = plain(self, *given)
        found.append(made is not None)
        return made

    monkeypatch.setattr(Shortcuts, "find", find)
    return found


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_the_same_values_with_and_without(devices, searches):
    executor, other = make(devices), make(devices)
    for step, samples in enumerate((8, 8, 5, 8, 5, 1, 1)):
        feed = batch(samples, step)
        ran = executor.run(feed, ["loss", "p"], step)
        found, weights = ran.values, ran.sizes
        other._shortcuts = Shortcuts(MAX_PLANS)
        ran = other.run(feed, ["loss", "p"], step)
        expected, others = ran.values, ran.sizes
        assert weights == others
        for a, b in zip(found, expected, strict=True):
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
    assert searches[::2] == [False, True, False, True, True, False, True]
    assert not any(searches[1::2])


def test_what_has_no_samples_goes_to_every_device_whole(searches, rng):
    program = Program("table")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 2)), is_data=True)
    block.create_var("table", TensorType((2, 3)), is_data=True)
    block.append_op("mul", {"X": "x", "Y": "table"}, {"Out": "out"})
    executor = Executor(program, Scope([Place("cpu", d) for d in range(2)]))
    for step in range(2):
        x, table = (rng.standard_normal(shape).astype("float32") for shape in ((6, 2), (2, 3)))
        found = executor.run({"x": x, "table": table}, ["out"], step).values
        np.testing.assert_allclose(np.concatenate([v["out"] for v in found]), x @ table, rtol=1e-5)
    assert searches == [False, True]


def test_what_is_wrong_is_told_after_a_shortcut_too(searches):
    executor = make(2)
    feed = batch(8, 0)
    for _ in range(2):
        executor.run(feed, ["loss"])
    assert searches == [False, True]
    for wrong, message in (
        ({**feed, "x": feed["x"][:, 1:]}, "should be"),
        ({**feed, "y": feed["y"].astype("float32")}, "should be int64"),
        ({**feed, "y": feed["y"][:5]}, "differ in length"),
        ({"x": feed["x"]}, "is missing"),
        ({**feed, "z": feed["x"]}, "no feed 'z'"),
    ):
        for _ in range(2):
            with pytest.raises(PeError, match=message):
                executor.run(wrong, ["loss"])
    with pytest.raises(PeError, match="no variable 'nothing'"):
        executor.run(feed, ["nothing"])


def test_what_is_converted_takes_none(searches):
    executor = make(1)
    feed = batch(8, 0)
    wide = {"x": feed["x"].astype("float64"), "y": feed["y"].astype("int32")}
    lists = {name: a.tolist() for name, a in feed.items()}
    (plain,) = make(1).run(feed, ["p"]).values
    for given in (wide, wide, lists | {"x": feed["x"]}):
        executor = make(1)
        for step in range(2):
            (found,) = executor.run(given, ["p"], step).values
            if not step:
                np.testing.assert_array_equal(found["p"], plain["p"])
    assert not any(searches)


def test_dropped_plans_are_made_again(searches):
    executor = make(2)
    feed = batch(6, 0)
    executor.run(feed, ["loss"])
    executor.drop()
    executor.run(feed, ["loss"])
    assert len(executor.plans) == 1
    for samples in range(1, MAX_PLANS + 4):
        executor.run(batch(samples, 0), ["loss"])
    ran = executor.run(feed, ["p"])
    out, sizes = ran.values, ran.sizes
    assert [len(v["p"]) for v in out] == sizes == [3, 3]
    assert out[0]["p"].shape == (3, WIDTHS[-1])
    assert len(executor.plans) <= MAX_PLANS
