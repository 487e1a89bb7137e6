"""Rows without a cell: the table with `empty_rows: skip` is the one that was written without them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_cli.core.errors import PeError
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.table import TableOptions, open_table

NAMES = ("n", "word", "text")


def opened(folder: Path, name: str, **options):
    return open_table(TableOptions(files=name, **options), Origin(folder))


def written(folder: Path, name: str, rows, empty: str = ",,") -> None:
    """Write rows as CSV, or as JSON lines; None is an empty one."""
    if name.endswith(".csv"):
        lines = [",".join(NAMES), *(empty if row is None else ",".join(row) for row in rows)]
    else:
        lines = [json.dumps(dict(zip(NAMES, row or (None,) * 3, strict=True))) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")


def same(table, wanted) -> None:
    assert len(table) == len(wanted)
    np.testing.assert_array_equal(table.cells("n").numbers().values, wanted.cells("n").numbers().values)
    assert table.cells("n").numbers().bad.tolist() == wanted.cells("n").numbers().bad.tolist()
    assert table.cells("n").numbers().bad_count == wanted.cells("n").numbers().bad_count
    found, other = table.cells("word").codes(), wanted.cells("word").codes()
    assert found.words == other.words
    np.testing.assert_array_equal(found.codes, other.codes)
    found, other = table.cells("text").strings(), wanted.cells("text").strings()
    assert [found[i] for i in range(len(table))] == [other[i] for i in range(len(table))]
    assert [table.cells("text").text(i) for i in range(len(table))] == [wanted.cells("text").text(i) for i in range(len(table))]


CELLS = st.tuples(st.sampled_from(["1.5", "-2", "x", ""]), st.sampled_from(["a", "b", "NA"]), st.sampled_from(["one two", "three", "é"]))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.none() | CELLS, min_size=1, max_size=40).filter(lambda rows: any(rows)),
    kind=st.sampled_from(["csv", "jsonl"]),
    empty=st.sampled_from([",,", " , ,", '"","",""', "NA,,null"]),
    skip=st.integers(0, 3), limit=st.none() | st.integers(1, 20),
)  # fmt: skip
def test_the_table_is_that_without_the_rows(tmp_path_factory, rows, kind, empty, skip, limit):
    folder = tmp_path_factory.mktemp("t")
    filled = [row for row in rows if row]
    written(folder, f"with.{kind}", rows, empty)
    written(folder, f"without.{kind}", filled)
    options = {"skip": min(skip, len(filled) - 1), "limit": limit}
    table = opened(folder, f"with.{kind}", empty_rows="skip", **options)
    same(table, opened(folder, f"without.{kind}", **options))
    assert bool(table.left_out) == (len(filled) < len(rows))


def test_many_rows_are_told_by_whole_columns_and_by_their_lines(tmp_path):
    rows = [row for i in range(6000) for row in ((str(i), "a", f"t {i}"), None)]
    written(tmp_path, "t.csv", rows)
    table = opened(tmp_path, "t.csv", empty_rows="skip")
    assert table.cells("n").numbers().values.tolist() == list(range(6000))
    assert table.left_out == (f"{tmp_path}/t.csv: 6,000 rows without a cell are left out (lines 3, 5, 7, 9, 11 and 5,995 more)",)
    assert "t.csv:200:" in str(table.error(99, "n", "wrong").at), "errors name the line of the file"


def test_files_of_one_table_and_what_has_no_text(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    columns = {"n": [1.0, None, 3.0], "word": ["a", None, None], "text": ["x", None, "z"]}
    pyarrow.parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(arrow.table(columns), tmp_path / "b.parquet")
    table = opened(tmp_path, "*.parquet", empty_rows="skip")
    assert table.cells("n").numbers().values.tolist() == [1, 3, 1, 3]
    assert table.left_out[1] == f"{tmp_path}/b.parquet: a row without a cell is left out (row 2)"
    assert table.cells("text").text(3) == "z"


def test_what_is_no_empty_row(tmp_path):
    (tmp_path / "one.csv").write_text('a\n1\n""\n2\n')
    assert len(opened(tmp_path, "one.csv", empty_rows="skip")) == 3, "one column has no empty rows"
    written(tmp_path, "t.csv", [("1", "a", "x"), None])
    assert len(opened(tmp_path, "t.csv")) == 2, "rows stay where nothing is said"
    written(tmp_path, "none.csv", [None, None])
    with pytest.raises(PeError, match="has no row with a cell"):
        opened(tmp_path, "none.csv", empty_rows="skip")
    with pytest.raises(ValueError, match="a stream keeps every row"):
        TableOptions(files="t.csv", stream=True, empty_rows="skip")
