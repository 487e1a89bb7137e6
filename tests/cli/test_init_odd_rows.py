"""Rows that are no samples: titles, units, sums, notes, and the header again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.data.tables.table_files import PartsTable
from tests.cli.conftest import Pe

RNG = np.random.default_rng(5)
HEADER = "item,amount,price\n"
ROWS = [(str(RNG.choice(["red", "blue"])), f"{x:.2f}", f"{3 * x + 1:.2f}") for x in RNG.uniform(1, 9, 60)]
BODY = "".join(f"{','.join(row)}\n" for row in ROWS)
TOTAL = f"Total,{sum(float(row[1]) for row in ROWS):.2f},{sum(float(row[2]) for row in ROWS):.2f}\n"


def init(pe: Pe, folder: Path, text: str, *options: str):
    (folder / "t.csv").write_text(text, encoding="utf-8", newline="")
    return pe("init", folder / "c.yaml", "--from", folder / "t.csv", "--target", "price", "--force", *options)


@pytest.mark.parametrize(("text", "said", "written"), [
    pytest.param(f"Sales of 2024\n{HEADER}{BODY}", "the first line is taken for a title", "titles: 1", id="a title"),
    pytest.param(f"Sales of 2024,,\n,,\n{HEADER}{BODY}", "the first 2 lines are taken for titles", "titles: 2", id="a sheet's titles"),
    pytest.param(f"# by x\r\n# 60 rows\r\n\r\n{HEADER}{BODY}", "the first 3 lines are taken for titles", "titles: 3", id="comments"),
    pytest.param(HEADER + BODY + TOTAL, "the last row is no sample, and left out (limit: 60): 'Total'", "limit: 60", id="sums"),
    pytest.param(f"{HEADER}{BODY}\n,,\n{TOTAL}", "the last 2 rows are no samples", "limit: 60", id="sums below an empty row"),
    pytest.param(f"{HEADER}{BODY}Source: the office,,\n", "(limit: 60): 'Source: the office'", "limit: 60", id="a source"),
    pytest.param(f"{HEADER},kg,EUR\n{BODY}", "the first row says what columns are, and is left out (skip: 1): 'kg', 'EUR'", "skip: 1",
                 id="units"),
])  # fmt: skip
def test_rows_that_are_left_out(pe: Pe, tmp_path, text, said, written):
    made = init(pe, tmp_path, text)
    assert made.code == 0, made.err
    assert said in made.out
    assert "60 rows; 'price' is taken for a number" in made.out
    assert written in (tmp_path / "c.yaml").read_text()
    assert pe("check", tmp_path / "c.yaml").code == 0
    shown = pe("data", tmp_path / "c.yaml", "--rows", "1").out
    assert "Total" not in shown


def test_a_table_with_a_title_is_trained_on_and_predicted(pe: Pe, tmp_path):
    assert init(pe, tmp_path, f"Sales of 2024\n\n{HEADER}{BODY}{TOTAL}").code == 0
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=3", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "new.csv").write_text(f"Sales of 2025\n\n{HEADER}{BODY}")
    said = pe("predict", run, tmp_path / "new.csv")
    assert len(list(csv.DictReader(io.StringIO(said.out)))) == 60
    (tmp_path / "bad.csv").write_text(f"Sales of 2025\n\n{HEADER}{BODY}red,much,1\n")
    wrong = pe("predict", run, tmp_path / "bad.csv")
    assert (wrong.code, "bad.csv:64:5: error: column 'amount': 'much' is no finite number" in wrong.err) == (3, True), wrong.err


@pytest.mark.parametrize("empty", [",,", '"","",""', "NA,NA,NA", "  ,, "])
def test_empty_rows_between_others_are_left_out_and_said(pe: Pe, tmp_path, empty):
    lines = BODY.splitlines()
    text = "\n".join([HEADER.strip(), *lines[:20], empty, *lines[20:30], empty, *lines[30:], empty, TOTAL])
    made = init(pe, tmp_path, text)
    assert made.code == 0, made.err
    assert "3 rows without a cell are left out (lines 22, 33, 64) (empty_rows: skip)" in made.out
    assert "the last row is no sample, and left out (limit: 60): 'Total'" in made.out
    assert "60 rows; 'price' is taken for a number" in made.out
    assert "empty_rows: skip, limit: 60" in (tmp_path / "c.yaml").read_text()
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=2", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "new.csv").write_text("\n".join([HEADER.strip(), *lines[:3], empty, *lines[3:5]]))
    said = pe("predict", run, tmp_path / "new.csv")
    assert len(list(csv.DictReader(io.StringIO(said.out)))) == 5
    assert "new.csv: a row without a cell is left out (line 5)" in said.err


def test_a_row_with_other_cells_and_no_target_stays_an_error(pe: Pe, tmp_path):
    made = init(pe, tmp_path, f"{HEADER}{BODY}red,2,\n{BODY}")
    assert (made.code, "t.csv:62:7: error: column 'price': the target is missing" in made.err) == (3, True), made.err


def test_the_header_again_is_an_error_with_its_line(pe: Pe, tmp_path):
    made = init(pe, tmp_path, HEADER + BODY + HEADER + BODY)
    assert made.code == 3
    assert "t.csv:62:1: error: column 'item': the header stands here again" in made.err
    assert "data/*.csv" in made.err


@pytest.mark.parametrize("text", [
    pytest.param(HEADER + BODY, id="a plain table"),
    pytest.param(HEADER + BODY + "red,,1.5\n", id="a gap in the last row"),
    pytest.param(HEADER + "red,,1.5\n" + BODY, id="a gap in the first row"),
    pytest.param(HEADER + BODY + "Total eclipse,3.5,1.5\n" * 2, id="a text that begins like a sum, twice"),
])  # fmt: skip
def test_rows_that_stay(pe: Pe, tmp_path, text):
    made = init(pe, tmp_path, text)
    assert made.code == 0, made.err
    assert f"{text.count(chr(10)) - 1} rows; 'price'" in made.out


def test_texts_of_numbers_are_not_gathered(pe: Pe, tmp_path, monkeypatch):
    """Two million different numbers are as many texts, which take more memory than all columns of a table."""
    asked = []
    plain = PartsTable.codes
    monkeypatch.setattr(PartsTable, "codes", lambda table, name: (asked.append(name), plain(table, name))[1])
    rows = "".join(f"{x:.6f},{i % 5}.5,{'ab'[i % 2]},{2 * x:.6f}\n" for i, x in enumerate(RNG.normal(size=300)))
    made = init(pe, tmp_path, f"a,b,kind,price\n{rows}")
    assert made.code == 0, made.err
    assert "kind" in asked, "texts are asked for as such"
    assert "a" not in asked


def test_more_titles_than_lines(pe: Pe, tmp_path):
    init(pe, tmp_path, HEADER + BODY)
    said = pe("check", tmp_path / "c.yaml", "-o", "data.source.titles=99")
    assert (said.code, "t.csv has no line below its first 99" in said.err) == (3, True), said.err


@pytest.mark.parametrize(("head", "said"), [("<html><table>", "a web page"), ("@relation x\n", "an ARFF file")])
def test_files_that_are_no_tables(pe: Pe, tmp_path, head, said):
    made = init(pe, tmp_path, head + HEADER + BODY)
    assert (made.code, said in made.err) == (3, True), made.err


@pytest.mark.parametrize("last", ["Total,1234", "Source: office of statistics\nas of 2024-05-01"])
def test_rows_below_a_table_that_have_fewer_cells_are_an_error_that_says_how_to_cut_them(pe: Pe, tmp_path, last):
    rows = "".join(f"{i},{i * 7 % 5},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"n,x,y\n{rows}{last}\n")
    said = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "y")
    assert said.code == ExitCode.DATA
    assert "t.csv:62:1: error:" in said.err
    assert "a sum or a note below the table? keep what is above it: head -n 61 t.csv > table.csv" in said.err
