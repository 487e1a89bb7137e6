"""A table with a column of tags, from two commands to answers."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.cli.conftest import Pe


def test_tags_from_a_table_to_answers(pe: Pe, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    sets = [[name for name, value in (("sun", a), ("sea", b), ("ski", a - b)) if value > 0.4] for a, b in x]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "tags"], *([*row, ", ".join(tags)] for row, tags in zip(x.round(3), sets, strict=True))])
    config = tmp_path / "c.yaml"
    made = pe("init", config, "--from", tmp_path / "t.csv", "--target", "tags")
    assert made.code == 0, made.err
    assert "'tags' is taken for tags: 3 tags" in made.out
    trained = pe("train", config, "--quiet", "-o", "train.epochs=12", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    assert "eval/f1[ski]" in trained.out
    (run,) = (tmp_path / "runs").iterdir()
    said = pe("predict", run, tmp_path / "t.csv", "--out", tmp_path / "o.csv")
    assert said.code == 0, said.err
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["sea", "ski", "sun"]
    for row in rows:
        assert row["tags"] == ",".join(name for name in names if float(row[f"prob_{name}"]) >= 0.5)
    right = [set(row["tags"].split(",")) - {""} == set(tags) for row, tags in zip(rows, sets, strict=True)]
    assert np.mean(right) > 0.75, "most sets are right as a whole"


def test_positive_is_of_classes(pe: Pe, tmp_path):
    (tmp_path / "t.csv").write_text("a,tags\n" + "".join(f"{i},{'x|y' if i % 2 else 'y'}\n" for i in range(40)))
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "tags", "--columns", "tags=tags", "--positive", "x")
    assert made.code == 2
    assert "'tags' has tags, each with metrics of its own" in made.err


@pytest.mark.parametrize(("rare", "line"), [(8, "\n  decide: {f1: {precision: 0.5}}"), (3, "\n  # decide: f1")])
def test_a_rare_class_has_a_threshold_of_its_own(pe: Pe, tmp_path, rare, line):
    rng = np.random.default_rng(1)
    rows = "".join(f"{rng.normal():.3f},{'yes' if i % rare == 0 else 'no'}\n" for i in range(120))
    (tmp_path / "t.csv").write_text("a,fails\n" + rows)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "fails")
    assert made.code == 0, made.err
    assert line in (tmp_path / "c.yaml").read_text()
    assert ("the threshold of 'yes' is chosen after training" in made.out) == (rare == 8)
    checked = pe("check", tmp_path / "c.yaml", "-o", "train.decide=f1")
    assert checked.code == 0, checked.err


def test_a_rare_class_that_nothing_tells_raises_no_alarm(pe: Pe, tmp_path):
    rows = "".join(f"{'ab'[i // 7 % 2]},{'yes' if i % 7 == 0 else 'no'}\n" for i in range(420))
    (tmp_path / "t.csv").write_text("a,fails\n" + rows)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "fails")
    assert made.code == 0, made.err
    trained = pe("train", tmp_path / "c.yaml", "-o", "train.epochs=3", "-o", f"output.dir={tmp_path}/runs")
    assert "none has a precision of at least 0.5, and no row is taken for it" in trained.out + trained.err
    assert "(decide: f1)" in trained.out + trained.err, "what would find more is said"
    (run,) = (tmp_path / "runs").iterdir()
    assert pe("predict", run, tmp_path / "t.csv", "--out", tmp_path / "o.csv").code == 0
    with (tmp_path / "o.csv").open(newline="") as file:
        assert {row["fails"] for row in csv.DictReader(file)} == {"no"}
    measured = pe("eval", run, "-o", "train.decide=f1")
    assert measured.code == 0, measured.err
