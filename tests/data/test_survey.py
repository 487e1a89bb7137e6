"""Figures of columns are those of pandas, over the training rows only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pe_cli.core.survey_figures import ColumnFacts
from pe_cli.data.column_figures import Part, characters, column_facts, cut, field_facts
from pe_cli.data.dataset import ArrayDataset
from pe_cli.data.raw_cells import ListTable, join_strings
from pe_cli.data.reader_context import Origin

ORIGIN = Origin(Path())


def told(
    values: list[object], kind: str, train: list[int], other: list[int] | None = None, **options: object
) -> ColumnFacts:
    """Return facts of a column of Python values."""
    table = ListTable({"c": values}, ORIGIN)
    parts = [Part("train", table, np.array(train))] + (
        [Part("eval", table, np.array(other))] if other is not None else []
    )
    return column_facts(ColumnFacts("c", kind, options=options), "c", parts, None)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_those_of_pandas(seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 7)
    values: list[object] = [None if rng.random() < 0.2 else float(rng.normal(3, 1) * scale) for _ in range(300)]
    order = rng.permutation(300)
    train, other = sorted(order[:200].tolist()), sorted(order[200:].tolist())
    found = told(values, "number", train, other)
    column = pd.Series(values, dtype=float)
    expected = column[train]
    assert found.figures.low == expected.min()
    assert found.figures.high == expected.max()
    np.testing.assert_allclose(found.figures.mean, expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.figures.deviation, expected.std(ddof=0), rtol=1e-12)
    assert found.missing == {"train": int(expected.isna().sum()), "eval": int(column[other].isna().sum())}


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_counted_as_pandas_counts_them(seed):
    rng = np.random.default_rng(seed)
    words = [*(f"kind {i}" for i in range(14)), "", "Ärger", "a,b"]
    values: list[object] = [str(rng.choice(words)) for _ in range(400)]
    train = sorted(rng.permutation(400)[:300].tolist())
    found = told(values, "category", train)
    counts = pd.Series(values).iloc[train].replace("", None).value_counts()
    assert found.class_count == len(counts)
    assert [share.rows for share in found.classes] == sorted(counts.tolist(), reverse=True)[:10]
    assert all(counts[share.name] == share.rows for share in found.classes)
    assert found.missing == {"train": sum(values[row] == "" for row in train)}


def test_a_column_without_a_number_has_no_figures():
    assert told([None, None], "number", [0, 1]).figures is None


def test_cells_that_are_no_numbers_are_named_and_not_missing():
    found = told([1, "x", 3, None], "number", [0, 1, 2, 3])
    assert found.note == "1 cell is no number: 'x' in row 2"
    assert found.missing == {"train": 1}
    assert (found.figures.low, found.figures.high) == (1, 3)


def test_texts_that_do_not_repeat_are_told():
    assert told(["red", "blue", None, "green"], "", [0, 1, 2, 3]).note == "another text in every row"
    assert told(["red", "blue", "red"], "", [0, 1, 2]).note == ""


def test_dates_have_a_first_and_a_last():
    found = told(["2024-03-01", "2023-12-31", None, "2025-01-01"], "date", [0, 1, 2])
    assert (found.first, found.last, found.missing) == ("2023-12-31", "2024-03-01", {"train": 1})
    assert told(["31.12.2023", "01.02.2024"], "date", [0, 1], format="%d.%m.%Y").last == "2024-02-01"
    assert "not-a-date" in told(["not-a-date", "2024-01-01"], "date", [0, 1]).note


def test_bags_are_counted_by_item():
    cells = ["war|drama", "", "drama", "comedy|war|drama", "war"]
    found = told(cells, "bag", [0, 1, 2, 3])
    items = Counter(item for cell in cells[:4] for item in cell.split("|") if item)
    assert {share.name: share.rows for share in found.classes} == items
    lengths = [2, 0, 1, 3]
    assert (found.unit, found.figures.mean, found.figures.deviation) == ("items", np.mean(lengths), np.std(lengths))


def test_texts_are_measured_in_characters_and_the_longest_are_shown():
    texts = ["ä", "", "日本語の文", "four", "𝄞𝄞"]
    assert characters(join_strings([text.encode() for text in texts])).tolist() == [len(text) for text in texts]
    found = told(texts, "text", [0, 1, 2, 3])
    assert found.longest == ("日本語の文", "four", "ä")
    assert (found.figures.low, found.figures.high, found.missing) == (0, 5, {"train": 1})


def test_long_texts_are_cut_and_stay_in_a_line():
    assert cut("a\nb\tc\x00d", 80) == "a b c d"
    assert cut("x" * 1000, 20) == "x" * 17 + "..."


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param([1, 2.5, None, 1], "number", id="numbers"),
        pytest.param(["a", "b", "a", "a", "b"], "category", id="texts that repeat"),
        pytest.param(["a", "b", "c", "d"], "text", id="texts that do not"),
    ],
)
def test_an_unused_column_is_told_by_its_cells(values, kind):
    assert told(values, "", list(range(len(values)))).type == kind


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_fields_of_arrays_are_those_of_numpy(rng, dtype):
    values = (rng.normal(100, 3, (5000, 3, 2)) if dtype.startswith("f") else rng.integers(0, 200, (5000, 3, 2))).astype(
        dtype
    )
    found = field_facts(ColumnFacts("x", "array"), ArrayDataset({"x": values}, ORIGIN))
    wide = values.astype(np.float64)
    assert (found.figures.low, found.figures.high) == (wide.min(), wide.max())
    np.testing.assert_allclose([found.figures.mean, found.figures.deviation], [wide.mean(), wide.std()], rtol=1e-9)
    assert found.kind == f"{dtype}[3, 2]"
    assert not found.classes


def test_whole_numbers_of_a_label_are_classes(rng):
    values = rng.integers(0, 4, (500, 1))
    found = field_facts(ColumnFacts("y", "array"), ArrayDataset({"y": values}, ORIGIN))
    counts = np.bincount(values[:, 0])
    assert {int(share.name): share.rows for share in found.classes} == dict(enumerate(counts.tolist()))
