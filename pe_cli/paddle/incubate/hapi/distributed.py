"""DistributedBatchSampler with the arguments of 1.8."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.io import DistributedBatchSampler as NewerSampler


class DistributedBatchSampler(NewerSampler):
    """Numbers of the samples of every batch of one trainer, as 2.x's has them; the environment says which trainer this is."""

    def __init__(self, dataset: Any, batch_size: int, shuffle: bool = False, drop_last: bool = False) -> None:
        super().__init__(dataset, batch_size, None, None, shuffle, drop_last)


__all__ = ["DistributedBatchSampler"]
