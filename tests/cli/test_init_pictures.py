"""Tables with a column of paths: what pictures show becomes numbers and classes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe
from tests.rotation import on_its_day

PIL = pytest.importorskip("PIL.Image")


def discs(folder: Path, count: int, seed: int = 0) -> np.ndarray:
    """Write pictures with a disc, and a table with its radius in pixels and whether it is bright; return both: [count, 2]."""
    rng = np.random.default_rng(seed)
    (folder / "img").mkdir(parents=True)
    y, x = np.mgrid[:16, :16]
    truth = np.stack([rng.uniform(2, 7, count).round(2), rng.random(count) < 0.5], axis=1)
    with (folder / "t.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["photo", "place", "radius", "bright"])
        for i, (radius, bright) in enumerate(truth):
            picture = rng.normal(40, 8, (16, 16)) + np.where((x - 7.5) ** 2 + (y - 7.5) ** 2 < radius**2, 150 if bright else 70, 0)
            PIL.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"img/{i}.png")
            out.writerow([f"{i}.png", ["north", "south"][i % 2], radius, ["no", "yes"][int(bright)]])
    return truth


@on_its_day(1, of=2)
def test_numbers_and_classes_of_pictures(pe: Pe, tmp_path):
    discs(tmp_path / "a", 160)
    (tmp_path / "a/img/3.png").write_bytes(b"no picture")
    config = tmp_path / "a/c.yaml"
    made = pe("init", config, "--from", tmp_path / "a/t.csv", "--target", "radius,bright")
    assert made.code == 0, made.err
    assert "'photo': 160 pictures of 16 x 16 pixels (height x width), without colours, which are made 16 x 16" in made.out
    assert "pictures that cannot be read are left out, 1 of 160" in made.out
    trained = pe("train", config, "--quiet", "-o", "train.epochs=15", "-o", f"output.dir={tmp_path}/runs", "-o", "executor.devices=1")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    truth = discs(tmp_path / "b", 60, seed=1)
    said = pe("predict", run, tmp_path / "b/t.csv", "--out", tmp_path / "o.csv")
    assert said.code == 0, said.err
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    told = np.array([float(row["radius"]) for row in rows])
    assert np.corrcoef(told, truth[:, 0])[0, 1] > 0.8
    assert np.abs(told - truth[:, 0]).mean() < 1, "in pixels, of 2 to 7"
    assert np.mean([row["bright"] == "yes" for row in rows] == truth[:, 1]) > 0.9


def test_changes_of_pictures_stand_in_comments_where_they_may_change_a_number(pe: Pe, tmp_path):
    discs(tmp_path, 20)
    for target, line in (("radius", "\n  # augment:"), ("bright", "\n  augment:")):
        made = pe("init", tmp_path / "c.yaml", "--from", tmp_path, "--target", target, "--force")
        assert made.code == 0, made.err
        assert line in (tmp_path / "c.yaml").read_text()
        checked = pe("check", tmp_path / "c.yaml")
        assert checked.code == 0, checked.err


def test_pictures_that_are_not_there(pe: Pe, tmp_path):
    discs(tmp_path, 20)
    for file in (tmp_path / "img").iterdir():
        file.unlink()
    said = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "bright")
    assert said.code == 3
    assert "'photo' has paths of pictures, such as '0.png', '1.png', '2.png', and none of them is in" in said.err
    assert "--drop 'photo'" in said.err
    kept = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "bright", "--drop", "photo")
    assert kept.code == 0, kept.err


def test_a_folder_of_pictures_with_a_table_says_to_name_a_column(pe: Pe, tmp_path):
    discs(tmp_path, 20)
    said = pe("init", tmp_path / "c.yaml", "--from", tmp_path)
    assert said.code == 3
    assert "if t.csv says what they are, name a column of it: --target COLUMN" in said.err
