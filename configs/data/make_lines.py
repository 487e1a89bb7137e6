"""Write lines.npz: drawn lines of two to six digits, as a scanner could see them, the same bytes every time.

Digits have five by seven pixels, stand at uneven heights and distances, are slanted a little, and lose and gain some pixels.
`image` is uint8 [count, 12, 56], 0 or 1; `label` the digits from 1 (for 0) to 10 (for 9), with 0 behind the last one, int64
[count, 6]; `length` how many there are, int64 [count, 1].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
HEIGHT, WIDTH, MOST = 12, 56, 6
FORMS = [
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110", "01110 10001 00001 00110 01000 10000 11111",
    "11110 00001 00001 01110 00001 00001 11110", "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000", "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
]  # fmt: skip


def line(rng: np.random.Generator, digits: Any) -> Any:
    """Return the picture of a line."""
    image = np.zeros((HEIGHT, WIDTH), bool)
    left = int(rng.integers(0, 6))
    for digit in digits:
        top, slant = int(rng.integers(0, HEIGHT - 7)), int(rng.integers(-1, 2))
        for y, row in enumerate(FORMS[digit].split()):
            moved = left + 1 + (slant if y < 3 else 0)
            for x, pixel in enumerate(row):
                image[top + y, moved + x] |= pixel == "1"
        left += int(rng.integers(7, 9))
    return image ^ (rng.random(image.shape) < 0.02)


def lines(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Return pictures, labels and lengths."""
    lengths = rng.integers(2, MOST + 1, (count, 1))
    digits = rng.integers(0, 10, (count, MOST))
    image = np.stack([line(rng, digits[i, : lengths[i, 0]]) for i in range(count)])
    label = np.where(np.arange(MOST) < lengths, digits + 1, 0)
    return {"image": image.astype("uint8"), "label": label, "length": lengths}


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(20261203)
    parts = {"train": lines(rng, 2000), "eval": lines(rng, 300)}
    np.savez_compressed(HERE / "lines.npz", **{f"{part}_{name}": a for part, found in parts.items() for name, a in found.items()})


if __name__ == "__main__":
    main()
