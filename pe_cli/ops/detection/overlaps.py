"""Non-maximum suppression: overlaps of boxes and polygons, and the greedy choice of the best boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def overlap(box: Array, others: Array, *, normalized: bool) -> Array:
    """Return the area of a box and each of others by that of either.

    Args:
        box: [4]: left, top, right, bottom; or a polygon's points, x and y each.
        others: [boxes, numbers of box].
        normalized: else the last pixels are inside.
    """
    if len(box) != 4:
        return np.array([_polygons(box, other) for other in others], box.dtype)
    one = box.dtype.type(0 if normalized else 1)
    w = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    h = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    both = (w + one) * (h + one)
    either = _area(box[None], one) + _area(others, one) - both
    # Sides of 0 are no gap: boxes of pixels that share an edge have a line of pixels in common.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((w < 0) | (h < 0), 0, both / either).astype(box.dtype)


def _area(boxes: Array, one: Any) -> Array:
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return np.where((w < 0) | (h < 0), 0, (w + one) * (h + one))


def _polygons(a: Array, b: Array) -> float:
    """Return the area of two convex polygons by that of either."""
    one, other = _turned(a), _turned(b)
    both = _shoelace(_clipped(one, other))
    either = _shoelace(one) + _shoelace(other) - both
    return both / either if either > 0 else 0.0


def _turned(points: Array) -> list[tuple[float, float]]:
    """Return the corners in the order in which the area is positive."""
    found = [(float(x), float(y)) for x, y in points.reshape(-1, 2)]
    return found if _shoelace(found) >= 0 else found[::-1]


def _shoelace(points: list[tuple[float, float]]) -> float:
    return sum(x * v - u * y for (x, y), (u, v) in zip(points, points[1:] + points[:1], strict=True)) / 2


def _clipped(subject: list[tuple[float, float]], clip: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the part of a polygon inside another, edge by edge (Sutherland and Hodgman 1974)."""
    # The clip polygon is convex and turned so that inside is to the left of every edge.
    for (x, y), (u, v) in zip(clip, clip[1:] + clip[:1], strict=True):
        sides = [(u - x) * (q - y) - (v - y) * (p - x) for p, q in subject]
        kept: list[tuple[float, float]] = []
        for i, (p, q) in enumerate(subject):
            # Index -1 is the last corner: the polygon is closed.
            before, (r, s) = sides[i - 1], subject[i - 1]
            if (before < 0) != (sides[i] < 0):
                t = before / (before - sides[i])
                kept.append((r + t * (p - r), s + t * (q - s)))
            if sides[i] >= 0:
                kept.append((p, q))
        subject = kept
    return subject


def best(scores: Array, least: float, most: int) -> Array:
    """Return the places of scores above `least`, the highest first, `most` of them; -1 for all."""
    found = np.flatnonzero(scores > scores.dtype.type(least))
    found = found[np.argsort(-scores[found], kind="stable")]
    return found[:most] if most > -1 else found


def suppress(boxes: Array, order: Array, threshold: float, eta: float, *, normalized: bool) -> list[int]:
    """Return the places of boxes that overlap none of those kept before by more than a threshold.

    Args:
        boxes: [boxes, 4 or more].
        order: places, the best first.
        threshold: multiplied by eta, below 1, after each box that is kept, as long as it is above 0.5.
        eta: see there.
        normalized: else the last pixels are inside.
    """
    kept: list[int] = []
    limit = boxes.dtype.type(threshold)
    eta = boxes.dtype.type(eta)
    for place in order:
        # Written as "not <=": a box whose overlap is NaN is dropped.
        if kept and not (overlap(boxes[place], boxes[kept], normalized=normalized) <= limit).all():
            continue
        kept.append(int(place))
        if eta < 1 and limit > 0.5:
            limit *= eta
    return kept


def strongest(kept: dict[int, list[int]], score: Any, most: int) -> dict[int, list[int]]:
    """Return the `most` boxes with the highest scores of all classes; -1 keeps all.

    Args:
        kept: class -> places.
        score: `score(class, place)`.
        most: boxes of an image.
    """
    every = [(label, place) for label in sorted(kept) for place in kept[label]]
    if most < 0 or len(every) <= most:
        return kept
    # Stable after classes and places: of equal scores the smaller class stays, on every machine.
    every.sort(key=lambda pair: -score(*pair))
    found: dict[int, list[int]] = {}
    for label, place in every[:most]:
        found.setdefault(label, []).append(place)
    return found


def drawn_boxes(rng: np.random.Generator, *shape: int) -> Array:
    """Return boxes for samples, [*shape, 4], within [0, 1] of the image."""
    low = rng.uniform(0, 0.6, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(0.05, 0.4, (*shape, 2))], -1)
