"""Write things.npz: drawn pictures of discs, bars and crosses, and a box around each of them, the same bytes every time.

`image` is uint8 [count, 48, 48], 0 to 15; `box` float32 [count, 4, 4] left, top, right, bottom, in parts of the picture; `label` int64
[count, 4] 1 disc, 2 bar, 3 cross; `count` int64 [count, 1] how many things there are. What is behind the last one is 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SIDE, MOST = 48, 4


def thing(rng: np.random.Generator, kind: int) -> tuple[Any, Any]:
    """Return which pixels belong to a thing, and its box in pixels."""
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    size = float(rng.uniform(4, 10))
    wide, high = (size, size) if kind != 2 else (size, size / 2) if rng.random() < 0.5 else (size / 2, size)
    cx, cy = rng.uniform(wide, SIDE - wide), rng.uniform(high, SIDE - high)
    dx, dy = abs(x - cx), abs(y - cy)
    inside = {1: dx**2 + dy**2 < size**2, 2: (dx < wide) & (dy < high), 3: (np.minimum(dx, dy) < size / 3) & (np.maximum(dx, dy) < size)}
    return inside[kind], np.array([cx - wide, cy - high, cx + wide, cy + high])


def scene(rng: np.random.Generator) -> tuple[Any, Any, Any, int]:
    """Return a picture, boxes, labels, and how many there are."""
    image, box, label = np.full((SIDE, SIDE), 2), np.zeros((MOST, 4), "float32"), np.zeros(MOST, int)
    taken, count = np.zeros((SIDE, SIDE), bool), 0
    for _ in range(int(rng.integers(1, MOST + 1))):
        kind = int(rng.integers(1, 4))
        inside, found = thing(rng, kind)
        if (inside & taken).sum() > 0.2 * inside.sum():  # it would hide another one
            continue
        image[inside] = int(rng.integers(6, 14))
        taken |= inside
        box[count], label[count], count = found / SIDE, kind, count + 1
    specks = rng.random(image.shape) < 0.06
    image[specks] = rng.integers(0, 16, int(specks.sum()))
    return image, box, label, count


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(20261208)
    arrays = {}
    for part, many in (("train", 800), ("eval", 200)):
        image, box, label, count = zip(*(scene(rng) for _ in range(many)), strict=True)
        named = {"image": np.stack(image).astype("uint8"), "box": np.stack(box), "label": np.stack(label)}
        named["count"] = np.array(count).reshape(-1, 1)
        arrays |= {f"{part}_{name}": a for name, a in named.items()}
    np.savez_compressed(HERE / "things.npz", **arrays)


if __name__ == "__main__":
    main()
