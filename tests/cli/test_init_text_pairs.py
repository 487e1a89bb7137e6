"""Two columns of texts: what they share is compared."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tests.cli.conftest import Pe
from tests.rotation import on_its_day

WORDS = [first + rest for first in "bdfgklmn" for rest in ("ola", "ira", "eno", "umi", "aka", "esti", "orn", "ilt")]


def pairs(path: Path, rows: int, other: list[str] | None = None) -> None:
    """Write pairs of which every second has most words in common; the second text is of other words where these are given."""
    rng = np.random.default_rng(rows)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["first", "second", "same"])
        for i in range(rows):
            one = rng.choice(WORDS, 5, replace=False)
            two = np.append(one[:4], rng.choice(WORDS)) if i % 2 else rng.choice(other or WORDS, 5, replace=False)
            out.writerow([" ".join(one), " ".join(rng.permutation(two)), "yes" if i % 2 else "no"])


def test_texts_that_share_words_have_one_vocabulary(pe: Pe, tmp_path):
    pairs(tmp_path / "t.csv", 200)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "same")
    assert made.code == 0, made.err
    assert "'first' and 'second' share words, and are compared" in made.out
    assert (tmp_path / "c.yaml").read_text().count("vocabulary: [first, second]") == 2
    assert "mean_gap" in (tmp_path / "c_model.yaml").read_text()
    checked = pe("check", tmp_path / "c.yaml")
    assert checked.code == 0, checked.err
    apart = pe("init", tmp_path / "d.yaml", "--from", tmp_path / "t.csv", "--target", "same", "--columns", "first=text")
    assert "are compared" not in apart.out, "the user has said what one of them is"
    wrong = pe("check", tmp_path / "c.yaml", "-o", "data.columns.first.vocabulary=[secnd]")
    assert wrong.code == 3
    assert "the data has no column 'secnd'" in wrong.err


@on_its_day(0, of=4)
def test_pairs_are_told_apart_by_what_they_share(pe: Pe, tmp_path):
    pairs(tmp_path / "t.csv", 800)
    assert pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "same").code == 0
    short = ("-o", "train.epochs=12", "-o", f"output.dir={tmp_path}/runs", "-o", "executor.devices=1")
    trained = pe("train", tmp_path / "c.yaml", "--quiet", *short)
    assert trained.code == 0, trained.err
    assert float(trained.out.split("eval/acc ")[1].split()[0]) > 0.75
