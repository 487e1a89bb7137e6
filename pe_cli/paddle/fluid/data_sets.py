"""Data sets by number, and the loader that makes batches of them."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid.reader import DataLoader as OlderLoader
from pe_cli.paddle.fluid.reader import GeneratorLoader


class Dataset:
    """Samples by number; subclasses say `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__: define __getitem__(self, idx), which returns a sample")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__: define __len__(self)")


class IterableDataset(Dataset):
    """Samples one after the other; subclasses say `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__: define __iter__(self), which yields samples")

    def __getitem__(self, idx: int) -> Any:
        raise FluidTypeError(f"{type(self).__name__} has no samples by number", hint="iterate over it")

    def __len__(self) -> int:
        raise FluidTypeError(f"{type(self).__name__} has no length", hint="iterate over it")


class TensorDataset(Dataset):
    """Rows of several arrays of one length.

    Args:
        tensors: arrays.

    Raises:
        FluidValueError: the arrays have different lengths.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = [np.asarray(t) for t in tensors]
        if len({len(t) for t in self.tensors}) != 1:
            raise FluidValueError("TensorDataset: the arrays have different lengths", hint="one row of each for every sample")

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(t[idx] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """Some samples of a data set, by their numbers."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, list(indices)

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[self.indices[idx]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int], generator: Any = None) -> list[Subset]:
    """Deal the samples of a data set to parts, at random, by Python's `random`.

    Args:
        dataset: with a length.
        lengths: of the parts, which add up to that of the data set.
        generator: must be None: `random.seed` repeats the parts.

    Raises:
        FluidValueError: the lengths do not add up; a ValueError.
        NotThereYet: generator is given.
    """
    if generator is not None:
        raise NotThereYet("random_split: generator is not there", hint="call random.seed before")
    if sum(lengths) != len(dataset):
        raise FluidValueError(f"random_split: the lengths add up to {sum(lengths)}, and there are {len(dataset)} samples")
    order = iter(random.sample(range(len(dataset)), len(dataset)))
    return [Subset(dataset, list(itertools.islice(order, n))) for n in lengths]


