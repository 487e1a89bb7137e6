"""Ids of things that have several rows each: said, asked for, and kept together where rows to come are of other things."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.table import starter
from tests.cli.conftest import Pe


def visits(folder: Path, name: str = "patient_id", count: int = 60, each: int = 5) -> Path:
    """Write rows of patients, who differ by what no other column tells."""
    rng = np.random.default_rng(3)
    own = rng.normal(size=count)
    rows = [[i, round(x, 3), "yes" if own[i] + 0.3 * x > 0 else "no"] for i in range(count) for x in rng.normal(size=each).tolist()]
    rng.shuffle(rows)
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[name, "x", "ill"], *rows])
    return folder / "t.csv"


def init(pe: Pe, folder: Path, *options: str):
    return pe("init", folder / "c.yaml", "--from", folder / "t.csv", "--target", "ill", "--force", *options)


def test_an_id_is_learned_and_said(pe: Pe, tmp_path):
    visits(tmp_path)
    made = init(pe, tmp_path)
    assert made.code == 0, made.err
    assert "tells which rows are of one thing: 60 values, 5 rows of each; it is learned, and evaluation rows have values" in made.out
    assert "where rows to come have others: --columns 'patient_id=group'" in made.out
    assert "categories: patient_id" in made.out


def test_a_group_is_not_learned_and_its_rows_stay_together(pe: Pe, tmp_path):
    visits(tmp_path)
    made = init(pe, tmp_path, "--columns", "patient_id=group")
    assert made.code == 0, made.err
    assert "group: all rows of one 'patient_id' are in one part" in made.out
    assert "left out: 'patient_id': a group: not learned" in made.out
    text = (tmp_path / "c.yaml").read_text()
    assert "split: {eval: 0.2, group: patient_id, seed: 1}" in text
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=2", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    said = pe("predict", run, "--split", "eval", "--id", "patient_id", "--out", tmp_path / "o.csv")
    assert said.code == 0, said.err
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = [row["patient_id"] for row in csv.DictReader(file)]
    assert {rows.count(one) for one in rows} == {5}, "all visits of a patient evaluate, or none"


@pytest.mark.parametrize(("name", "count", "each"), [
    pytest.param("patient_id", 12, 25, id="few values are classes"),
    pytest.param("shape", 60, 5, id="a name that is of no key"),
    pytest.param("patient_id", 30, 60, id="many rows of each"),
])  # fmt: skip
def test_other_columns_are_no_groups(pe: Pe, tmp_path, name, count, each):
    visits(tmp_path, name, count, each)
    assert "rows of one thing" not in init(pe, tmp_path).out


@pytest.mark.parametrize(("options", "message"), [
    pytest.param(["--columns", "patient_id=group", "--columns", "x=group"], "'patient_id' and 'x' are groups", id="two groups"),
    pytest.param(["--columns", "patient_id={type: group, min_count: 2}"], "a group has no options", id="options"),
    pytest.param(["--columns", "ill=group"], "a target is predicted as classes", id="the target"),
])  # fmt: skip
def test_what_is_no_group_is_refused(pe: Pe, tmp_path, options, message):
    visits(tmp_path)
    made = init(pe, tmp_path, *options)
    assert (made.code, message in made.err) == (2, True), made.err


def test_series_have_no_groups(pe: Pe, tmp_path):
    with (tmp_path / "t.csv").open("w", newline="") as file:
        rows = [[f"2024-{1 + i // 28:02}-{1 + i % 28:02}", key, i % 7 + j] for i in range(28 * 6) for j, key in enumerate("ab")]
        csv.writer(file).writerows([["day", "shop", "ill"], *rows])
    made = init(pe, tmp_path, "--columns", "shop=group")
    assert (made.code, "series are divided by time" in made.err) == (2, True), made.err


@pytest.mark.parametrize("answer", [0, 1])
def test_on_a_terminal_it_is_asked_for(tmp_path, answer):
    visits(tmp_path)
    asked = []

    def ask(question, answers):
        asked.append((question, list(answers)))
        return answer

    made = starter(Settings(tmp_path / "t.csv", "ill", tmp_path / "c.yaml", ask=ask))
    assert "Of which values will the rows be that are to be predicted?" in asked[0][0]
    assert ("group: patient_id" in made.config) == (answer == 1)
    assert not any("--columns" in note for note in made.notes), "what was answered is not said again"
