"""Targets that are numbers: which are taken for counts, shares, or a far tail, and which for classes in an order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.session.starters.column_guess import guess, guess_target, targets_of
from pe_cli.session.starters.columns_option import said_columns
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.guesses import Asked, Guess
from pe_cli.session.starters.target_kinds import skewness

RNG = np.random.default_rng(3)
NORMAL = RNG.normal(size=400)


def target(cells: list[object], task: str = "auto", name: str = "c", declared: str = "") -> Guess:
    columns = said_columns([f"{name}={declared}"]) if declared else {}
    return guess_target(ListTable({name: cells}, Origin(Path())), name, Settings(Path(), name, Path(), task, columns), Asked())


@pytest.mark.parametrize(
    ("cells", "name", "kind", "options"),
    [
        pytest.param(RNG.poisson(np.exp(2 + NORMAL)).tolist(), "c", "count", {}, id="events"),
        pytest.param((RNG.beta(2, 3, 400)).round(3).tolist(), "c", "share", {}, id="from 0 to 1"),
        pytest.param([f"{v:.1f}%" for v in RNG.uniform(0, 90, 400)], "c", "share", {"unit": "%", "scale": 100}, id="percent"),
        pytest.param(RNG.uniform(1, 99, 400).round(2).tolist(), "turnout_pct", "share", {"scale": 100}, id="percent by the name"),
        pytest.param(np.exp(7 + 1.5 * NORMAL).round(2).tolist(), "c", "log", {"transform": "log", "scale": "standard"}, id="a far tail"),
        pytest.param([*np.exp(7 + 1.5 * NORMAL).round(), 0], "c", "log", {"transform": "log1p", "scale": "standard"}, id="with a zero"),
        pytest.param(NORMAL.round(3).tolist(), "c", "number", {"scale": "standard"}, id="both signs"),
        pytest.param((170 + 10 * NORMAL).round(1).tolist(), "c", "number", {"scale": "standard"}, id="no tail"),
        pytest.param((20 + RNG.integers(0, 70, 400)).tolist(), "age", "number", {"scale": "standard"}, id="whole numbers far from 0"),
        pytest.param((NORMAL / 100 + 0.05).round(5).tolist(), "c", "number", {"scale": "standard"}, id="small numbers"),
        pytest.param([1, 2, 3, 4, 5] * 60, "stars", "ordered", {"classes": ["1", "2", "3", "4", "5"]}, id="stars"),
        pytest.param(["high", "low", "medium"] * 60, "c", "ordered", {"classes": ["low", "medium", "high"]}, id="words in an order"),
        pytest.param(["red", "green", "blue"] * 60, "c", "classes", {}, id="words without one"),
        pytest.param([0, 1] * 60, "c", "classes", {}, id="two classes"),
    ],
)  # fmt: skip
def test_what_a_target_is_taken_for(cells, name, kind, options):
    found = target(cells, name=name)
    assert (found.kind, found.options) == (kind, options)
    assert found.why
    assert bool(found.note) == (kind not in ("number", "classes")), "what a reader would not expect is said"


def test_the_user_says_what_a_target_is():
    counts = RNG.poisson(np.exp(2 + NORMAL)).tolist()
    assert target(counts, "number").kind == "number"
    assert target((20 + RNG.integers(0, 70, 400)).tolist(), "count").kind == "count"
    assert target(counts, declared="{type: number, transform: log1p}").kind == "log"
    assert target([1, 2, 3, 4, 5] * 60, "classes").kind == "classes"
    assert target([1, 2, 3, 10] * 60, "ordered").options == {"classes": ["1", "2", "3", "10"]}


@pytest.mark.parametrize(
    ("cells", "task", "message"),
    [
        pytest.param([3, 1, 2.5, -1], "count", r"row 3.*'2\.5' is no count, .*predicts whole numbers from 0 on.*1 more", id="no count"),
        pytest.param([0.5, 0.1, 120, 3], "share", r"row 3, column 'c': '120' is no share", id="no share"),
        pytest.param([3, "x", 1, 2], "count", r"'x' is no count", id="a text"),
        pytest.param(["a", "b", "c"] * 9, "ordered", r"nothing tells the order of the classes", id="no order"),
    ],
)
def test_cells_that_are_no_such_numbers_are_told(cells, task, message):
    with pytest.raises(PeError, match=message) as caught:
        target(cells, task)
    assert caught.value.hint


def test_several_targets_have_commas_between_them():
    assert targets_of(["a", "b", "c"], "a, c") == ["a", "c"]
    assert targets_of(["a", "a,b"], "a,b") == ["a,b"], "a column of this name goes first"
    with pytest.raises(PeError, match="no column 'x'"):
        targets_of(["a", "b"], "a,x")
    with pytest.raises(PeError, match="names 'a' twice"):
        targets_of(["a", "b"], "a,a")
    with pytest.raises(PeError, match="needs --target"):
        targets_of(["a", "b"], None)


def test_skewness_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    assert skewness(np.exp(NORMAL)) == pytest.approx(stats.skew(np.exp(NORMAL)))


@pytest.mark.parametrize("name", ["store_id", "customerId", "id", "route no", "product.code"])
def test_whole_numbers_that_tell_things_apart_are_no_magnitudes(name):
    found = guess(ListTable({name: (100 + RNG.integers(0, 30, 600)).tolist()}, Origin(Path())), name, Asked())
    assert found.type == "category"
    assert f"--columns '{name}=number'" in found.note
    many = guess(ListTable({name: RNG.integers(0, 900, 900).tolist()}, Origin(Path())), name, Asked())
    assert many.type is None, "too few rows of each"


@pytest.mark.parametrize("name", ["width", "index", "idle", "paid", "decode_ms"])
def test_other_whole_numbers_are_magnitudes(name):
    assert guess(ListTable({name: (100 + RNG.integers(0, 30, 600)).tolist()}, Origin(Path())), name, Asked()).type == "number"
