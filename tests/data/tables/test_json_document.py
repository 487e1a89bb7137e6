"""Tables of JSON that are no lines: what pandas reads as the same rows is the yardstick."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.array_dataset import is_table
from pe_cli.data.registry import open_reader

ROWS = [{"a": i, "name": f"n\n\u00e9{i}", "user": {"age": 20 + i, "at": {"x": i / 7}}, "tags": [i, "b"]} for i in range(12)]
FLAT = [{"a": str(i), "name": f"n\n\u00e9{i}", "user.age": str(20 + i), "tags": f'[{i}, "b"]'} for i in range(12)]


def table_of(folder: Path, text: str, name: str = "t.json"):
    (folder / name).write_text(text, encoding="utf-8")
    found = open_reader("table", {"files": name}, folder)
    assert is_table(found)
    return found


@pytest.mark.parametrize("text", [
    pytest.param(json.dumps(ROWS), id="a list"),
    pytest.param(json.dumps(ROWS, indent=2), id="a list over lines"),
    pytest.param(" \n" + json.dumps(ROWS).replace("}, {", "},\n{"), id="a list with an object per line"),
    pytest.param(json.dumps({"count": 12, "data": ROWS, "meta": {"x": []}}), id="a list in an object"),
    pytest.param(json.dumps({"records": ROWS}, indent=1), id="a list in an object over lines"),
    pytest.param("\n".join(json.dumps(row, indent=1) for row in ROWS), id="objects over lines"),
    pytest.param("\n".join(json.dumps(row) for row in ROWS), id="lines"),
    pytest.param(json.dumps(ROWS, ensure_ascii=False), id="letters as they are"),
])  # fmt: skip
def test_the_same_rows(tmp_path, text):
    table = table_of(tmp_path, text)
    assert table.names == ("a", "name", "user.age", "user.at.x", "tags")
    assert [{name: table.cells(name).text(row) for name in FLAT[0]} for row in range(len(table))] == FLAT
    assert table.cells("user.at.x").numbers().values.tolist() == [i / 7 for i in range(12)]


@pytest.mark.parametrize(("text", "said"), [
    (json.dumps({"a": list(range(12)), "b": list(range(12))}), "one object of columns or parts (a, b)"),
    (json.dumps({"a": {str(i): i for i in range(12)}, "b": {str(i): i for i in range(12)}}), "one object of columns or parts (a, b)"),
    (json.dumps({"columns": ["a"], "index": [0], "data": [[1]]}), "one object of columns or parts"),
    (json.dumps({"train": ROWS, "test": ROWS}), "several lists of rows: train, test"),
    ("[]", "is empty: it has no rows"),
    (json.dumps([["a"], [1]]), "a row is a list, not an object"),
    (json.dumps(ROWS) + "[", "more stands behind the list"),
    ('[{"a": 1} {"a": 2}]', "expecting ',' or ']'"),
    ('[{"a": 1, "a": 2}]', "a row that cannot be read: a"),
])  # fmt: skip
def test_what_is_refused(tmp_path, text, said):
    with pytest.raises(PeError) as told:
        table_of(tmp_path, text)
    assert (told.value.code, said in told.value.message) == (ExitCode.DATA, True), told.value.message


def test_lists_in_the_cells_of_one_line_stay_cells(tmp_path):
    assert table_of(tmp_path, '{"words": [1, 2, 3], "tags": ["a", "b", "c"]}\n').names == ("words", "tags")


def test_an_error_names_the_row(tmp_path):
    table = table_of(tmp_path, json.dumps(ROWS, indent=1))
    assert "t.json, row 4, column 'user.age': odd" in table.error(3, "user.age", "odd").message


def test_an_error_in_a_line_points_to_the_key(tmp_path):
    table = table_of(tmp_path, "\n".join(json.dumps(row) for row in ROWS), "t.jsonl")
    at = table.error(3, "user.age", "odd").at
    assert at is not None
    assert (at.line, at.text[at.column - 1 :].startswith('"age"')) == (4, True)
