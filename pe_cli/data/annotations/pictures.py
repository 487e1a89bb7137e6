"""Finds the pictures that annotations name, and puts boxes into parts of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.annotations.things import Noted, Thing
from pe_cli.data.pictures.decode import Header, header, stamp
from pe_cli.data.pictures.decode_threads import in_parts
from pe_cli.data.pictures.picture_checks import Unreadable
from pe_cli.data.reader_context import Origin

Box = tuple[float, float, float, float]
#: What Label Studio puts before the name of a file that was uploaded.
_UPLOADED = re.compile(r"[0-9a-f]{8}-")
#: What is told of boxes that are not in their picture.
CUT, OUTSIDE, SIZELESS = "boxes that leave their picture and are cut", "boxes outside of their picture", "boxes without a size"
#: Share of a side that a box may lie outside by rounding; and share of its area inside of the picture below which it hardly is.
SLACK, NEARLY = 1e-3, 0.1


@dataclass
class Placed:
    """A picture that is there, with its boxes.

    Args:
        path: relative to the folder of pictures.
        boxes: in parts of the picture.
        labels: of the boxes.
    """

    path: str
    boxes: list[Box] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


class Index:
    """The pictures of a folder by their paths, names and names without ending.

    Args:
        paths: relative to the folder.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = list(paths)
        self._found: dict[str, str | None] = {}
        for path in self.paths:
            name = path.rsplit("/", 1)[-1]
            for key in dict.fromkeys((path, name, os.path.splitext(path)[0], os.path.splitext(name)[0])):  # noqa: PTH122 - a path of many
                # a name that several pictures have names none of them
                self._found[key] = path if self._found.get(key, path) == path or key == path else None

    def find(self, named: str) -> str | None:
        """Return the picture that an annotation names, by its path, by the end of that, or by its name; None where none is."""
        named = named.replace("\\", "/").split("?", 1)[0]
        parts = [part for part in named.split("/") if part not in ("", ".")]
        tries = ["/".join(parts[i:]) for i in range(len(parts))]
        last = parts[-1] if parts else ""
        tries += [_UPLOADED.sub("", last, count=1)] if _UPLOADED.match(last) else []
        tries += [os.path.splitext(last)[0]]  # noqa: PTH122 - a path of many
        return next((found for one in tries if (found := self._found.get(one)) is not None), None)


