"""Write shapes/: small made-up pictures of circles, crosses, rings, squares, stars and triangles, a folder per class.

Needs Pillow. Colours, sizes, places, turns and noise are drawn by a fixed seed.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

HERE = Path(__file__).parent
SIDE, SCALE, EACH = 32, 4, 60
CORNERS = {"square": 4, "triangle": 3}


def points(center: tuple[float, float], radius: float, turn: float, corners: int, inner: float = 1.0) -> list[tuple[float, float]]:
    """Return the corners of a polygon; every second one at a part of the radius."""
    count = corners * (2 if inner < 1 else 1)
    found = []
    for i in range(count):
        r = radius * (inner if inner < 1 and i % 2 else 1)
        angle = turn + 2 * math.pi * i / count
        found.append((center[0] + r * math.cos(angle), center[1] + r * math.sin(angle)))
    return found


def picture(rng: np.random.Generator, kind: str) -> Image.Image:
    """Draw one picture at four times its size, and shrink it."""
    side = SIDE * SCALE
    back = rng.integers(0, 110, 3)
    front = rng.integers(130, 256, 3)
    image = Image.new("RGB", (side, side), tuple(int(v) for v in back))
    draw = ImageDraw.Draw(image)
    radius = float(rng.uniform(0.28, 0.42)) * side
    center = tuple(float(v) for v in rng.uniform(radius * 0.9, side - radius * 0.9, 2))
    turn, color = float(rng.uniform(0, 2 * math.pi)), tuple(int(v) for v in front)
    box = [center[0] - radius, center[1] - radius, center[0] + radius, center[1] + radius]
    if kind == "circle":
        draw.ellipse(box, fill=color)
    elif kind == "ring":
        draw.ellipse(box, outline=color, width=int(radius / 3))
    elif kind == "star":
        draw.polygon(points(center, radius, turn, 5, 0.45), fill=color)
    elif kind == "cross":
        for extra in (0, math.pi / 2):
            ends = [(center[0] + s * radius * math.cos(turn + extra), center[1] + s * radius * math.sin(turn + extra)) for s in (-1, 1)]
            draw.line(ends, fill=color, width=int(radius / 2))
    else:
        draw.polygon(points(center, radius, turn, CORNERS[kind]), fill=color)
    small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
    noisy = small + rng.normal(0, 8, (SIDE, SIDE, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def main() -> None:
    """Write the folders beside this file."""
    rng = np.random.default_rng(20261128)
    for kind in ("circle", "cross", "ring", "square", "star", "triangle"):
        place = HERE / "shapes" / kind
        place.mkdir(parents=True, exist_ok=True)
        for i in range(EACH):
            picture(rng, kind).save(place / f"{i:02d}.jpg", quality=90)


if __name__ == "__main__":
    main()
