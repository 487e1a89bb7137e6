"""Cells of values that are at hand, as JSON gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pe_cli.data.array_dataset import DatasetTable
from pe_cli.data.dataset import ArrayDataset
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin


def test_half_of_a_character_is_shown_as_one_that_is_not_known():
    cells = ListTable({"a": ["x\ud800y", "\ud83d\ude00", "日"]}, Origin(Path())).cells("a")
    assert [cells.text(row) for row in range(3)] == ["x\ufffdy", "\U0001f600", "日"]
    assert cells.strings()[0] == "x\ufffdy"
    assert cells.codes().words[0] == "x\ufffdy"


def test_a_field_of_several_numbers_is_a_column_of_the_first():
    values = np.array([[[7.5, 1], [2, 3]], [[np.inf, 4], [5, 6]], [[7.5, np.inf], [8, 9]], [[-1, 0], [0, 0]]])
    origin = Origin(Path())
    cells = DatasetTable(ArrayDataset({"a": values}, origin), origin).cells("a")
    found = cells.numbers()
    np.testing.assert_array_equal(found.values, values[:, 0, 0])
    assert (found.bad.tolist(), found.bad_count) == ([1], 1)
    assert cells.codes().codes.tolist() == [0, 1, 0, 2]
    assert cells.codes().words == ["7.5", "inf", "-1.0"]
    assert [cells.text(row) for row in range(4)] == ["7.5", "inf", "7.5", "-1.0"]
    assert [cells.strings()[row] for row in range(4)] == ["7.5", "inf", "7.5", "-1.0"]
