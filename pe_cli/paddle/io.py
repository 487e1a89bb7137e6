"""io: data sets of 2.x, and the loader that makes batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.paddle.fluid import data_sets
from pe_cli.paddle.fluid.data_sets import (
    BatchSampler,
    Dataset,
    DistributedBatchSampler,
    GeneratorLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
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


class DataLoader(data_sets.DataLoader):
    """Batches of a data set, as lists of arrays, or each as a list with one feed.

    Args:
        dataset, feed_list, places, batch_sampler, batch_size, shuffle, drop_last, collate_fn, num_workers, use_buffer_reader,
            use_shared_memory, timeout, worker_init_fn: see `fluid.io.DataLoader`.
        return_list: return lists instead of feeds, as from 2.0 on where nothing is said.
        prefetch_factor, persistent_workers: without effect, as threads get samples when they are asked for.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (the original's arguments)
        self,
        dataset: Any,
        feed_list: Sequence[Any] | None = None,
        places: Any = None,
        return_list: bool = True,
        batch_sampler: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Sequence[Any]], list[Any]] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        prefetch_factor: int = 2,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Any = None,
        persistent_workers: bool = False,
    ) -> None:
        del prefetch_factor, persistent_workers
        chosen = batch_sampler, batch_size, shuffle, drop_last, collate_fn, num_workers, use_buffer_reader, use_shared_memory, timeout
        super().__init__(dataset, feed_list, places, return_list, *chosen, worker_init_fn)


__all__ = [
    "BatchSampler", "ChainDataset", "ComposeDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedBatchSampler",
    "GeneratorLoader", "IterableDataset", "RandomSampler", "Sampler", "SequenceSampler", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "default_collate", "get_worker_info", "random_split",
]  # fmt: skip
__getattr__ = missing("paddle.io", lambda: globals())
