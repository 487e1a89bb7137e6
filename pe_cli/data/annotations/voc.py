"""Pascal VOC: an XML file for each picture."""

from __future__ import annotations

from pathlib import Path

from pe_cli.data.annotations.things import Found, Noted, Thing, number, wrong
from pe_cli.data.annotations.xml_tree import Element, read_xml
from pe_cli.data.reader_context import Origin


def read(path: Path, origin: Origin) -> Found:
    """Return the picture of a file.

    Raises:
        PeError: DATA; it has another form.

    Source:
        Everingham et al. 2010, "The Pascal visual object classes challenge", development kit: pixels are counted from 1, both ends belong.
    """
    tree = read_xml(path, origin)
    if tree.name != "annotation":
        raise wrong(path, f"no Pascal VOC file: it begins with <{tree.name}>, not with <annotation>", origin)
    name = tree.said("filename").replace("\\", "/") or f"{path.stem}.jpg"
    made = Noted(name, str(path), _size(tree))
    for i, one in enumerate(tree.each("object")):
        where = f"{path}, object {i + 1}"
        label, box = one.said("name"), one.find("bndbox")
        if not label or box is None:
            raise wrong(path, f"object {i + 1} has no name or no bndbox", origin)
        left, top, right, bottom = (number(box.said(side), where, origin) for side in ("xmin", "ymin", "xmax", "ymax"))
        made.things.append(Thing(label, (max(left - 1, min(left, 0.0)), max(top - 1, min(top, 0.0)), right, bottom), where))
    return Found([made])


def _size(tree: Element) -> tuple[int, int] | None:
    sides = tree.said("size", "height"), tree.said("size", "width")
    found = tuple(int(side) for side in sides if side.isascii() and side.isdigit())
    return (found[0], found[1]) if len(found) == 2 and all(found) else None
