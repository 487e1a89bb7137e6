"""Label Studio: a JSON list of tasks, whose boxes are in percent of the picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pe_cli.data.annotations.things import Found, Noted, Thing, around, json_of, number, wrong
from pe_cli.data.reader_context import Origin

#: Kinds of results that are boxes, or have one around them, and the key of their labels.
_BOXES, _POLYGONS = "rectanglelabels", "polygonlabels"


def read(path: Path, origin: Origin) -> Found:
    """Return the pictures of an export, in the form JSON or JSON-MIN.

    Tasks without an annotation, and annotations that were cancelled, are left out. Of several annotations the first one counts.

    Raises:
        PeError: DATA; it has another form.

    Source:
        labelstud.io, "Label Studio JSON format of annotated tasks": x, y, width and height in percent, turned about the upper left corner.
    """
    tasks = json_of(path, origin)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise wrong(path, "no export of Label Studio: it is a list of tasks", origin)
    found = Found([])
    for i, task in enumerate(tasks):
        where = f"{path}, task {i + 1}"
        results = _results(task)
        if results is None:
            found.leave_out("tasks without an annotation")
            continue
        made = Noted(_picture(task, where, path, origin), where, parts=True)
        for kind, value in results:
            labels = value.get(kind) if kind else None
            if kind not in (_BOXES, _POLYGONS) or not isinstance(labels, list) or not labels:
                found.leave_out(f"results of the kind {kind or 'none'}")
                continue
            made.things.append(Thing(str(labels[0]), _box(kind, value, where, origin), where))
        found.noted.append(made)
    return found


def _results(task: dict[str, Any]) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the results of a task, each with its kind; None where nobody has looked at it."""
    if isinstance(task.get("annotations"), list):
        done = [one for one in task["annotations"] if isinstance(one, dict) and not one.get("was_cancelled")]
        if not done:
            return None
        results = done[0].get("result")
        listed = results if isinstance(results, list) else []
        whole = [one for one in listed if isinstance(one, dict) and isinstance(one.get("value"), dict)]
        sizes = ("original_width", "original_height")
        return [(str(one.get("type", "")), {**one["value"], **{key: one.get(key) for key in sizes}}) for one in whole]
    lists = [value for key, value in task.items() if key != "data" and isinstance(value, list)]
    small = [one for value in lists for one in value if isinstance(one, dict)]
    if not lists and ("annotation_id" not in task or task.get("annotation_id") is None):
        return None
    return [(next((kind for kind in (_BOXES, _POLYGONS) if kind in one), ""), one) for one in small]


def _picture(task: dict[str, Any], where: str, path: Path, origin: Origin) -> str:
    """Return what the task's picture is called."""
    data = task["data"] if isinstance(task.get("data"), dict) else task
    named = [value for key, value in data.items() if isinstance(value, str) and ("image" in key or "/" in value or "." in value)]
    named.sort(key=lambda value: not value.lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".bmp")))
    if not named:
        raise wrong(path, f"{where.rpartition(', ')[2]} names no picture under data", origin)
    return named[0].partition("?d=")[2] or named[0]


def _box(kind: str, value: dict[str, Any], where: str, origin: Origin) -> tuple[float, float, float, float]:
    if kind == _POLYGONS:
        points = value.get("points")
        if not isinstance(points, list) or len(points) < 3 or not all(isinstance(point, list) and len(point) == 2 for point in points):
            raise origin.error(f"{where}: points of a polygon are pairs of numbers", "export the annotations again")
        return around((number(x, where, origin) / 100, number(y, where, origin) / 100) for x, y in points)
    x, y, width, height = (number(value.get(key), where, origin) / 100 for key in ("x", "y", "width", "height"))
    turned = math.radians(number(value.get("rotation") or 0, where, origin))
    if not turned:
        return x, y, x + width, y + height
    across, down = (number(value.get(key) or 1, where, origin) for key in ("original_width", "original_height"))
    return around(_corners(x, y, width, height, turned, across / down))


def _corners(x: float, y: float, width: float, height: float, turned: float, aspect: float) -> Iterator[tuple[float, float]]:
    """Yield the corners of a box that is turned about its upper left one; `aspect` is width by height of the picture."""
    cos, sin = math.cos(turned), math.sin(turned)
    for right, below in ((0.0, 0.0), (width, 0.0), (0.0, height), (width, height)):
        yield x + right * cos - below * sin / aspect, y + right * sin * aspect + below * cos
