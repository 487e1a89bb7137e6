"""Errors, shared out over classes and ranges of columns: by hand, and against pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pe_cli.io.view.error_report import errors_by_column
from pe_cli.metrics.error_shares import MOST_COLUMNS, MOST_GROUPS, ranges, shared


def test_shares_by_hand():
    errors = np.array([0.0, 1, 1, 0, 0, 0, 0, 0])
    sides = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    found = shared("y", errors, {"side": (sides, ["left", "right"]), "all": (np.zeros(8, np.int64), ["one"])}, classes=True)
    assert (found.rows, found.mean) == (8, 0.25)
    (column,) = found.columns
    assert column.uneven == 0.25
    assert [(g.name, g.rows, g.errors, g.mean) for g in column.groups] == [("left", 0.25, 0.5, 0.5), ("right", 0.75, 0.5, 1 / 6)]


def test_groups_are_those_of_pandas(rng):
    values = np.where(rng.random(400) < 0.1, np.nan, rng.exponential(size=400))
    errors = rng.random(400)
    groups, names = ranges(values)
    assert names[-1] == "missing"
    found = shared("y", errors, {"v": (groups, names)}, classes=False).columns[0].groups
    frame = pd.DataFrame({"g": pd.qcut(values, 4), "e": errors})
    expected = frame.groupby("g", observed=True)["e"]
    np.testing.assert_allclose([g.mean for g in found[:4]], expected.mean())
    np.testing.assert_allclose([g.errors for g in found[:4]], expected.sum() / errors.sum())
    assert found[4].mean == pytest.approx(errors[np.isnan(values)].mean())


@pytest.mark.parametrize("values", [[np.nan, np.nan], [3.0, 3.0], [1.0, 2.0, 2.0, 2.0]], ids=["missing", "one", "few"])
def test_few_numbers_have_few_ranges(values):
    groups, names = ranges(np.array(values))
    assert groups.max() < len(names) + 1
    shared("y", np.ones(len(values)), {"v": (groups, names)}, classes=False)


def test_nothing_is_told_without_errors_and_not_too_much(rng):
    groups = {f"c{i}": (rng.integers(0, 40, 900), [f"g{j}" for j in range(40)]) for i in range(30)}
    assert shared("y", np.zeros(900), groups, classes=True).columns == ()
    found = shared("y", rng.random(900), groups, classes=False)
    assert len(found.columns) == MOST_COLUMNS
    assert {len(column.groups) for column in found.columns} == {MOST_GROUPS}
    assert [c.uneven for c in found.columns] == sorted((c.uneven for c in found.columns), reverse=True)


def test_names_of_files_are_no_html():
    found = shared("<b>", np.array([1.0, 0]), {"<i>": (np.array([0, 1]), ["<script>", "x"])}, classes=True)
    page = errors_by_column([found])
    assert "&lt;script&gt;" in page
    assert not {"<script>", "<b>", "<i>"} & {page[i : page.find(">", i) + 1] for i in range(len(page)) if page[i] == "<"}
