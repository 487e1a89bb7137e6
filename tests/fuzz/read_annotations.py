"""What reads annotations of pictures, tagged words, and masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from pe_cli.data import open_reader
from pe_cli.data.column import Context, discover
from tests.fuzz.targets import refused, target

#: Bytes that a file of a few kilobytes may be read as.
ROOM = 1 << 28


@target
def annotations(data: bytes, folder: Path) -> None:
    """A file of annotations beside a picture, and the columns that are made of it."""
    if not (folder / "a.png").exists():
        Image.new("L", (40, 20)).save(folder / "a.png")
    head = data.lstrip()[:1]
    name = "f.xml" if head == b"<" else "f.json" if head in (b"{", b"[") else "a.txt"
    for path in ("f.xml", "f.json", "a.txt"):
        (folder / path).unlink(missing_ok=True)
    (folder / name).write_bytes(data)
    with refused(folder, ROOM):
        table = open_reader("annotations", {"files": name, "broken": "skip", "outside": "clip"}, folder)
        for column, options in (("boxes", {"over": "image"}), ("classes", {})):
            kind = discover()["boxes" if column == "boxes" else "box_classes"]
            checked, context = kind.options.model_validate(options), Context(table, column)
            found = kind.encode(checked, kind.fit(checked, context, None), context).take(np.arange(len(table)))[0]
            assert len(found) == len(table)
            assert column != "boxes" or ((found >= 0) & (found <= 1)).all()


@target
def tagged_words(data: bytes, folder: Path) -> None:
    """A file of tagged words."""
    (folder / "f").write_bytes(data)
    with refused(folder, ROOM):
        table = open_reader("tagged", {"files": "f"}, folder)
        for row in range(len(table)):
            assert len(table.cells("words").text(row).split()) == len(table.cells("tags").text(row).split())


def annotated() -> list[str]:
    """Return a file of annotations of every kind."""
    coco = {
        "images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 20}], "categories": [{"id": 2, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 2.5, 10, 8], "iscrowd": 0}],
    }  # fmt: skip
    turned = {"x": 10, "y": 20, "width": 30, "height": 5, "rotation": 30, "rectanglelabels": ["cat"]}
    result = {"type": "rectanglelabels", "original_width": 40, "original_height": 20, "value": turned}
    task = {"data": {"image": "/data/upload/0123abcd-a.png"}, "annotations": [{"was_cancelled": False, "result": [result]}]}
    box = '<box label="cat" xtl="1" ytl="2" xbr="10" ybr="8"/><polygon label="dog" points="1,1;5,1;5,5"/>'
    voc = "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
    return [
        json.dumps(coco), json.dumps([task]), "0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.5 0.1 0.5 0.5\n",
        f'<annotations><image id="0" name="a.png" width="40" height="20">{box}</image></annotations>',
        f"<annotation><filename>a.png</filename><size><width>40</width><height>20</height></size>{voc}</annotation>",
    ]  # fmt: skip


def tagged() -> list[str]:
    """Return files of tagged words."""
    return [
        "-DOCSTART- -X- O\n\nAnna NNP B-PER\nsleeps VBZ O\n\nOslo NNP B-LOC\n", '{"text": "Anna sleeps", "label": [[0, 4, "PER"]]}\n',
        "1\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_\n",
    ]  # fmt: skip
