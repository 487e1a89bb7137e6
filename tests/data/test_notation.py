"""Notations of numbers: the kernel, Python and all formats of tables read the same cells alike."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.data.column import discover
from pe_cli.data.notation import Notation
from pe_cli.data.notation_detection import notation_of
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.table import TableOptions, open_table


@pytest.mark.parametrize(
    ("notation", "text", "number"),
    [
        pytest.param(Notation(",", "."), "1.234.567,89", 1234567.89, id="German"),
        pytest.param(Notation(",", "."), "1234567,89", 1234567.89, id="without signs between thousands"),
        pytest.param(Notation(",", "."), "12.34", None, id="a group of two digits at the end"),
        pytest.param(Notation(",", "."), "1234.567", None, id="four digits before a sign"),
        pytest.param(Notation(".", " "), "010 200 300", None, id="a telephone number"),
        pytest.param(Notation(",", "."), "0.123", None, id="a zero before a sign"),
        pytest.param(Notation(",", "."), ".567", None, id="no digit before a sign"),
        pytest.param(Notation(",", "."), "1,5,3", None, id="two decimal signs"),
        pytest.param(Notation(",", ""), "1.5", None, id="a point where decimals have commas"),
        pytest.param(Notation(".", ","), "12,34,567.5", 1234567.5, id="Indian"),
        pytest.param(Notation(".", "'"), "1\u2019234.5", 1234.5, id="Swiss, typographic"),
        pytest.param(Notation(",", " "), "1\u202f234\u00a0567,5", 1234567.5, id="French, narrow blanks"),
        pytest.param(Notation(unit="€"), "€ -5", -5, id="a minus behind the unit"),
        pytest.param(Notation(unit="€"), "-€5", -5, id="a minus before the unit"),
        pytest.param(Notation(unit="€"), "5\u00a0€", 5, id="a wide blank before the unit"),
        pytest.param(Notation(unit="€"), "€5€", None, id="the unit twice"),
        pytest.param(Notation(unit="€"), "5 $", None, id="another unit"),
        pytest.param(Notation(unit="€"), "€", None, id="the unit alone"),
        pytest.param(Notation(unit="kg"), "(5 kg)", -5, id="negative by parentheses"),
        pytest.param(Notation(unit="kg"), "-(5 kg)", None, id="negative twice"),
        pytest.param(Notation(unit="kg"), "5-", -5, id="a minus at the end"),
        pytest.param(Notation(unit="kg"), "\u22125", -5, id="a typographic minus"),
        pytest.param(Notation(unit="kg"), "(5", None, id="one parenthesis"),
        pytest.param(Notation(",", unit="kg"), "1,5e3 kg", 1500, id="a power of ten"),
        pytest.param(Notation(",", "."), "1" * 129, None, id="more digits than a number has"),
    ],
)  # fmt: skip
def test_a_text_means(tmp_path, notation, text, number):
    plain = notation.plain(text)
    assert (None if plain is None else float(plain)) == number
    (tmp_path / "t.csv").write_text(f'a;b\n"{text}";x\n', encoding="utf-8")
    found = open_table(TableOptions(files="t.csv"), Origin(tmp_path)).cells("a").numbers(notation)
    assert (found.values[0] if not found.bad_count else None) == number


PIECES = ["1", "2", "34", "567", "000", ".", ",", "'", "\u2019", " ", "\u00a0", "\u202f", "-", "\u2212", "+", "(", ")", "€", "CHF", "%",
          "e5", "E-3", "x", "1234567890123456789012345"]  # fmt: skip


def _cells(notation: Notation, draw: random.Random, count: int) -> list[str]:
    """Return cells of all sorts, about a half of them numbers of a notation."""
    found = []
    for _ in range(count):
        if draw.random() < 0.5:
            found.append("".join(draw.choice(PIECES) for _ in range(draw.randint(1, 7))).strip() or "0")
            continue
        whole = draw.choice(["1", "123", "1.234", "12.345.678", "12.34.567"]).replace(".", notation.thousands)
        text = draw.choice(["", "-", "+", "\u2212"]) + whole + draw.choice(["", f"{notation.decimal}5", f"{notation.decimal}25"])
        found.append(draw.choice([text, f"{text} {notation.unit}", notation.unit + text, f"({text})", f"{text}-"]).strip())
    return found


@pytest.mark.parametrize("unit", ["", "€", "CHF"])
def test_all_formats_read_alike(tmp_path, unit):
    draw = random.Random(len(unit))
    for decimal, thousands in ((",", ""), (",", "."), (".", ","), (".", "'"), (",", " ")):
        notation = Notation(decimal, thousands, unit)
        cells = _cells(notation, draw, 400)
        plain = [notation.plain(cell) for cell in cells]
        expected = np.array([math.nan if one is None or math.isinf(float(one)) else float(one) for one in plain])
        assert np.isfinite(expected).sum() > 100
        with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["a"], *([cell] for cell in cells)])
        lines = "".join(json.dumps({"a": cell}) + "\n" for cell in cells)
        (tmp_path / "t.jsonl").write_text(lines, encoding="utf-8")
        origin = Origin(tmp_path)
        tables = [open_table(TableOptions(files="t.csv", delimiter=","), origin), open_table(TableOptions(files="t.jsonl"), origin)]
        for table in (*tables, ListTable({"a": cells}, origin)):
            found = table.cells("a").numbers(notation)
            np.testing.assert_array_equal(found.values, expected)
            assert found.bad_count == np.isnan(expected).sum()
            assert found.bad.tolist() == np.flatnonzero(np.isnan(expected))[:5].tolist()


def test_numbers_for_missing_cells_are_nan_and_others_stay(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n999,1\n5,2\n-1,3\n")
    cells = open_table(TableOptions(files="t.csv"), Origin(tmp_path)).cells("a")
    np.testing.assert_array_equal(cells.numbers(Notation(empty=(999.0,))).values, [math.nan, 5, -1])
    np.testing.assert_array_equal(cells.numbers().values, [999, 5, -1])


@pytest.mark.parametrize(
    ("words", "notation", "other"),
    [
        pytest.param(["1,234", "5,678"], Notation(",", ""), Notation(".", ","), id="three digits behind each comma"),
        pytest.param(["1,234", "5,67"], Notation(",", ""), None, id="two digits behind a comma"),
        pytest.param(["1,234,567", "5"], Notation(".", ","), None, id="two commas"),
        pytest.param(["1.234,5", "5"], Notation(",", "."), None, id="both signs"),
        pytest.param(["12", "5.5"], Notation(), None, id="as programs write numbers"),
    ],
)
def test_a_notation_is_found(words, notation, other):
    found = notation_of(words)
    assert found is not None
    assert {found.notation, found.other} == {notation, other}


@pytest.mark.parametrize(
    "words", [["C-001", "C-002"], ["k1", "k2"], ["Room 5", "Room 7"], ["12a", "13b"], ["a", "b"], ["1.2.3.4", "10.0.0.1"], []],
    ids=["ids", "letters and digits", "texts before digits", "houses", "texts", "addresses", "nothing"],
)  # fmt: skip
def test_other_texts_have_no_notation(words):
    assert notation_of(words) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','", id="one sign for both"),
        pytest.param({"unit": "5"}, "unit is a text without digits", id="a unit of digits"),
        pytest.param({"unit": " kg"}, "unit is a text without digits and without blanks", id="a blank before the unit"),
        pytest.param({"unit": "."}, "unit is a text", id="a unit of signs"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        discover()["number"].options.model_validate(options)


def test_a_column_that_is_not_declared_names_the_line_that_reads_it():
    from pe_cli.data.column import Context
    from pe_cli.data.column_inference import infer

    context = Context(ListTable({"price": ["1.5", "2.5", "3.5", "1.234,50 €"]}, Origin(Path())), "price")
    with pytest.raises(PeError, match=r"'1\.234,50 €' is no finite number"):
        infer(context, None)
    options = discover()["number"].options.model_validate({})
    context = Context(ListTable({"price": ["1.234,50 €", "7,25 €"]}, Origin(Path())), "price")
    with pytest.raises(PeError) as raised:
        discover()["number"].fit(options, context, None)
    assert 'declare price: {type: number, decimal: ",", thousands: ".", unit: "€"}' in str(raised.value.hint)
