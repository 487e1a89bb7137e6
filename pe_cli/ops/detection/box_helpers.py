"""What ops share that choose boxes on the host: overlaps, differences, samples, and outputs that have a sequence for each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, offsets_of

Array = NDArray[Any]


def overlaps(a: Array, b: Array) -> Array:
    """Return the area in common by the area of both, [boxes of a, boxes of b]; the last pixel of a box is inside."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    # Computed for every pair at once; only ops that run on the host and have hundreds of boxes per image come here.
    both = np.maximum(high - low + 1, 0).prod(-1)
    areas = [(c[:, 2] - c[:, 0] + 1) * (c[:, 3] - c[:, 1] + 1) for c in (a, b)]
    whole = areas[0][:, None] + areas[1][None] - both
    # A pair with nothing in common is 0 without a division: two boxes of negative sides can have a union of 0.
    found: Array = np.divide(both, whole, out=np.zeros_like(both), where=both != 0)
    return found


def differences(boxes: Array, targets: Array, weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> Array:
    """Return targets as differences from boxes, of centres in sides and of sides as logarithms, by weights."""
    sides, wanted = boxes[:, 2:] - boxes[:, :2] + 1, targets[:, 2:] - targets[:, :2] + 1
    moved = (targets[:, :2] + wanted / 2 - boxes[:, :2] - sides / 2) / sides
    found: Array = np.concatenate([moved, np.log(wanted / sides)], 1) / np.asarray(weights, boxes.dtype)
    return found


def sample(places: list[int], count: int, rng: np.random.Generator | None) -> list[int]:
    """Return the first `count` of what is given, or that many that are drawn, each as likely as another."""
    if len(places) <= count:
        return places
    if rng is None:
        return places[:count]
    # Sorted, so that the order of what is drawn is that of the input, whatever the generator yields first.
    return [places[i] for i in sorted(rng.choice(len(places), count, replace=False))]


def per_image(parts: Sequence[Array], like: Array) -> Leveled:
    """Return arrays one after the other, a sequence for each; `like` has their element type and sizes."""
    # `like[:0]` gives element type and width even where there is no image or no box at all.
    rows = np.concatenate([like[:0], *parts])
    return Leveled(rows, (offsets_of([len(p) for p in parts]).tolist(),))


def images_of(run: HostRun, slot: str = "ImInfo") -> int:
    """Return how many images there are.

    Raises:
        PeError: none (exit code 3).
    """
    found = len(run.one(slot))
    if not found:
        raise PeError(f"{run.op}: {slot} has no image", code=ExitCode.DATA)
    return found


def check_boxes(name: str, **boxes: TensorType) -> None:
    """Check that types are those of boxes.

    Raises:
        PeError: one is not [boxes, 4] of float32 or float64.
    """
    for slot, kind in boxes.items():
        if len(kind.shape) != 2 or kind.shape[1] != 4 or kind.dtype not in FLOATS:
            raise PeError(f"{name} needs {slot} [boxes, 4], left, top, right, bottom, got {kind}")


def check_infos(name: str, info: TensorType, dtype: str) -> None:
    """Check the type of heights, widths and scales.

    Raises:
        PeError: it is not [images, 3] of an element type.
    """
    if len(info.shape) != 2 or info.shape[1] != 3 or info.dtype != dtype:
        raise PeError(f"{name} needs ImInfo [images, 3] {dtype}, height, width and scale, got {info}")


def check_column(name: str, **columns: TensorType) -> None:
    """Check that types are those of one whole number for each box.

    Raises:
        PeError: one is not.
    """
    for slot, kind in columns.items():
        if kind.dtype not in ("int32", "int64") or len(kind.shape) not in (1, 2) or kind.shape[1:] not in ((), (1,)):
            raise PeError(f"{name} needs {slot} [boxes, 1] int32 or int64, got {kind}", hint="cast it")


def same_lengths(run: HostRun, **parts: Sequence[Array]) -> None:
    """Check that every image has as many rows in each of some inputs.

    Raises:
        PeError: one has not (exit code 3).
    """
    (first, wanted), *others = parts.items()
    for slot, found in others:
        for i, (a, b) in enumerate(zip(wanted, found, strict=True)):
            if len(a) != len(b):
                raise PeError(f"{run.op}: image {i} has {len(a)} rows in {first}, {len(b)} in {slot}", code=ExitCode.DATA)
