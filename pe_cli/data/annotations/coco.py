"""COCO: one JSON file with images, categories, and annotations that name both by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pe_cli.data.annotations.things import KEYPOINTS, Found, Noted, Thing, around, json_of, number, numbers, wrong
from pe_cli.data.reader_context import Origin


def read(path: Path, origin: Origin) -> Found:
    """Return the pictures of a file; crowds are left out.

    Raises:
        PeError: DATA; it has another form, or an annotation names an image or a category that is not there.

    Source:
        cocodataset.org, "Data format": bbox is [x, y, width, height] in pixels, from 0.
    """
    value = json_of(path, origin)
    if not isinstance(value, dict) or not all(isinstance(value.get(key), list) for key in ("images", "annotations", "categories")):
        raise wrong(path, "no COCO file: it needs the lists images, annotations and categories", origin)
    found = Found([])
    names = {_of(one, "id", "categories", path, origin): str(_of(one, "name", "categories", path, origin)) for one in value["categories"]}
    pictures: dict[Any, Noted] = {}
    for i, one in enumerate(value["images"]):
        name, key = _of(one, "file_name", "images", path, origin), _of(one, "id", "images", path, origin)
        if key in pictures:
            raise wrong(path, f"images: two have the id {key}", origin)
        size = (one.get("height"), one.get("width"))
        sized = all(isinstance(side, int) and side > 0 for side in size)
        pictures[key] = Noted(str(name), f"{path}, image {i + 1}", size if sized else None)
    for i, one in enumerate(value["annotations"]):
        where = f"{path}, annotation {i + 1}"
        image, category = (_of(one, key, "annotations", path, origin) for key in ("image_id", "category_id"))
        if image not in pictures:
            raise wrong(path, f"annotation {i + 1} is of the image {image}, which is not in images", origin)
        if category not in names:
            raise wrong(path, f"annotation {i + 1} is of the category {category}, which is not in categories", origin)
        if one.get("iscrowd"):
            found.leave_out("crowds")
            continue
        box = _box(one, where, origin)
        if box is None:
            found.leave_out("annotations without a box or a polygon")
            continue
        if one.get("num_keypoints", one.get("keypoints")):
            found.leave_out(KEYPOINTS)
        pictures[image].things.append(Thing(names[category], box, where))
    found.noted = list(pictures.values())
    return found


def _box(one: dict[str, Any], where: str, origin: Origin) -> tuple[float, float, float, float] | None:
    """Return the box of an annotation, or that around its polygons; None where it has neither."""
    if one.get("bbox"):
        x, y, width, height = numbers(one["bbox"], 4, where, origin)
        return x, y, x + width, y + height
    polygons = one.get("segmentation")
    listed = [polygon for polygon in polygons if isinstance(polygon, list)] if isinstance(polygons, list) else []
    sides = [number(value, where, origin) for polygon in listed for value in polygon[: len(polygon) // 2 * 2]]
    return around(zip(sides[::2], sides[1::2], strict=True)) if sides else None


def _of(one: Any, key: str, part: str, path: Path, origin: Origin) -> Any:
    if not isinstance(one, dict) or not isinstance(one.get(key), str | int):
        raise wrong(path, f"{part}: an entry without {key}", origin)
    return one[key]
