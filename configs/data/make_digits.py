"""Write digits.npz and iris.csv, which lie beside this file, from scikit-learn's copies of the data sets.

Run it with the `dev` dependencies: `python configs/data/make_digits.py`. Its output is the same every time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import train_test_split

FOLDER = Path(__file__).parent
SEED = 0


def main() -> None:
    """Write both files."""
    write_digits(FOLDER / "digits.npz")
    write_iris(FOLDER / "iris.csv")


def write_digits(path: Path) -> None:
    """Write 1437 train and 360 eval images with labels; every digit has its share in both.

    Args:
        path: of the archive: train_image uint8 [1437, 8, 8] in 0 .. 16, train_label int64 [1437], and likewise
            eval_image and eval_label.
    """
    digits = load_digits()
    assert digits.images.min() == 0
    assert digits.images.max() == 16
    order = np.arange(len(digits.target))
    train, evaluate = train_test_split(order, test_size=360, random_state=SEED, stratify=digits.target)
    for part in (train, evaluate):
        assert set(digits.target[part]) == set(range(10)), "a digit is missing"
    np.savez_compressed(
        path,
        train_image=digits.images[train].astype(np.uint8),
        train_label=digits.target[train].astype(np.int64),
        eval_image=digits.images[evaluate].astype(np.uint8),
        eval_label=digits.target[evaluate].astype(np.int64),
    )


def write_iris(path: Path) -> None:
    """Write 150 rows in a mixed order: 40 of each species in the first 120 rows, 10 of each in the last 30.

    Args:
        path: of the table, with a header; lengths in cm.
    """
    iris = load_iris()
    order = np.arange(len(iris.target))
    train, evaluate = train_test_split(order, test_size=30, random_state=SEED, stratify=iris.target)
    rows = ["sepal_length,sepal_width,petal_length,petal_width,species"]
    for index in (*train, *evaluate):
        cells = [f"{value:.1f}" for value in iris.data[index]]
        rows.append(",".join([*cells, str(iris.target_names[iris.target[index]])]))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
