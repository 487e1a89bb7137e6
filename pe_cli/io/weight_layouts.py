"""In which order the axes of a weight lie: in this model, and in files of other frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
#: Kind of a weight -> its axes, a letter each; see the trait `Weight`.
Reading = Mapping[str, str]
#: Kinds that every framework keeps alike.
_ALIKE = {"elementwise": "", "table": "vd"}
#: What each framework keeps otherwise. Flax turns the filters of its transposed convolutions around as well: they have no entry.
LAYOUTS: dict[str, Reading] = {
    "paddle": {**_ALIKE, "matrix": "io", "filters": "oihw", "transposed filters": "iohw"},
    "torch": {**_ALIKE, "matrix": "oi", "filters": "oihw", "transposed filters": "iohw"},
    "keras": {**_ALIKE, "matrix": "io", "filters": "hwio", "transposed filters": "hwoi"},
    "flax": {**_ALIKE, "matrix": "io", "filters": "hwio"},
}


def turned(value: Array, theirs: Reading, ours: Reading, shape: tuple[int, ...]) -> Array | None:
    """Return a weight of a file with its axes as this model has them; None where that is not known.

    Args:
        value: as it lies in the file.
        theirs: how the file has it.
        ours: how the model reads it.
        shape: in the model.
    """
    if value.ndim < 2 and len(shape) < 2:
        return value
    orders = {_order(theirs[kind], axes) for kind, axes in ours.items() if kind in theirs and (axes or len(ours) == 1)}
    if len(orders) != 1:
        return None
    order = orders.pop()
    if not order:
        return value
    if len(order) != value.ndim:
        return None
    found = value.transpose(order)
    if theirs.get("filters") == "hwio" and found.shape != shape and shape[1] == 1 and value.size == np.prod(shape):
        return value.transpose(2, 3, 0, 1).reshape(shape)  # Keras' filters of channels by themselves: h, w, channel, multiple
    return found


def _order(theirs: str, ours: str) -> tuple[int, ...]:
    return tuple(theirs.index(axis) for axis in ours)


def fitting(value: Array, ours: Reading, shape: tuple[int, ...]) -> list[str]:
    """Return the layouts with which a weight of unknown origin has the model's shape, one for each order of axes that they mean.

    Args:
        value: as it lies in a file.
        ours: how the model reads it; nothing where no other framework is known to keep it alike.
        shape: in the model.
    """
    if value.ndim < 2 and len(shape) < 2:
        return ["paddle"]
    found: dict[tuple[int, ...], str] = {}
    for name, layout in LAYOUTS.items():
        for kind, axes in ours.items():
            made = turned(value, {kind: layout[kind]}, {kind: axes}, shape) if kind in layout else None
            if made is not None and made.shape == shape:
                found.setdefault(_order(layout[kind], axes) or tuple(range(value.ndim)), name)
    return list(found.values())
