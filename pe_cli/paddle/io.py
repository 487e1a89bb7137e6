"""io: data sets of 2.x, and the loader that makes batches of them."""

from __future__ import annotations

from pe_cli.paddle.fluid.data_sets import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedBatchSampler,
    GeneratorLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    random_split,
)
from pe_cli.paddle.fluid.samplers import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    RandomSampler,
    Sampler,
    SequenceSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from pe_cli.paddle.reference_names import missing


def get_worker_info() -> None:
    """Return what a worker of a loader reads: None, as each sample is read once, whatever thread reads it."""


__all__ = [
    "BatchSampler", "ChainDataset", "ComposeDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedBatchSampler",
    "GeneratorLoader", "IterableDataset", "RandomSampler", "Sampler", "SequenceSampler", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "default_collate", "get_worker_info", "random_split",
]  # fmt: skip
__getattr__ = missing("paddle.io", lambda: globals())
