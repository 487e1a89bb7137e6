"""YOLO: a text file for each picture, with a line for each box: class, middle and size in parts of the picture."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import yaml

from pe_cli.data.annotations.things import KEYPOINTS, Found, Noted, Thing, around, content, number, wrong
from pe_cli.data.reader_context import Origin

#: Files beside the annotations, or in the folders above them, that have the names of classes; and how many folders above.
NAMES, ABOVE = ("classes.txt", "obj.names", "data.yaml", "dataset.yaml", "notes.json"), 3
#: Numbers behind a box that may be keypoints of two numbers, at least: boxes with corners of their own (OBB) have four; files that tell,
#: things in them at least, and what rounding may move a point by, in parts of the picture.
LEAST, LOOKED_AT, THINGS, NEAR = 6, 100, 8, 0.01
#: Bytes of a file with names of classes, at most.
LARGEST = 1 << 20


def read(path: Path, origin: Origin, names: Sequence[str]) -> Found:
    """Return the picture of a file: a line has a class and four numbers, or a class and the corners of a polygon.

    Behind the four numbers may be keypoints, which are counted.

    Args:
        path: of the file.
        origin: of the data, for messages.
        names: of the classes; their numbers when there are none.

    Raises:
        PeError: DATA; a line has another form, or a class has no name.
    """
    made = Noted(str(_beside(path)), str(path), parts=True)
    found, points = Found([made]), keypoints_beside(path.parent) or pairs_of(path.parent)
    for i, line in enumerate(content(path, origin).decode("utf-8", "replace").splitlines()):
        cells, where = line.split(), f"{path}, line {i + 1}"
        if not cells:
            continue
        is_form = len(cells) == 5 or (len(cells) >= 7 and len(cells) % 2 == 1)
        # Only a line of another form, or one that may have keypoints besides, is looked at number by number before.
        pose = len(cells) > 5 and _is_pose([_number(cell) for cell in cells[1:]], points)
        if not is_form and not pose:
            raise wrong(path, f"line {i + 1} has {len(cells)} numbers: it needs a class, the middle (x, y), width and height", origin)
        kind, *values = (number(cell, where, origin) for cell in cells)
        if not kind.is_integer() or kind < 0 or (names and kind >= len(names)):
            known = f"0 to {len(names) - 1}, as {len(names)} names say" if names else "whole numbers from 0 on"
            raise wrong(path, f"line {i + 1} is of class {cells[0]}, and classes are {known}", origin)
        if pose:
            found.leave_out(KEYPOINTS)
            values = values[:4]
        if len(values) == 4:
            x, y, width, height = values
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        else:
            box = around(zip(values[::2], values[1::2], strict=True))
        made.things.append(Thing(names[int(kind)] if names else str(int(kind)), box, where))
    return found


def _number(cell: str) -> float:
    """Return a number; -1 for a text that is none, which is told where it is read."""
    try:
        return float(cell)
    except ValueError:
        return -1.0


def _is_pose(values: Sequence[float], points: int) -> bool:
    """Return whether keypoints stand behind the four numbers of a box, and not the corners of a polygon.

    Args:
        values: of a line, behind its class.
        points: numbers of the keypoints of a thing, as `kpt_shape` says it; 0 where nothing says so. Then three numbers each, of which the
            last is 0, 1 or 2 (not there, hidden, seen), are keypoints.
    """
    rest = values[4:]
    if points:
        return len(rest) == points
    return len(rest) >= 3 and len(rest) % 3 == 0 and all(value in (0.0, 1.0, 2.0) for value in rest[2::3])


@functools.lru_cache(1024)
def pairs_of(folder: Path) -> int:
    """Return how many numbers the keypoints of a thing are where each has two and nothing says so; 0 where lines may be polygons.

    A polygon may lie in the box that its first corners would tell, but those of all things, with one number of corners each, do not.
    """
    things = 0
    counts = set()
    for path in sorted(folder.glob("*.txt"))[:LOOKED_AT]:
        if path.name in NAMES or path.stat().st_size > LARGEST:
            continue
        for line in path.read_text("utf-8", "replace").splitlines():
            values = [_number(cell) for cell in line.split()[1:]]
            if len(values) <= 4:
                continue
            rest = values[4:]
            counts.add(len(rest))
            things += 1
            pairs = list(zip(rest[::2], rest[1::2], strict=False))
            if len(counts) > 1 or len(rest) < LEAST or len(rest) % 2 or not _lie_inside(values[:4], pairs):
                return 0
    return counts.pop() if things >= THINGS else 0


def _lie_inside(box: Sequence[float], points: Sequence[tuple[float, float]]) -> bool:
    """Return whether points that are there, which 0 and 0 are not, lie in a box, and the box in its picture."""
    x, y, width, height = box
    there = [point for point in points if point != (0.0, 0.0)]
    inside = all(abs(px - x) <= width / 2 + NEAR and abs(py - y) <= height / 2 + NEAR for px, py in there)
    whole = width / 2 - NEAR <= x <= 1 - width / 2 + NEAR and height / 2 - NEAR <= y <= 1 - height / 2 + NEAR
    return bool(there) and inside and whole and min(width, height) > 0


@functools.lru_cache(1024)
def keypoints_beside(folder: Path) -> int:
    """Return how many numbers the keypoints of a thing are, as `kpt_shape` of a data.yaml above the annotations says; 0 where none does."""
    for above in (folder, *list(folder.absolute().parents)[:ABOVE]):
        for path in (above / name for name in NAMES if name.endswith((".yaml", ".yml"))):
            if path.is_file() and path.stat().st_size <= LARGEST:
                try:
                    shape = (yaml.safe_load(path.read_text("utf-8", "replace")) or {}).get("kpt_shape")
                except (yaml.YAMLError, ValueError, RecursionError, AttributeError):
                    continue  # that names cannot be read is said where they are wanted
                if isinstance(shape, list) and len(shape) == 2 and all(isinstance(size, int) and 0 < size < LARGEST for size in shape):
                    return int(shape[0] * shape[1])
    return 0


def _beside(path: Path) -> Path:
    """Return where the picture of a file lies, without its ending: in `images`, where the file lies in `labels`."""
    parts = list(path.with_suffix("").parts)
    at = next((i for i in range(len(parts) - 2, -1, -1) if parts[i].lower() == "labels"), None)
    return Path(*parts[:at], "images", *parts[at + 1 :]) if at is not None else Path(*parts)


def names_beside(folder: Path, origin: Origin) -> list[str]:
    """Return the names of classes that a file beside the annotations has; none where there is no such file.

    Raises:
        PeError: DATA; it has another form.
    """
    for above in (folder, *list(folder.absolute().parents)[:ABOVE]):
        for name in NAMES:
            path = above / name
            if path.is_file() and path.stat().st_size <= LARGEST:
                found = _lines(path) if path.suffix in (".txt", ".names") else _mapped(path, origin)
                if found:
                    return found
    return []


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]


def _mapped(path: Path, origin: Origin) -> list[str]:
    """Return the names of a data.yaml of Ultralytics, a list or a mapping of numbers; or of the notes.json that Label Studio writes."""
    try:
        value = yaml.safe_load(path.read_text("utf-8", "replace"))  # JSON is YAML
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = str(error).splitlines()[0]
        raise origin.error(f"{path} is to name the classes and cannot be read: {said}", "correct it, or name them: names: [...]") from None
    if isinstance(value, dict) and isinstance(value.get("categories"), list):
        return [str(one.get("name")) for one in value["categories"] if isinstance(one, dict)]
    names = value.get("names") if isinstance(value, dict) else None
    if isinstance(names, dict):
        numbers = {int(key): str(name) for key, name in names.items() if str(key).isdigit()}
        names = [numbers.get(i, str(i)) for i in range(max(numbers, default=-1) + 1)] if max(numbers, default=0) < LARGEST else None
    if not isinstance(names, list):
        return []
    return [str(name) for name in names]
