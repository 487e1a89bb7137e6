"""Pictures that 2.6.2 warped by Pillow, all with black around, as it leaves `fill` out.

`python -m tests.paddle.later.warps FILE` records them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

PICTURE = np.random.RandomState(2).randint(0, 255, (7, 9, 3)).astype("uint8")
POINTS = [[0, 0], [8, 0], [8, 6], [0, 6]], [[1, 1], [7, 0], [8, 5], [0, 6]]
#: Function -> arguments behind the picture.
WARPS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "turned": ("affine", (30.0, (0, 0), 1.0, 0.0)),
    "moved": ("affine", (0.0, (2, -1), 1.0, (0.0, 0.0), "nearest")),
    "sheared": ("affine", (10.0, (1, 0), 1.3, (15.0, -5.0), "bilinear")),
    "about a point": ("affine", (-45.0, (0, 0), 0.8, 10.0, "nearest", 0, (2.0, 3.0))),
    "seen from aside": ("perspective", (*POINTS, "nearest")),
    "seen from aside, smoothly": ("perspective", (*POINTS, "bilinear")),
    "erased": ("erase", (1, 2, 3, 4, 200)),
}


def main() -> None:
    """Write the recording."""
    import paddle.vision.transforms as T
    from PIL import Image

    found = {name: np.asarray(getattr(T, f)(Image.fromarray(PICTURE), *given)).ravel().tolist() for name, (f, given) in WARPS.items()}
    Path(sys.argv[1]).write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
