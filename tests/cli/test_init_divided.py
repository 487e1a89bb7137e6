"""Folders that are divided into training and evaluation already: their parts stay what they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Pe
from tests.cli.test_init_boxes import things
from tests.cli.test_init_masks import scenes
from tests.rotation import on_its_day

PIL = pytest.importorskip("PIL.Image")


def classes(folder: Path, parts: dict[str, int]) -> None:
    """Write folders of dark and bright pictures for each part, so many of each class."""
    for part, count in parts.items():
        for name, shade in (("dark", 20), ("bright", 220)):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                PIL.new("L", (16, 16), shade + i % 16).save(folder / part / name / f"{i}.png")


def yolo(folder: Path, images: str, labels: str, parts: dict[str, int]) -> None:
    """Write pictures with one box for each part; the names are the same in all of them."""
    for part, count in parts.items():
        for kind in (images, labels):
            (folder / kind.format(part)).mkdir(parents=True)
        for i in range(count):
            PIL.new("L", (48, 48), i).save(folder / images.format(part) / f"{i}.png")
            (folder / labels.format(part) / f"{i}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (folder / "data.yaml").write_text("names: [thing]\n")


def coco(folder: Path, parts: dict[str, int]) -> None:
    """Write COCO's own folders: annotations of all parts in one, pictures in others; two have the same names."""
    (folder / "annotations").mkdir(parents=True)
    for part, count in parts.items():
        things(folder / "made", count)
        shutil.move(folder / "made/img", folder / part)
        shutil.move(folder / "made/instances.json", folder / f"annotations/instances_{part}.json")
        (folder / "made").rmdir()


def masks(folder: Path, pictures: str, drawn: str, parts: dict[str, int]) -> None:
    """Write pictures and masks for each part."""
    for part, count in parts.items():
        scenes(folder, count, names=(f"{pictures.format(part)}/{{}}.png", f"{drawn.format(part)}/{{}}.png"))


ALL = {"train": 12, "val": 5, "test": 4}


@pytest.mark.parametrize(("make", "said", "train", "evaluate"), [
    pytest.param(lambda at: classes(at, {"train": 6, "valid": 3, "test": 2}), "12 to train, 6 to evaluate, 4 to test",
                 'folder: "a/train"', 'folder: "a/valid"', id="classes"),
    pytest.param(lambda at: yolo(at, "{}/images", "{}/labels", ALL), "12 to train, 5 to evaluate, 4 to test",
                 'files: "a/train/labels"', 'files: "a/val/labels"', id="YOLO of Roboflow"),
    pytest.param(lambda at: yolo(at, "images/{}", "labels/{}", ALL), "12 to train, 5 to evaluate, 4 to test",
                 'folder: "a/images/train"', 'folder: "a/images/val"', id="YOLO of Ultralytics"),
    pytest.param(lambda at: coco(at, {"train2017": 12, "val2017": 5}), "12 to train, 5 to evaluate",
                 'folder: "a/train2017"', 'files: "a/annotations/instances_val2017.json"', id="COCO"),
    pytest.param(lambda at: masks(at, "{}/images", "{}/masks", ALL), "12 to train, 5 to evaluate, 4 to test",
                 'masks: "a/train/masks"', 'masks: "a/val/masks"', id="masks in each part"),
    pytest.param(lambda at: masks(at, "images/{}", "masks/{}", ALL), "12 to train, 5 to evaluate, 4 to test",
                 'masks: "a/masks/train"', 'masks: "a/masks/val"', id="parts of pictures and masks"),
])  # fmt: skip
def test_pictures(pe: Pe, tmp_path, make, said, train, evaluate):
    make(tmp_path / "a")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert f"divided as folders and files are called: {said}" in made.out
    lines = (tmp_path / "c.yaml").read_text().splitlines()
    assert train in next(line for line in lines if line.startswith("  train: "))
    assert evaluate in next(line for line in lines if line.startswith("  eval: "))
    assert not any(line.startswith("  split:") for line in lines)
    checked = pe("check", tmp_path / "c.yaml")
    assert checked.code == 0, checked.err


