"""CVAT for images: one XML file with all pictures and their shapes."""

from __future__ import annotations

from pathlib import Path

from pe_cli.data.annotations.things import Found, Noted, Thing, around, number, wrong
from pe_cli.data.annotations.xml_tree import Element, read_xml
from pe_cli.data.reader_context import Origin

#: Shapes with corners, around which a box is drawn; and elements of a picture that are no shapes.
_CORNERS, _OTHER = ("polygon", "polyline", "points"), ("tag",)


def read(path: Path, origin: Origin) -> Found:
    """Return the pictures of an export in the form "CVAT for images 1.1"; of polygons the boxes around them.

    Raises:
        PeError: DATA; it has another form.

    Source:
        docs.cvat.ai, "CVAT XML annotation format": xtl, ytl, xbr and ybr in pixels.
    """
    tree = read_xml(path, origin)
    if tree.name != "annotations":
        raise wrong(path, f"no export of CVAT: it begins with <{tree.name}>, not with <annotations>", origin)
    found = Found([])
    for i, image in enumerate(tree.each("image")):
        name, sides = image.values.get("name", ""), [image.values.get(key, "") for key in ("height", "width")]
        if not name or not all(side.isascii() and side.isdigit() for side in sides):
            raise wrong(path, f"image {i + 1} has no name, width or height", origin)
        made = Noted(name, f"{path}, image {i + 1}", (int(sides[0]), int(sides[1])))
        for j, shape in enumerate(image.inside):
            _add(made, shape, f"{path}, image {i + 1}, shape {j + 1}", found, origin)
        found.noted.append(made)
    if not found.noted and tree.find("track") is not None:
        raise origin.error(f"{path}: it has tracks of a video and no images", "in CVAT, export the task as CVAT for images 1.1")
    return found


def _add(made: Noted, shape: Element, where: str, found: Found, origin: Origin) -> None:
    label = shape.values.get("label", "")
    if shape.name == "box" and label:
        left, top, right, bottom = (number(shape.values.get(side), where, origin) for side in ("xtl", "ytl", "xbr", "ybr"))
        made.things.append(Thing(label, (left, top, right, bottom), where))
    elif shape.name in _CORNERS[:1] and label:
        pairs = [pair.split(",") for pair in shape.values.get("points", "").split(";")]
        if len(pairs) < 3 or any(len(pair) != 2 for pair in pairs):
            raise origin.error(f"{where}: points of a polygon are pairs of numbers", "export the annotations again")
        made.things.append(Thing(label, around((number(x, where, origin), number(y, where, origin)) for x, y in pairs), where))
    else:
        found.leave_out(f"shapes of the kind {shape.name}")