class BatchSampler:
    """Numbers of the samples of every batch.

    Args:
        dataset: with a length.
        sampler: gives numbers of samples, instead of a data set and shuffle.
        shuffle: draw another order in every pass, by Python's `random`.
        batch_size: samples of a batch, at least 1.
        drop_last: leave out a last batch that is smaller.

    Raises:
        FluidValueError: batch_size is below 1, or not one of dataset and sampler is given; a ValueError.
    """

    def __init__(
        self, dataset: Any = None, sampler: Any = None, shuffle: bool = False, batch_size: int = 1, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise FluidValueError(f"batch_size must be at least 1, got {batch_size}")
        if (dataset is None) == (sampler is None) or (sampler is not None and shuffle):
            raise FluidValueError("BatchSampler takes a dataset, with or without shuffle, or a sampler")
        self.dataset, self.sampler, self.shuffle = dataset, sampler, shuffle
        self.batch_size, self.drop_last = batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        order: Iterable[int] = self.sampler if self.sampler is not None else range(len(self.dataset))
        # A sampler has an order of its own; only numbers of a whole data set are drawn here.
        numbers = iter(random.sample(order, len(order)) if self.shuffle and isinstance(order, range) else order)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.dataset if self.sampler is None else self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def this_trainer() -> tuple[int, int]:
    """Return how many trainers there are, and which this is: PADDLE_TRAINERS_NUM and PADDLE_TRAINER_ID of the environment; alone without.

    Raises:
        FluidValueError: there is no such trainer; a ValueError.
    """
    count, mine = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")), int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if not 0 <= mine < count:
        raise FluidValueError(f"PADDLE_TRAINER_ID is {mine}, and there are {count} trainers")
    return count, mine


class DistributedBatchSampler:
    """Numbers of the samples of every batch of one trainer; all trainers get equally many, so that the first samples may come twice.

    Args:
        dataset: with a length.
        batch_size: samples of a batch of one trainer, at least 1.
        num_replicas: trainers; None: as the environment says.
        rank: which of them this is; likewise.
        shuffle: another order in every pass, by the number of the pass, the same for all trainers.
        drop_last: leave out a last batch that is smaller.

    Raises:
        FluidValueError: batch_size is below 1, or there is no such trainer; a ValueError.
    """

    def __init__(
        self, dataset: Any, batch_size: int, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:  # fmt: skip
        count, mine = this_trainer() if num_replicas is None or rank is None else (num_replicas, rank)
        self.nranks, self.local_rank = count if num_replicas is None else num_replicas, mine if rank is None else rank
        if batch_size < 1:
            raise FluidValueError(f"batch_size must be at least 1, got {batch_size}")
        if not 0 <= self.local_rank < self.nranks:
            raise FluidValueError(f"rank is {self.local_rank}, and there are {self.nranks} trainers")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.epoch = 0
        # Every trainer gets as many samples, since all take part in each step's sum of gradients; the first samples come twice where they
        # do not divide.
        self.num_samples = -(-len(dataset) // self.nranks)
        self.total_size = self.num_samples * self.nranks

    def set_epoch(self, epoch: int) -> None:
        """Say which pass comes next: its order follows from that."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        numbers = list(range(len(self.dataset)))
        numbers += numbers[: self.total_size - len(numbers)]
        if self.shuffle:
            # By the epoch alone: all trainers draw the same order without telling each other.
            np.random.RandomState(self.epoch).shuffle(numbers)
            self.epoch += 1
        all_of_a_batch = self.batch_size * self.nranks
        for first in range(0, self.total_size, all_of_a_batch):
            together = numbers[first : first + all_of_a_batch]
            # The last batch may be smaller, but equally small for all.
            each = len(together) // self.nranks
            if each == self.batch_size or not self.drop_last:
                yield together[self.local_rank * each : (self.local_rank + 1) * each]

    def __len__(self) -> int:
        return self.num_samples // self.batch_size if self.drop_last else -(-self.num_samples // self.batch_size)


def default_collate(samples: Sequence[Any]) -> list[Any]:
    """Return the arrays of a batch: samples [a, b] become [array of all a, array of all b]."""
    rows = [s if isinstance(s, (list, tuple)) else (s,) for s in samples]
    return [np.stack([np.asarray(v) for v in column]) for column in zip(*rows, strict=True)]


class DataLoader:
    """Batches of a data set, as lists of arrays, or each as a list with one feed.

    Args:
        dataset: `Dataset`, `IterableDataset`, or anything with a length and numbered samples.
        feed_list: variables that are fed, in the order of a sample's parts.
        places: without effect: the executor places feeds.
        return_list: return lists instead of feeds; the rule where there is no feed_list.
        batch_sampler: instead of batch_size, shuffle and drop_last.
        batch_size: samples of a batch.
        shuffle: draw another order in every pass, by Python's `random`.
        drop_last: leave out a last batch that is smaller.
        collate_fn: samples of a batch -> list of arrays; default: `default_collate`.
        num_workers: threads that get samples; 0 for none.
        use_buffer_reader, use_shared_memory, timeout: without effect: threads share memory, and are waited for.
        worker_init_fn: only None.
        prefetch_factor, persistent_workers: without effect: threads get the samples of one batch at a time, for each pass anew.

    Raises:
        FluidValueError: arguments that exclude each other; a ValueError.
        NotThereYet: worker_init_fn, which is for processes.
    """

    from_generator = staticmethod(OlderLoader.from_generator)
    from_dataset = staticmethod(OlderLoader.from_dataset)

    def __init__(  # noqa: PLR0913, PLR0917 (the original's arguments)
        self,
        dataset: Any,
        feed_list: Sequence[Any] | None = None,
        places: Any = None,
        return_list: bool = False,
        batch_sampler: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Sequence[Any]], list[Any]] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        # `use_buffer_reader` and the others tune processes of the original; threads here share memory anyway.
        worker_init_fn: Any = None,
        prefetch_factor: int = 2,
        persistent_workers: bool = False,
    ) -> None:
        del use_buffer_reader, use_shared_memory, timeout, prefetch_factor, persistent_workers
        if worker_init_fn is not None:
            raise NotThereYet("DataLoader: worker_init_fn is for processes, and samples are got by threads", hint="leave it out")
        one_by_one = isinstance(dataset, IterableDataset)
        if one_by_one and (shuffle or batch_sampler is not None):
            raise FluidValueError("an IterableDataset has no order to draw", hint="leave shuffle and batch_sampler out")
        if batch_sampler is not None and (batch_size, shuffle, drop_last) != (1, False, False):
            raise FluidValueError("batch_sampler says batch_size, shuffle and drop_last itself", hint="leave these out")
        self.dataset, self.feed_list, self.return_list = dataset, feed_list, return_list or not feed_list
        self.collate_fn, self.num_workers = collate_fn or default_collate, num_workers
        self.batch_size, self.drop_last = batch_size, drop_last
        self.batch_sampler = batch_sampler
        if not one_by_one and batch_sampler is None:
            self.batch_sampler = BatchSampler(dataset, None, shuffle, batch_size, drop_last)

    def _samples(self) -> Iterator[list[Any]]:
        if self.batch_sampler is None:
            samples = iter(self.dataset)
            while batch := list(itertools.islice(samples, self.batch_size)):
                if len(batch) == self.batch_size or not self.drop_last:
                    yield batch
        elif self.num_workers:
            # Threads and not processes: what samples are made by is mostly NumPy or decoding, which releases Python's lock.
            with ThreadPoolExecutor(self.num_workers) as pool:
                for numbers in self.batch_sampler:
                    yield list(pool.map(self.dataset.__getitem__, numbers))
        else:
            for numbers in self.batch_sampler:
                yield [self.dataset[i] for i in numbers]

    def __iter__(self) -> Iterator[Any]:
        for samples in self._samples():
            arrays = self.collate_fn(samples)
            yield arrays if self.return_list else [{v.name: a for v, a in zip(self.feed_list or (), arrays, strict=True)}]

    def __len__(self) -> int:
        if self.batch_sampler is None:
            raise FluidTypeError("batches of an IterableDataset are not counted", hint="iterate over them")
        return len(self.batch_sampler)


__all__ = [
    "BatchSampler", "DataLoader", "Dataset", "DistributedBatchSampler", "GeneratorLoader", "IterableDataset", "Subset", "TensorDataset",
    "default_collate", "random_split",
]  # fmt: skip
