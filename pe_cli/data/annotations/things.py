"""What an annotation says: pictures by name, and the boxes in each with what they are around."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

from pe_cli.core import json_reading
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.reader_context import Origin

#: What is said of keypoints, of which the boxes around their things are read.
KEYPOINTS = "things with keypoints, of which the boxes alone are read"
#: Bytes of a file of annotations, at most; times that, its values take in memory; and boxes of all files together.
MOST_BYTES, TIMES, MOST_BOXES = 1 << 28, 12, 5_000_000


@dataclass(frozen=True)
class Thing:
    """A box around something.

    Args:
        label: what it is.
        box: left, top, right and bottom.
        where: names it in a message.
    """

    label: str
    box: tuple[float, float, float, float]
    where: str


@dataclass
class Noted:
    """A picture with its boxes.

    Args:
        picture: as the annotation names it.
        where: names the annotation in a message.
        size: height and width that the annotation says; None where it says none.
        parts: whether boxes are in parts of the picture, or in its pixels.
        things: the boxes.
    """

    picture: str
    where: str
    size: tuple[int, int] | None = None
    parts: bool = False
    things: list[Thing] = field(default_factory=list)


@dataclass
class Found:
    """What files of annotations say.

    Args:
        noted: pictures.
        left_out: what is not read -> how often it is there.
    """

    noted: list[Noted]
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, what: str) -> None:
        """Count something that is not read."""
        self.left_out[what] = self.left_out.get(what, 0) + 1


def content(path: Path, origin: Origin) -> bytes:
    """Return the bytes of a file of annotations.

    Raises:
        PeError: DATA; it is too large, or cannot be read.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise origin.error(f"{path} has {size:,} bytes, and annotations have {MOST_BYTES:,} at most", "divide it into several files")
    origin.check_memory(TIMES * size, path, "divide it into several files")
    return path.read_bytes()


def json_of(path: Path, origin: Origin) -> Any:
    """Return the values of a JSON file.

    Raises:
        PeError: DATA; it is no JSON.
    """
    try:
        return json_reading.loads(content(path, origin))
    except ValueError as error:
        raise origin.error(f"{path} is no JSON: {error}", "export the annotations again") from None


def number(value: object, where: str, origin: Origin) -> float:
    """Return a finite number.

    Raises:
        PeError: DATA; it is none.
    """
    try:
        found = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise origin.error(f"{where}: {str(value)[:40]!r} is no number", "correct the annotation, or export it again")
    return found


def numbers(values: object, count: int, where: str, origin: Origin) -> list[float]:
    """Return so many finite numbers.

    Raises:
        PeError: DATA; they are others.
    """
    if not isinstance(values, list | tuple) or len(values) != count:
        raise origin.error(f"{where}: {str(values)[:60]} is no list of {count} numbers", "correct the annotation, or export it again")
    return [number(value, where, origin) for value in values]


def around(points: Iterable[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Return the box around points (x, y)."""
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def wrong(path: Path, what: str, origin: Origin) -> PeError:
    """Return the error of a file that has another form than its kind."""
    return origin.error(f"{path}: {what}", "export the annotations again, or say which kind they are: format: coco, voc, yolo, ...")
