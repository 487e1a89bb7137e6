"""The data set of house prices in Boston, with 13 features each."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.dataset_files import local, of_modes, whole
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.io import Dataset

#: Share of the rows that train.
TRAINED = 0.8


class UCIHousing(Dataset):
    """13 features of a house, each less its mean and divided by its range, and its price in 1000 dollars; both float32.

    Args:
        data_file: text of 14 columns; default: where the original keeps it.
        mode: train for the first 80 % of the rows, test for the others.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: the file is not there or no such table, or mode is another word; a ValueError.

    Source:
        Harrison and Rubinfeld 1978, "Hedonic prices and the demand for clean air".
    """

    def __init__(self, data_file: Any = None, mode: str = "train", download: bool = True) -> None:
        train = of_modes(mode, "train", "test") == "train"
        path = local(data_file, "uci_housing", "housing.data")
        try:
            with path.open("rb") as file:
                rows = np.array(whole(file).decode("utf-8").split(), np.float64).reshape(-1, 14)
            if not np.isfinite(rows).all() or not len(rows):
                raise ValueError
        except (ValueError, OSError):
            raise FluidValueError(f"{path} is no table of numbers in 14 columns") from None
        features = rows[:, :13]
        # Over all rows, those of tests too, as in the original.
        span = features.max(axis=0) - features.min(axis=0)
        rows[:, :13] = (features - features.mean(axis=0)) / np.where(span == 0, 1.0, span)
        cut = int(len(rows) * TRAINED)
        self.data = (rows[:cut] if train else rows[cut:]).astype("float32")
        self.mode = mode

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        return self.data[idx, :13], self.data[idx, 13:]

    def __len__(self) -> int:
        return len(self.data)
