"""Each warning where it has to be, and where it must not be."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.data import warnings as of


def keys(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


@pytest.mark.parametrize(
    ("train", "other", "count"),
    [
        pytest.param(keys(1, 2, 3, 4), keys(5, 6), None, id="all rows differ"),
        pytest.param(
            keys(1, 2, 3, 4), keys(5, 2), "1 of 2 rows of data.eval (50%) is a training row", id="one row is in both"
        ),
        pytest.param(
            keys(1, 2, 3, 4),
            keys(4, 9, 1, 4),
            "3 of 4 rows of data.eval (75%) are training rows",
            id="repeats count each time",
        ),
        pytest.param(keys(9, 2), keys(2**64 - 1), None, id="a key above all others"),
        pytest.param(keys(1, 1, 1, 2, 2), keys(1, 2), None, id="rows repeat by nature: few training rows differ"),
    ],
)
def test_rows_that_are_trained_on_and_measured_with(train, other, count):
    found = of.duplicates(train, other, "data.eval")
    assert (found is None) is (count is None)
    assert count is None or (found.startswith(count) and "data.split.group" in found)


def counts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_class_that_evaluation_lacks_is_named():
    found = of.absent_classes("animal", ["ant", "bee", "cow"], counts(5, 5, 5), counts(1, 0, 2), "data.eval")
    assert found.startswith("data.eval has no row of class 'bee' of 'animal', which training rows have")
    assert "stratify: animal" in found


@pytest.mark.parametrize(
    "other", [pytest.param(counts(1, 1, 0), id="neither has it"), pytest.param(counts(1, 9, 3), id="all are there")]
)
def test_nothing_is_said_of_classes_that_both_have_or_lack(other):
    assert of.absent_classes("animal", ["ant", "bee", "cow"], counts(5, 5, 0), other, "data.eval") is None


def test_a_class_that_only_evaluation_has_is_named():
    found = of.unseen_classes("animal", ["ant", "bee"], counts(0, 5), counts(2, 1), "data.test")
    assert found.startswith("no training row has class 'ant' of 'animal', which data.test has")
    assert of.unseen_classes("animal", ["ant", "bee"], counts(3, 5), counts(0, 1), "data.test") is None


def test_of_many_classes_the_first_are_listed():
    found = of.absent_classes("t", [f"c{i}" for i in range(9)], counts(*[1] * 9), counts(*[0] * 9), "data.eval")
    assert "'c0', 'c1', 'c2', 'c3', 'c4' and 4 more" in found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([1, 2, 2, 3], True, id="upwards"),
        pytest.param([3, 2, 2, -1], True, id="downwards"),
        pytest.param([1, 3, 2], False, id="both ways"),
        pytest.param([2, 2, 2], False, id="all the same"),
        pytest.param([2], False, id="one number"),
        pytest.param([1, float("nan"), 3], False, id="with a gap"),
    ],
)
def test_sorted_numbers(values, expected):
    assert of.is_sorted(np.array(values, np.float64)) is expected


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        pytest.param([2, 2, 0, 0, 1], True, id="each in one stretch, in any order"),
        pytest.param([2, 0, 2], False, id="one comes back"),
        pytest.param([1, 1, 1], False, id="one class"),
        pytest.param([0, 1, 2, 3], False, id="another one in every row"),
    ],
)
def test_classes_in_stretches(codes, expected):
    assert of.in_runs(np.array(codes, np.int64)) is expected


def test_a_sorted_cut_names_columns_and_a_way_out():
    found = of.sorted_cut(["species"], "skip and limit", "species")
    assert found.startswith("the rows are sorted by column 'species' and cut by their position (skip and limit)")
    assert "stratify: species" in found
    assert of.sorted_cut([], "skip and limit") is None


def test_a_constant_target_has_its_value():
    assert of.constant_target("t", "'no'").startswith(
        "the target 't' is 'no' in every training row: there is nothing to learn"
    )
    assert of.constant_target("t", None) is None


@pytest.mark.parametrize(
    ("classes", "rare", "rows", "words"),
    [
        pytest.param(100, 0, 100, "every row, 100 in 100", id="as many classes as rows"),
        pytest.param(97, 0, 100, "almost every row, 97 in 100", id="a few repeat"),
        pytest.param(1, 98, 100, "almost every row", id="nearly all are too rare to be kept"),
        pytest.param(80, 0, 100, None, id="many classes that repeat"),
        pytest.param(12, 0, 12, None, id="too few rows to tell"),
    ],
)
def test_an_id_is_told(classes, rare, rows, words):
    found = of.id_like("name", classes, rare, rows)
    assert (found is None) is (words is None)
    assert words is None or words in found
