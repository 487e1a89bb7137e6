"""Cells of values that are at hand, as JSON gives them."""

from __future__ import annotations

from pathlib import Path

from pe_cli.data.cells import ListTable
from pe_cli.data.origin import Origin


def test_half_of_a_character_is_shown_as_one_that_is_not_known():
    cells = ListTable({"a": ["x\ud800y", "\ud83d\ude00", "日"]}, Origin(Path())).cells("a")
    assert [cells.text(row) for row in range(3)] == ["x\ufffdy", "\U0001f600", "日"]
    assert cells.strings()[0] == "x\ufffdy"
    assert cells.codes().words[0] == "x\ufffdy"