def sizes_of(folder: Path, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return height and width of pictures, of those that can be read."""
    found: list[tuple[int, int] | None] = [None] * len(paths)
    real = os.path.realpath(folder)

    def look(start: int, end: int) -> None:
        for i in range(start, end):
            path = os.path.join(real, paths[i])  # noqa: PTH118 - the key of what is remembered
            try:
                seen = header(path, "rgb", stamp(path))
            except Unreadable:
                continue
            found[i] = (seen.height, seen.width) if isinstance(seen, Header) else None

    in_parts(look, len(paths))
    return {path: size for path, size in zip(paths, found, strict=True) if size is not None}


class Placer:
    """Puts annotations over their pictures.

    Args:
        folder: of the pictures.
        index: of them.
        missing: whether a picture that is not there is an error, or counted.
        outside: whether a box that leaves its picture is an error, or cut.
        origin: of the data, for messages.

    Attributes:
        counts: what was left out or cut, and the first one of it -> how often.
    """

    def __init__(self, folder: Path, index: Index, missing: str, outside: str, origin: Origin) -> None:
        self._folder, self._index, self._missing, self._outside, self._origin = folder, index, missing, outside, origin
        self.counts: dict[str, int] = {}

    def place(self, noted: Sequence[Noted]) -> list[Placed]:
        """Return pictures in the order of their paths; several annotations of one are put together.

        Raises:
            PeError: DATA; a picture is not there or has another size, or a box lies outside; with the number of all.
        """
        named = [(one, self._index.find(one.picture)) for one in noted]
        sizes = sizes_of(self._folder, sorted({path for _, path in named if path is not None}))
        gone = [one for one, path in named if path is None or path not in sizes]
        if gone:
            self._gone(gone, {id(one): path for one, path in named})
        found: dict[str, Placed] = {}
        wrong: list[tuple[str, str, bool]] = []
        for one, path in named:
            if path is not None and path in sizes:
                self._check_size(one, path, sizes[path])
                self._add(found.setdefault(path, Placed(path)), one, sizes[path], wrong)
        boxes = sum(len(one.things) for one, path in named if path in sizes)
        self._tell(wrong, boxes)
        return [found[path] for path in sorted(found)]

    def _tell(self, wrong: Sequence[tuple[str, str, bool]], boxes: int) -> None:
        """Count boxes that are not in their picture.

        Raises:
            PeError: DATA; that is an error, or most boxes are not.
        """
        far = [said for _, said, is_far in wrong if is_far]
        if 2 * len(far) > boxes:
            unit = "YOLO counts in parts of the picture from 0 to 1, COCO, VOC and CVAT in pixels, Label Studio in percent"
            many = f"{len(far):,} of {boxes:,} boxes lie outside of their picture, or nearly"
            raise self._origin.error(f"{far[0]}; {many}", f"export them again: {unit}")
        if wrong and self._outside == "error":
            more = f"; {len(wrong) - 1:,} more boxes are wrong" if len(wrong) > 1 else ""
            raise self._origin.error(f"{wrong[0][1]}{more}", "correct them, or set outside: clip to cut boxes at the borders")
        for kind in (CUT, OUTSIDE, SIZELESS):
            told = [said for what, said, _ in wrong if what == kind]
            if told:
                self.counts[f"{kind}, the first: {told[0]}"] = len(told)

    def _gone(self, gone: Sequence[Noted], paths: dict[int, str | None]) -> None:
        if self._missing == "skip":
            self.counts[f"annotations of pictures that are not there, the first: {gone[0].where}, '{gone[0].picture}'"] = len(gone)
            return
        first = gone[0]
        path = paths[id(first)]
        what = "which is not in" if path is None else "which cannot be read as a picture, in"
        more = f"; {len(gone) - 1:,} more are missing" if len(gone) > 1 else ""
        hint = "say where pictures are: folder: PATH, or set broken: skip to leave these annotations out"
        raise self._origin.error(f"{first.where} is of the picture '{first.picture}', {what} {self._folder}{more}", hint)

    def _check_size(self, one: Noted, path: str, size: tuple[int, int]) -> None:
        if one.size is not None and one.size != size and not one.parts:
            said = f"{one.where} says {one.size[0]} x {one.size[1]} (height x width), and {self._folder / path} is {size[0]} x {size[1]}"
            raise self._origin.error(said, "take the pictures that were annotated, in their own size")

    def _add(self, placed: Placed, one: Noted, size: tuple[int, int], wrong: list[tuple[str, str, bool]]) -> None:
        height, width = (1.0, 1.0) if one.parts else size
        for thing in one.things:
            left, top, right, bottom = thing.box
            box = (left / width, top / height, right / width, bottom / height)
            cut = (max(0.0, box[0]), max(0.0, box[1]), min(1.0, box[2]), min(1.0, box[3]))
            there = cut[2] > cut[0] and cut[3] > cut[1]
            if right <= left or bottom <= top:
                wrong.append((SIZELESS, _said(thing, placed.path, size, one.parts, "has no size"), False))
            elif not there:
                wrong.append((OUTSIDE, _said(thing, placed.path, size, one.parts, "lies outside of"), True))
            elif max(abs(a - b) for a, b in zip(box, cut, strict=True)) > SLACK:
                wrong.append((CUT, _said(thing, placed.path, size, one.parts, "leaves"), _area(cut) < NEARLY * _area(box)))
            if there:
                placed.boxes.append(cut)
                placed.labels.append(thing.label)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _said(thing: Thing, path: str, size: tuple[int, int], parts: bool, what: str) -> str:
    """Return a sentence about a box that is not in its picture, or has no size."""
    left, top, right, bottom = thing.box
    unit = "parts of the picture" if parts else "pixels"
    shown = f"left {left:.6g}, top {top:.6g}, right {right:.6g}, bottom {bottom:.6g} ({unit})"
    of = f"{what}, in the picture" if what == "has no size" else f"{what} its picture"
    return f"{thing.where}: the box of '{thing.label}', {shown}, {of} {path}, of {size[0]} x {size[1]} (height x width)"


def unreadable(origin: Origin, folder: Path) -> PeError:
    """Return the error of a folder without pictures."""
    return origin.error(f"{folder} has no pictures", "say where pictures are: folder: PATH")
