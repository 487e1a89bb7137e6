"""What a program of picture transforms does to what lies over a picture: masks, whose values are never mixed, and boxes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.pictures.transform_programs import Program, Shape
from pe_cli.kernels.images.transforms import AFFINE, CROP, FLIP, RESIZE

#: Share of a box that has to stay in the picture, so that the box stays.
SEEN = 0.3
Words = NDArray[np.float64]


def moved_mask(mask: NDArray[np.uint8], program: Program, place: int, outside: int) -> NDArray[np.uint8]:
    """Return a mask as the picture under it becomes; colours, and what is erased, change no mask.

    Args:
        mask: [height, width] of the program's first shape.
        program: of a batch.
        place: of the picture in the batch.
        outside: value of what lies outside the picture.
    """
    for words in program.words[place] if program.steps else ():
        kind = int(words[0])
        if kind == FLIP:
            mask = mask[:: -1 if words[1] else 1, :: -1 if words[2] else 1]
        elif kind in (CROP, AFFINE, RESIZE):
            rows, columns = _sources(kind, words, mask.shape)
            inside = (rows >= 0) & (rows < mask.shape[0]) & (columns >= 0) & (columns < mask.shape[1])
            mask = np.where(inside, mask[rows.clip(0, mask.shape[0] - 1), columns.clip(0, mask.shape[1] - 1)], np.uint8(outside))
    return np.ascontiguousarray(mask)


def _sources(kind: int, words: Words, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the column that every pixel of the result is taken from; the nearest ones."""
    if kind == CROP:
        top, left, height, width = words[1:5].astype(np.int64)
        return (np.arange(height) + top)[:, None], (np.arange(width) + left)[None, :]
    if kind == RESIZE:
        top, left, tall, wide = words[1:5]
        height, width = words[5:7].astype(np.int64)
        rows = np.floor(top + (np.arange(height) + 0.5) * tall / height).astype(np.int64)
        columns = np.floor(left + (np.arange(width) + 0.5) * wide / width).astype(np.int64)
        return rows[:, None], columns[None, :]
    i, j = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
    a, b, c, d, e, f = words[1:7]
    return np.floor(a * i + b * j + c + 0.5).astype(np.int64), np.floor(d * i + e * j + f + 0.5).astype(np.int64)


def moved_boxes(boxes: NDArray[np.float64], program: Program, place: int) -> NDArray[np.float64]:
    """Return boxes as the picture under them becomes, cut at its borders.

    Args:
        boxes: [count, 4], left, top, right and bottom in parts of the picture.
        program: of a batch.
        place: of the picture in the batch.

    Returns:
        The same shape. A box of which less than `SEEN` is left in the picture has no size.
    """
    first, last = program.shapes[0], program.shapes[-1]
    edges = boxes * _sides(first)
    for words, before in zip(program.words[place] if program.steps else (), program.shapes, strict=False):
        edges = _moved(edges, words, before)
    kept = edges.clip(0, _sides(last))
    whole, left = _areas(edges), _areas(kept)
    kept[left < SEEN * whole] = 0
    kept[whole <= 0] = 0
    return kept / _sides(last)


def _sides(shape: Shape) -> NDArray[np.float64]:
    return np.array([shape.width, shape.height, shape.width, shape.height], np.float64)


def _areas(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    area: NDArray[np.float64] = (edges[:, 2] - edges[:, 0]) * (edges[:, 3] - edges[:, 1])
    return area


def _moved(edges: NDArray[np.float64], words: Words, before: Shape) -> NDArray[np.float64]:
    """Return the edges of boxes, in pixels, after one instruction."""
    kind = int(words[0])
    left, top, right, bottom = edges.T
    if kind == FLIP:
        if words[1]:
            top, bottom = before.height - bottom, before.height - top
        if words[2]:
            left, right = before.width - right, before.width - left
        return np.stack([left, top, right, bottom], axis=1)
    if kind == CROP:
        moved: NDArray[np.float64] = edges - np.array([words[2], words[1], words[2], words[1]])
        return moved
    if kind == RESIZE:
        scale = np.array([words[6] / words[4], words[5] / words[3]])
        start = np.array([words[2], words[1]])
        return np.concatenate([(edges[:, :2] - start) * scale, (edges[:, 2:] - start) * scale], axis=1)
    if kind != AFFINE:
        return edges
    # the instruction says where pixels come from, so its inverse says where corners go; a pixel's middle lies half a pixel from its edge
    a, b, c, d, e, f = words[1:7]
    inverse = np.linalg.inv(np.array([[a, b], [d, e]]))
    corners = np.stack([np.stack([y, x], axis=1) for y in (top, bottom) for x in (left, right)])
    made = (corners - 0.5 - np.array([c, f])) @ inverse.T + 0.5
    low, high = made.min(axis=0), made.max(axis=0)
    return np.stack([low[:, 1], low[:, 0], high[:, 1], high[:, 0]], axis=1)
