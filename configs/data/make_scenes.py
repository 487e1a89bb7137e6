"""Write scenes.npz: drawn pictures of discs, squares and crosses, and what every pixel belongs to, the same bytes every time.

`image` is uint8 [count, 32, 32], 0 to 15; `mask` uint8 [count, 32, 32]: 0 ground, 1 disc, 2 square, 3 cross. Shapes have any
brightness above that of the ground, and later ones cover earlier ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SIDE = 32


def scene(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return a picture and its mask."""
    y, x = np.mgrid[:SIDE, :SIDE]
    image, mask = np.full((SIDE, SIDE), 3.0), np.zeros((SIDE, SIDE), int)
    for _ in range(int(rng.integers(1, 4))):
        kind, radius = int(rng.integers(1, 4)), float(rng.uniform(4, 8))
        dy, dx = y - rng.uniform(5, SIDE - 5), x - rng.uniform(5, SIDE - 5)
        far, near = np.maximum(abs(dy), abs(dx)), np.minimum(abs(dy), abs(dx))
        inside = {1: dy**2 + dx**2 < radius**2, 2: far < radius * 0.9, 3: (far < radius) & (near < radius / 3)}[kind]
        image[inside], mask[inside] = rng.uniform(6, 13), kind
    return np.clip(np.rint(image + rng.normal(0, 1.5, image.shape)), 0, 15), mask


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(20261204)
    arrays = {}
    for part, count in (("train", 400), ("eval", 100)):
        image, mask = zip(*(scene(rng) for _ in range(count)), strict=True)
        arrays |= {f"{part}_image": np.stack(image).astype("uint8"), f"{part}_mask": np.stack(mask).astype("uint8")}
    np.savez_compressed(HERE / "scenes.npz", **arrays)


if __name__ == "__main__":
    main()
