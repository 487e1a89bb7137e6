"""Write triplets.npz: pictures of digits.npz in threes, two of one digit and one of another, the same bytes every time.

Threes of training have training pictures alone, those of evaluation the evaluation pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def triplets(rng: np.random.Generator, images: Any, labels: Any, count: int) -> dict[str, Any]:
    """Return anchor, positive and negative, each [count, 8, 8]."""
    rows = {d: np.flatnonzero(labels == d) for d in range(10)}
    threes = []
    for _ in range(count):
        same, other = rng.choice(10, 2, replace=False)
        a, b = rng.choice(rows[same], 2, replace=False)
        threes.append((a, b, rng.choice(rows[other])))
    chosen = np.array(threes).T
    return {name: images[at] for name, at in zip(("anchor", "positive", "negative"), chosen, strict=True)}


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(20261202)
    digits = np.load(HERE / "digits.npz")
    train = triplets(rng, digits["train_image"], digits["train_label"].ravel(), 2000)
    held = triplets(rng, digits["eval_image"], digits["eval_label"].ravel(), 500)
    named = {f"train_{name}": a for name, a in train.items()} | {f"eval_{name}": a for name, a in held.items()}
    np.savez_compressed(HERE / "triplets.npz", **named)


if __name__ == "__main__":
    main()