def test_pictures_of_the_same_names_are_no_repeated_rows(pe: Pe, tmp_path):
    classes(tmp_path / "a", {"train": 6})
    for name in ("dark", "bright"):
        (tmp_path / f"a/val/{name}").mkdir(parents=True)
        for i in range(4):
            PIL.new("L", (16, 16), (60 if name == "dark" else 150) + i).save(tmp_path / f"a/val/{name}/{i}.png")
    assert pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a").code == 0
    told = pe("check", tmp_path / "c.yaml")
    assert "training row, too" not in told.out + told.err
    assert "training rows, too" not in told.out + told.err
    shutil.copy(tmp_path / "a/train/dark/3.png", tmp_path / "a/val/dark/other.png")
    told = pe("check", tmp_path / "c.yaml")
    assert "1 of 9 rows of data.eval (11.1%) is a training row, too" in told.out + told.err


def test_a_folder_that_has_a_test_alone_draws_its_evaluation(pe: Pe, tmp_path):
    classes(tmp_path / "a", {"train": 10, "test": 3})
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "20 to train, 6 to test; those to evaluate with are drawn from those to train" in made.out
    written = (tmp_path / "c.yaml").read_text()
    assert "split: {eval: 0.2, stratify: label, seed: 1}" in written
    assert pe("check", tmp_path / "c.yaml").code == 0


def test_a_test_without_classes_is_left_out(pe: Pe, tmp_path):
    classes(tmp_path / "a", {"train": 10})
    (tmp_path / "a/test").mkdir()
    PIL.new("L", (16, 16)).save(tmp_path / "a/test/1.png")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "20 to train, test is left out, it has no label" in made.out


def test_classes_that_are_called_like_parts_stay_classes(pe: Pe, tmp_path):
    for name, shade in (("train", 10), ("plane", 90), ("car", 200)):
        (tmp_path / "a" / name).mkdir(parents=True)
        for i in range(5):
            PIL.new("L", (16, 16), shade + i).save(tmp_path / f"a/{name}/{i}.png")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "classes: car, plane, train" in made.out


def test_an_evaluation_with_more_boxes_than_the_training(pe: Pe, tmp_path):
    coco(tmp_path / "a", {"train": 12, "val": 5})
    file = tmp_path / "a/annotations/instances_val.json"
    value = json.loads(file.read_text())
    value["annotations"] += [{"image_id": 0, "category_id": 0, "bbox": [i, 5, 6, 6]} for i in range(9)]
    value["annotations"].append({"image_id": 0, "category_id": 0, "bbox": [90, 90, 5, 5]})
    file.write_text(json.dumps(value))
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "most: 1" in (tmp_path / "c.yaml").read_text()
    assert "outside: clip" in (tmp_path / "c.yaml").read_text()
    checked = pe("check", tmp_path / "c.yaml")
    assert checked.code == 0, checked.err


def test_texts_tables_and_sentences(pe: Pe, tmp_path):
    for part, count in (("train", 30), ("test", 9)):
        for label in ("pos", "neg"):
            (tmp_path / f"texts/{part}/{label}").mkdir(parents=True)
            for i in range(count):
                (tmp_path / f"texts/{part}/{label}/{i}.txt").write_text(f"this is a {label} text, number {i}")
    for part, count in (("train", 60), ("dev", 20)):
        rows = [f"{i},{'ja' if i % 3 else 'nein'}" for i in range(count)]
        if part == "train":
            (tmp_path / "tables").mkdir()
            (tmp_path / "words").mkdir()
        (tmp_path / f"tables/{part}.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
        (tmp_path / f"words/{part}.conll").write_text("\n\n".join(f"Anna B-PER\ngeht O\n{i} O" for i in range(count)) + "\n")
    (tmp_path / "tables/test.csv").write_text("x\n1\n2\n")
    said = {"texts": "60 to train, 18 to test", "tables": "60 to train, 20 to evaluate, test is left out, it has no y",
            "words": "60 to train, 20 to evaluate"}  # fmt: skip
    for name, told in said.items():
        target = ("--target", "y") if name == "tables" else ()
        made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / name, *target, "--force")
        assert made.code == 0, made.err
        assert told in made.out
        checked = pe("check", tmp_path / "c.yaml")
        assert checked.code == 0, checked.err


@on_its_day(1, of=3)
def test_the_part_to_evaluate_is_evaluated(pe: Pe, tmp_path):
    classes(tmp_path / "a", {"train": 16, "val": 7})
    assert pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a").code == 0
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=2", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    told = pe("eval", run)
    assert told.code == 0, told.err
    assert "14 samples" in told.out
