"""Annotations of five kinds say the same boxes, and what is wrong with them is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.annotations.things import KEYPOINTS
from pe_cli.data.array_dataset import is_table
from pe_cli.data.column import Context, discover
from pe_cli.data.raw_cells import Table
from pe_cli.data.registry import open_reader

PIL = pytest.importorskip("PIL.Image")

#: Pictures of 40 x 20 pixels (width x height), and their boxes in pixels: left, top, right, bottom.
TRUTH = {"a": [("cat", (4, 2, 20, 12)), ("dog", (10, 0, 40, 20))], "b": [("dog", (0, 5, 8, 15))], "c": []}
Truth = dict[str, list[tuple[str, tuple[float, float, float, float]]]]


def coco(folder: Path, truth: Truth) -> Path:
    images = [{"id": 7 + i, "file_name": f"{name}.png", "width": 40, "height": 20} for i, name in enumerate(truth)]
    boxes = [
        {"id": 1, "image_id": 7 + i, "category_id": {"cat": 3, "dog": 9}[label], "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]]}
        for i, things in enumerate(truth.values()) for label, box in things
    ]  # fmt: skip
    value = {"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog"}]}
    (folder / "instances.json").write_text(json.dumps(value))
    return folder / "instances.json"


def voc(folder: Path, truth: Truth) -> Path:
    (folder / "xml").mkdir()
    for name, things in truth.items():
        inside = "".join(
            f"<object><name>{label}</name><bndbox><xmin>{box[0] + 1}</xmin><ymin>{box[1] + 1}</ymin><xmax>{box[2]}</xmax>"
            f"<ymax>{box[3]}</ymax></bndbox></object>" for label, box in things
        )  # fmt: skip
        size = "<size><width>40</width><height>20</height><depth>3</depth></size>"
        (folder / f"xml/{name}.xml").write_text(f"<annotation><filename>{name}.png</filename>{size}{inside}</annotation>")
    return folder / "xml"


def yolo(folder: Path, truth: Truth) -> Path:
    (folder / "labels").mkdir()
    (folder / "data.yaml").write_text("train: images\nnames:\n  0: cat\n  1: dog\n")
    for name, things in truth.items():
        lines = [
            f"{['cat', 'dog'].index(label)} {(b[0] + b[2]) / 80} {(b[1] + b[3]) / 40} {(b[2] - b[0]) / 40} {(b[3] - b[1]) / 20}"
            for label, b in things
        ]  # fmt: skip
        if lines:
            (folder / f"labels/{name}.txt").write_text("\n".join(lines) + "\n")
    return folder / "labels"


def _percent(label: str, b: tuple[float, ...]) -> dict[str, Any]:
    return {"x": b[0] / 0.4, "y": b[1] / 0.2, "width": (b[2] - b[0]) / 0.4, "height": (b[3] - b[1]) / 0.2, "rotation": 0,
            "rectanglelabels": [label]}  # fmt: skip


def label_studio(folder: Path, truth: Truth) -> Path:
    tasks = [
        {"id": i, "data": {"image": f"/data/upload/1/0123abcd-{name}.png"}, "annotations": [{"was_cancelled": False, "result": [
            {"type": "rectanglelabels", "original_width": 40, "original_height": 20, "value": _percent(label, box)} for label, box in things
        ]}]} for i, (name, things) in enumerate(truth.items())
    ]  # fmt: skip
    (folder / "export.json").write_text(json.dumps(tasks))
    return folder / "export.json"


def label_studio_min(folder: Path, truth: Truth) -> Path:
    tasks = [
        {"image": f"/data/local-files/?d=x/y/{name}.png", "id": i, "annotation_id": i, "label": [_percent(*thing) for thing in things]}
        for i, (name, things) in enumerate(truth.items())
    ]  # fmt: skip
    (folder / "min.json").write_text(json.dumps(tasks))
    return folder / "min.json"


def cvat(folder: Path, truth: Truth) -> Path:
    def shape(label: str, b: tuple[float, ...]) -> str:
        if label == "cat":
            return f'<polygon label="cat" points="{b[0]},{b[1]};{b[2]},{b[1]};{b[2]},{b[3]}"/>'
        return f'<box label="{label}" xtl="{b[0]}" ytl="{b[1]}" xbr="{b[2]}" ybr="{b[3]}" occluded="0"/>'

    inside = "".join(
        f'<image id="{i}" name="sub/{name}.png" width="40" height="20">{"".join(shape(*thing) for thing in things)}</image>'
        for i, (name, things) in enumerate(truth.items())
    )
    (folder / "annotations.xml").write_text(f'<?xml version="1.0"?><annotations><version>1.1</version>{inside}</annotations>')
    return folder / "annotations.xml"


KINDS: list[Callable[[Path, Truth], Path]] = [coco, voc, yolo, label_studio, label_studio_min, cvat]


def made(folder: Path, kind: Callable[[Path, Truth], Path], truth: Truth = TRUTH, **options: object) -> Table:
    """Write pictures and annotations, and return the table of both."""
    (folder / "images/deep").mkdir(parents=True)
    for i, name in enumerate(("a", "b", "c")):
        PIL.new("RGB", (40, 20), (i, i, i)).save(folder / f"images/deep/{name}.png")
    path = kind(folder, truth)
    found = open_reader("annotations", {"files": path.name, "folder": "images", **options}, folder)
    assert is_table(found)
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_says_the_same_boxes(tmp_path, kind):
    table = made(tmp_path, kind)
    assert [table.cells("file").text(i) for i in range(len(table))] == ["deep/a.png", "deep/b.png", "deep/c.png"]
    for row, things in enumerate(TRUTH.values()):
        boxes = np.array(json.loads(table.cells("boxes").text(row))).reshape(-1, 4) * [40, 20, 40, 20]
        assert np.allclose(boxes, np.array([box for _, box in things]).reshape(-1, 4), atol=1e-4)
        assert json.loads(table.cells("classes").text(row)) == [label for label, _ in things]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_boxes_outside_are_errors_or_cut(tmp_path, kind):
    truth: Truth = {"a": [("dog", (30, 10, 50, 30)), ("cat", (45, 2, 60, 9))], "b": [("dog", (0, 0, 4, 4))], "c": []}
    with pytest.raises(PeError, match=r"leaves its picture deep/a\.png.* of 20 x 40.*1 more boxes are wrong") as told:
        made(tmp_path, kind, truth)
    assert told.value.code == ExitCode.DATA
    assert "outside: clip" in str(told.value.hint)
    (tmp_path / "cut").mkdir()
    table = made(tmp_path / "cut", kind, truth, outside="clip")
    assert np.allclose(json.loads(table.cells("boxes").text(0)), [[0.75, 0.5, 1, 1]])
    assert [(what.partition(",")[0], count) for what, count in table.counts.items()] == [
        ("boxes that leave their picture and are cut", 1), ("boxes outside of their picture", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("outside", ["error", "clip"])
def test_boxes_of_another_unit_are_an_error(tmp_path, outside):
    def pixels(folder: Path, truth: Truth) -> Path:
        (folder / "labels").mkdir()
        for name, things in truth.items():
            (folder / f"labels/{name}.txt").write_text("".join(f"0 {b[0]} {b[1]} {b[2]} {b[3]}\n" for _, b in things))
        return folder / "labels"

    with pytest.raises(PeError, match=r"a.txt, line 1.* leaves its picture.*; 3 of 3 boxes lie outside of their picture") as told:
        made(tmp_path, pixels, format="yolo", outside=outside)
    assert "YOLO counts in parts of the picture" in str(told.value.hint)
    assert "clip" not in str(told.value.hint)


def test_boxes_of_polygons_alone(tmp_path):
    def bare(folder: Path, truth: Truth) -> Path:
        path = coco(folder, truth)
        value = json.loads(path.read_text())
        for one in value["annotations"]:
            x, y, w, h = one.pop("bbox")
            one["segmentation"] = [[x, y, x + w, y], [x + w, y + h, x, y + h, x, y]]
        value["annotations"][0]["segmentation"] = {"counts": "x", "size": [20, 40]}
        path.write_text(json.dumps(value))
        return path

    table = made(tmp_path, bare)
    assert table.counts == {"annotations without a box or a polygon": 1}
    assert np.allclose(json.loads(table.cells("boxes").text(0)), [[0.25, 0, 1, 1]])
    assert np.allclose(json.loads(table.cells("boxes").text(1)), [[0, 0.25, 0.2, 0.75]])


def test_annotations_of_yolo_belong_to_the_picture_beside_them(tmp_path):
    for part, shade in (("train", 10), ("val", 200)):
        for folder in ("images", "labels"):
            (tmp_path / folder / part).mkdir(parents=True)
        PIL.new("RGB", (40, 20), (shade, 0, 0)).save(tmp_path / f"images/{part}/a.png")
        (tmp_path / f"labels/{part}/a.txt").write_text(f"0 0.5 0.5 0.{'2' if part == 'val' else '1'} 0.1\n")
    PIL.new("RGB", (40, 20)).save(tmp_path / "images/val/bare.png")
    table = open_reader("annotations", {"files": "labels", "folder": ".", "format": "yolo"}, tmp_path)
    assert is_table(table)
    rows = {table.cells("file").text(i): json.loads(table.cells("boxes").text(i)) for i in range(len(table))}
    assert rows == {
        "images/train/a.png": [[0.45, 0.45, 0.55, 0.55]], "images/val/a.png": [[0.4, 0.45, 0.6, 0.55]], "images/val/bare.png": [],
    }  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not yolo], ids=lambda kind: kind.__name__)
def test_pictures_that_are_not_there_are_errors_or_left_out(tmp_path, kind):
    truth: Truth = {"a": TRUTH["a"], "gone": TRUTH["b"], "b": []}
    with pytest.raises(PeError, match=r"is of the picture '.*gone.png.*', which is not in .*images") as told:
        made(tmp_path, kind, truth)
    assert "broken: skip" in str(told.value.hint)
    (tmp_path / "skip").mkdir()
    table = made(tmp_path / "skip", kind, truth, broken="skip")
    ((what, count),) = table.counts.items()
    assert (len(table), count) == (2, 1)
    assert what.startswith("annotations of pictures that are not there, the first: ")
    assert what.endswith("gone.png'")


def test_pictures_of_another_size(tmp_path):
    def small(folder: Path, truth: Truth) -> Path:
        PIL.new("L", (20, 10)).save(folder / "images/deep/b.png")
        return coco(folder, truth)

    with pytest.raises(PeError, match=r"says 20 x 40 \(height x width\), and .*b.png is 10 x 20"):
        made(tmp_path, small)


@pytest.mark.parametrize(("name", "text", "said"), [
    pytest.param("x.xml", '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;">]><annotation><filename>&c;</filename></annotation>',
                 "has a document type", id="entities"),
    pytest.param("x.xml", '<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "has a document type", id="another file"),
    pytest.param("x.xml", "<annotation>" + "<a>" * 100, "more than 64 deep", id="depth"),
    pytest.param("x.xml", "<annotation><object>", "is no XML", id="cut off"),
    pytest.param("x.xml", "<annotation><object><name>x</name><bndbox><xmin>one</xmin></bndbox></object></annotation>",
                 "'one' is no number", id="a word for a number"),
    pytest.param("x.json", '{"images": [], "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1]}], "categories": []}',
                 "of the image 1, which is not in images", id="no image"),
    pytest.param("x.json", '{"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "x"}], "annotations": '
                 '[{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1]}]}', "is no list of 4 numbers", id="three numbers"),
    pytest.param("x.json", '{"images": ' + "[" * 100_000, "is no JSON", id="JSON of many levels"),
    pytest.param("a.txt", "0 0.5 0.5 0.1\n", "no annotations that are read", id="four numbers in a line"),
    pytest.param("a.txt", "0 0.5 0.5 0.1 0.1\n0.5 0.5 0.5 0.1 0.1\n", "line 2 is of class 0.5", id="half a class"),
    pytest.param("x.json", '{"rows": []}', "no annotations that are read", id="another JSON"),
])  # fmt: skip
def test_what_strangers_write(tmp_path, name, text, said):
    PIL.new("L", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / name).write_text(text)
    with pytest.raises(PeError, match=said) as told:
        open_reader("annotations", {"files": name}, tmp_path)
    assert told.value.code == ExitCode.DATA


def columns(table: Table, **options: Any) -> list[np.ndarray]:
    """Return the samples of boxes and their classes."""
    found = []
    for name, kind, given in (("boxes", "boxes", {"over": "image"}), ("classes", "box_classes", {})):
        checked = discover()[kind].options.model_validate({**given, **options.get(name, {})})
        context = Context(table, name)
        state = discover()[kind].fit(checked, context, options.get("rows"))
        found.append(discover()[kind].encode(checked, state, context).take(np.arange(len(table)))[0])
    return found


def test_columns_are_filled_up(tmp_path):
    boxes, classes = columns(made(tmp_path, coco))
    assert boxes.shape == (3, 2, 4)
    assert boxes[0, 1].tolist() == [0.25, 0, 1, 1]
    assert not boxes[2].any()
    assert classes[:, :, 0].tolist() == [[1, 2], [2, 0], [0, 0]]


def test_more_boxes_than_there_may_be_and_new_names_are_errors(tmp_path):
    table = made(tmp_path, coco)
    with pytest.raises(PeError, match="2 boxes, and a picture has 1 at most") as told:
        columns(table, rows=np.array([1, 2]))
    assert "most: 2" in str(told.value.hint)
    with pytest.raises(PeError, match="'cat' is no class"):
        columns(table, rows=np.array([1, 2]), boxes={"most": 2}, classes={"most": 2})


@pytest.mark.parametrize(("points", "shape"), [
    pytest.param("0.4 0.3 2 0.5 0.4 1 0 0 0", "", id="three numbers each"),
    pytest.param("0.4 0.3 2 0.5 0.4 1", "kpt_shape: [2, 3]", id="as data.yaml says"),
    pytest.param("0.4 0.3 0.5 0.4 0.1 0.9", "kpt_shape: [3, 2]", id="two numbers each"),
])  # fmt: skip
def test_keypoints_of_yolo_are_no_polygons(tmp_path, points, shape):
    def posed(folder: Path, truth: Truth) -> Path:
        files = yolo(folder, truth)
        with (folder / "data.yaml").open("a") as out:
            out.write(f"{shape}\n")
        for file in files.glob("*.txt"):
            file.write_text("".join(f"{line} {points}\n" for line in file.read_text().splitlines()))
        return files

    plain, with_points = made(tmp_path / "plain", yolo), made(tmp_path / "posed", posed)
    for row in range(3):
        assert with_points.cells("boxes").text(row) == plain.cells("boxes").text(row)
    assert (plain.counts, with_points.counts) == ({}, {KEYPOINTS: 3})


def _things(folder: Path, seed: int, line: Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]) -> Table:
    """Return a table of 12 pictures with a thing each, whose lines have a class and what `line` makes of its middle and size."""
    rng = np.random.default_rng(seed)
    (folder / "labels").mkdir(parents=True)
    for i in range(12):
        size = rng.uniform(0.2, 0.6, 2)
        middle = rng.uniform(size / 2, 1 - size / 2)
        values = " ".join(f"{value:.5f}" for value in line(rng, middle, size))
        (folder / f"labels/{i}.txt").write_text(f"0 {values}\n")
        PIL.new("L", (8, 8)).save(folder / f"labels/{i}.png")
    return open_reader("annotations", {"files": "labels/*.txt"}, folder)


def test_keypoints_of_two_numbers_are_told_from_polygons_by_all_lines(tmp_path):
    """As Ultralytics writes poses without whether points are seen; nothing beside them says so."""
    def pose(rng, middle, size):
        points = middle + size * rng.uniform(-0.5, 0.5, (5, 2))
        points[rng.random(5) < 0.2] = 0  # not there
        return np.concatenate([middle, size, points.ravel()])

    for seed in range(5):
        table = _things(tmp_path / f"pose{seed}", seed, pose)
        assert table.counts == {KEYPOINTS: 12}
        first = json.loads(table.cells("boxes").text(0))[0]
        left, top, right, bottom = first
        assert 0.199 < right - left < 0.601
        assert 0.199 < bottom - top < 0.601


@pytest.mark.parametrize("corners", [4, 5, 12])
def test_polygons_stay_polygons(tmp_path, corners):
    def polygon(rng, middle, size):
        angles = 2 * np.pi * (np.arange(corners) / corners + rng.random())
        return (middle + size / 2 * np.stack([np.cos(angles), np.sin(angles)], 1)).ravel()

    for seed in range(20):
        assert _things(tmp_path / f"polygons{seed}", seed, polygon).counts == {}


def test_lines_of_neither_form(tmp_path):
    def odd(folder: Path, truth: Truth) -> Path:
        files = yolo(folder, truth)
        (files / "a.txt").write_text("0 0.5 0.5 0.2 0.2 0.4 0.3 0.7\n")
        return files

    with pytest.raises(PeError, match=r"line 1 has 8 numbers"):
        made(tmp_path / "odd", odd)


def test_keypoints_of_coco_are_counted(tmp_path):
    def posed(folder: Path, truth: Truth) -> Path:
        path = coco(folder, truth)
        value = json.loads(path.read_text())
        value["annotations"][0] |= {"keypoints": [5, 5, 2, 0, 0, 0], "num_keypoints": 1}
        value["annotations"][1] |= {"keypoints": [0, 0, 0], "num_keypoints": 0}
        path.write_text(json.dumps(value))
        return path

    assert made(tmp_path, posed).counts == {KEYPOINTS: 1}
