"""Targets that are sets of tags: which cells are taken for them, and what is said of cells that are none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.data.columns.bag import items_of_list
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.session.starters.column_guess import guess_target
from pe_cli.session.starters.columns_option import said_columns
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.guesses import Asked, Guess
from pe_cli.session.starters.tags import tag_section

SETS = [["a", "b"], ["b"], [], ["a", "b", "c"], ["c", "a"]] * 12


def target(cells: list[object], declared: str = "", task: str = "auto") -> Guess:
    columns = said_columns([f"c={declared}"]) if declared else {}
    return guess_target(ListTable({"c": cells}, Origin(Path())), "c", Settings(Path(), "c", Path(), task, columns), Asked())


def test_tags_are_found_however_they_are_written():
    ways = {"|": "|".join, ";": ";".join, ", ": ", ".join, "json": json.dumps, "python": str}
    options = [{}, {"separator": ";"}, {"separator": ","}, {"format": "list"}, {"format": "list"}]
    for written, expected in zip(ways.values(), options, strict=True):
        found = target([written(tags) for tags in SETS])
        assert (found.type, found.options) == ("bag", {**expected, "classes": ["a", "b", "c"]})
        assert "12 rows have none" in found.why, "rows without a tag are right"
        assert f"cells such as '{written(['a', 'b'])}'" in found.why
        assert "--columns 'c=category'" in found.note


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(["red, big", "green, big", "blue, small"] * 20, id="no more cells than items"),
        pytest.param(["a|b", *["c", "d"] * 40], id="a sign that is rare"),
        pytest.param(["Doe, Jane Mary Ann of Hill", "Smith, John"] * 30, id="long names"),
        pytest.param(["[a]", "[b]"] * 30, id="lists of one item each"),
    ],
)
def test_other_texts_stay_classes(cells):
    assert target(cells).type == "category"


def test_numbers_with_commas_stay_numbers():
    assert target([f"{n},5" for n in range(60)]).type == "number"


def test_they_are_said_by_hand():
    cells = ["a/b", "b", "", "a"] * 15
    assert target(cells, "{type: tags, separator: /}").options == {"separator": "/", "classes": ["a", "b"]}
    assert target([*["a", "b", ""] * 15, "b;a"], "tags").options["separator"] == ";", "a sign that is rare, but there"
    assert target(["|".join(tags) or "none" for tags in SETS], "category").type == "category"
    assert target(["|".join(tags) for tags in SETS], task="tags").type == "bag"
    assert target(["10|9", "9", "2"] * 9, "tags").options["classes"] == ["2", "9", "10"], "numbers in their order"


@pytest.mark.parametrize(
    ("cells", "declared", "message"),
    [
        pytest.param(["a", ""] * 20, "tags", "the target has one tag, 'a'", id="one tag"),
        pytest.param(["", ""] * 20, "tags", "no tag in any row", id="none"),
        pytest.param(["[a", "b"] * 20, "{type: tags, format: list}", "no tags", id="no lists"),
        pytest.param(["a", "b", ""] * 20, "", "the target is missing", id="classes with gaps"),
    ],
)
def test_what_cannot_be_learned_is_refused(cells, declared, message):
    with pytest.raises(PeError, match=message) as caught:
        target(cells, declared)
    assert caught.value.hint
    assert declared or "--columns c=tags" in caught.value.hint


def test_classes_that_have_an_order_stand_in_it():
    found = target(["high", "low", "medium"] * 20)
    assert (found.type, found.options) == ("category", {"classes": ["low", "medium", "high"]})
    assert "low < medium < high" in found.note
    assert target(["L", "S", "M"] * 20).options == {"classes": ["S", "M", "L"]}
    assert target(["red", "low", "high"] * 20).options == {}
    stars = target([1, 2, 3, 4, 5] * 20)
    assert stars.type == "category"
    assert "1 to 5, such as '1', '2', '3'" in stars.note
    assert "--task number" in stars.note
    assert target([1, 2, 7] * 20).note == "", "codes"


def test_a_metric_of_a_tag_names_its_number():
    lines = tag_section(["x", "a/b", "a:b"])
    assert sum("f1[a_b]" in line for line in lines) == 1, "two tags of one name have one metric"
    assert next(line for line in lines if "f1[a_b]" in line).count("class: 1") == 1


def test_lists_of_json_are_read_as_json_reads_them():
    rng = np.random.default_rng(5)
    for _ in range(200):
        items = ["".join(rng.choice(list("ab ,'\"\\[]{}|é\n"), 4)).strip() for _ in range(rng.integers(0, 4))]
        items = [item for item in items if item]
        assert items_of_list(json.dumps(items)) == items


@pytest.mark.parametrize("word", ["", "[", "a", "[a", '["a]', "['a' 'b']", "[[1], [2]]", '["\\q"]', "[,]", "[a" + " " * 50_000 + "'x]"])
def test_what_is_no_list_is_refused(word):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever it is, who calls says where
        items_of_list(word)
