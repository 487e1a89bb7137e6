"""Annotated pictures, from pe init to predicted boxes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe
from tests.rotation import on_its_day

PIL = pytest.importorskip("PIL.Image")


def things(folder: Path, count: int, seed: int = 0) -> None:
    """Write pictures of 48 x 48 pixels with bright bars and dark discs, and a COCO file with their boxes."""
    rng = np.random.default_rng(seed)
    (folder / "img").mkdir(parents=True)
    y, x = np.mgrid[:48, :48]
    images, boxes = [], []
    for i in range(count):
        picture = rng.normal(110, 8, (48, 48))
        for k in range(rng.integers(1, 3)):
            r, cx, cy, bar = rng.uniform(5, 8), rng.uniform(9, 15) + 24 * k, rng.uniform(9, 39), bool(rng.integers(2))
            tall = r / 2 if bar else r
            inside = (abs(x - cx) < r) & (abs(y - cy) < tall) if bar else (x - cx) ** 2 + (y - cy) ** 2 < r * r
            picture[inside] = rng.normal(210 if bar else 20, 8, inside.sum())
            boxes.append({"image_id": i, "category_id": int(bar), "bbox": [cx - r, cy - tall, 2 * r, 2 * tall]})
        PIL.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"img/{i}.png")
        images.append({"id": i, "file_name": f"{i}.png", "width": 48, "height": 48})
    categories = [{"id": 0, "name": "disc"}, {"id": 1, "name": "bar"}]
    (folder / "instances.json").write_text(json.dumps({"images": images, "annotations": boxes, "categories": categories}))


def test_a_config_for_boxes(pe: Pe, tmp_path):
    things(tmp_path / "a", 12)
    for source in ("a", "a/instances.json"):
        made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / source, "--force")
        assert made.code == 0, made.err
        assert "COCO: 12 pictures of 48 x 48 pixels (height x width), without colours, with" in made.out
        assert "2 classes: bar, disc" in made.out
        checked = pe("check", tmp_path / "c.yaml")
        assert checked.code == 0, checked.err
    (tmp_path / "a/img/3.png").unlink()
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a", "--force")
    assert made.code == 0, made.err
    assert "annotations of pictures that are not there: 1, the first: " in made.out
    assert "broken: skip" in (tmp_path / "c.yaml").read_text()


def test_annotations_in_a_folder_beside_their_pictures(pe: Pe, tmp_path):
    things(tmp_path / "a", 12)
    (tmp_path / "a/annotations").mkdir()
    (tmp_path / "a/instances.json").rename(tmp_path / "a/annotations/instances_default.json")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a/annotations/instances_default.json")
    assert made.code == 0, made.err
    assert "COCO: 12 pictures" in made.out
    assert "folder: a," in (tmp_path / "c.yaml").read_text()
    assert pe("check", tmp_path / "c.yaml").code == 0
    alone = tmp_path / "b/alone"
    alone.mkdir(parents=True)
    (tmp_path / "a/annotations/instances_default.json").rename(alone / "instances.json")
    made = pe("init", tmp_path / "d.yaml", "--from", alone / "instances.json")
    assert (made.code, "name the folder that holds both: --from FOLDER" in made.err) == (3, True), made.err


def test_lists_of_parts_of_pascal_voc_are_said(pe: Pe, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (tmp_path / "v" / name).mkdir(parents=True)
    for i in range(12):
        PIL.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)).save(tmp_path / f"v/JPEGImages/{i}.jpg")
        box = "<bndbox><xmin>5</xmin><ymin>6</ymin><xmax>30</xmax><ymax>35</ymax></bndbox>"
        size = "<size><width>50</width><height>40</height><depth>3</depth></size>"
        text = f"<annotation><filename>{i}.jpg</filename>{size}<object><name>car</name>{box}</object></annotation>"
        (tmp_path / f"v/Annotations/{i}.xml").write_text(text)
    (tmp_path / "v/ImageSets/Main/train.txt").write_text("0\n1\n")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "v")
    assert made.code == 0, made.err
    assert "lists of parts are not read (ImageSets/Main/train.txt): put the pictures of each part" in made.out


@on_its_day(2, 4)
def test_an_ssd_finds_bars_and_discs(pe: Pe, tmp_path):
    things(tmp_path / "a", 120)
    assert pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a").code == 0
    rate = ("-o", "train.epochs=25", "-o", "train.optimizer.learning_rate.total_steps=25 epochs")
    short = (*rate, "-o", "executor.devices=1", "-o", f"output.dir={tmp_path}/runs")
    trained = pe("train", tmp_path / "c.yaml", "--quiet", *short)
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    things(tmp_path / "b", 20, seed=1)
    told = pe("eval", run, tmp_path / "b/instances.json")
    assert told.code == 0, told.err
    assert float(told.out.partition("map")[2].split()[0]) > 0.5
    said = pe("predict", run, tmp_path / "b/img", "--out", tmp_path / "o.jsonl")
    assert said.code == 0, said.err
    first = json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])
    assert first["file"] == "0.png"
    assert first["boxes"][0]["class"] in ("bar", "disc")
