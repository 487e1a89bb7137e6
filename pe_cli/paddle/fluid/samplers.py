"""Orders in which samples are read, and data sets that are made of others, as `paddle.io` has them."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.data_sets import Dataset, IterableDataset


class Sampler:
    """Base of what gives the numbers of samples in the order in which they are read.

    Args:
        data_source: a data set with a length.

    Raises:
        NotImplementedError: it is iterated over, and the subclass has no `__iter__`.
    """

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__: define __iter__(self), which yields numbers of samples")

    def __len__(self) -> int:
        return len(self.data_source)


class SequenceSampler(Sampler):
    """All samples, one after the other."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


class RandomSampler(Sampler):
    """Samples in an order that is drawn anew in every pass, by Python's `random`.

    Args:
        data_source: a data set with a length.
        replacement: a sample may come several times.
        num_samples: how many; default: all. Without replacement it is all.
        generator: an iterator of numbers of samples, instead of a draw.

    Raises:
        FluidValueError: num_samples without replacement, or below 1; a ValueError.
    """

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None) -> None:
        super().__init__(data_source)
        if num_samples is not None and (not replacement or num_samples < 1):
            raise FluidValueError(f"RandomSampler: num_samples is {num_samples}", hint="at least 1, with replacement=True")
        self.replacement, self.generator = replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        if self.generator is not None:
            # An iterator is not drawn from: each pass takes what is next of it.
            return itertools.islice(self.generator, self.num_samples)
        return iter(random.choices(range(count), k=self.num_samples) if self.replacement else random.sample(range(count), count))

    def __len__(self) -> int:
        return int(self.num_samples)


class WeightedRandomSampler(Sampler):
    """Samples that are drawn in proportion to weights, by Python's `random`.

    Args:
        weights: of each sample, at least 0.
        num_samples: how many are drawn.
        replacement: a sample may come several times.

    Raises:
        FluidValueError: weights below 0 or all 0, or fewer samples than are drawn without replacement; a ValueError.
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True) -> None:
        super().__init__()
        self.weights, self.num_samples, self.replacement = [float(w) for w in weights], num_samples, replacement
        positive = sum(w > 0 for w in self.weights)
        if min(self.weights, default=-1.0) < 0 or not positive or num_samples < 1 or (not replacement and num_samples > positive):
            raise FluidValueError(f"WeightedRandomSampler: {num_samples} of {positive} samples with a weight", hint="weights from 0 on")

    def __iter__(self) -> Iterator[int]:
        numbers = range(len(self.weights))
        if self.replacement:
            return iter(random.choices(numbers, self.weights, k=self.num_samples))
        # Of waiting times Exp(weight), the least are those of samples drawn by weight.
        waiting = {i: random.expovariate(w) for i, w in enumerate(self.weights) if w > 0}
        return iter(sorted(waiting, key=waiting.__getitem__)[: self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some samples, in an order that is drawn anew in every pass, by Python's `random`.

    Args:
        indices: numbers of the samples.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__()
        self.indices = list(indices)

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(self.indices, len(self.indices)))

    def __len__(self) -> int:
        return len(self.indices)


# --- data sets of others -----------------------------------------------------------------------------------------------------


class ConcatDataset(Dataset):
    """Data sets one behind the other.

    Args:
        datasets: each with a length.
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"there is no sample {index} of {len(self)}")
        # An empty data set has the same sum as the one before it: bisect_right passes it by.
        at = bisect.bisect_right(self.cumulative_sizes, number)
        return self.datasets[at][number - (self.cumulative_sizes[at - 1] if at else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0


class ComposeDataset(Dataset):
    """Data sets side by side: a sample has the fields of all.

    Args:
        datasets: each of one length.

    Raises:
        FluidValueError: lengths differ; a ValueError.
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = list(datasets)
        lengths = {len(d) for d in self.datasets}
        if len(lengths) != 1:
            raise FluidValueError(f"ComposeDataset: lengths are {sorted(lengths)}", hint="data sets of one length")

    def __getitem__(self, index: int) -> Any:
        fields = [d[index] for d in self.datasets]
        return tuple(v for one in fields for v in (one if isinstance(one, (list, tuple)) else (one,)))

    def __len__(self) -> int:
        return len(self.datasets[0])


class ChainDataset(IterableDataset):
    """Streams of samples one behind the other.

    Args:
        datasets: what is gone through.
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)


__all__ = [
    "ChainDataset", "ComposeDataset", "ConcatDataset", "RandomSampler", "Sampler", "SequenceSampler", "SubsetRandomSampler",
    "WeightedRandomSampler",
]  # fmt: skip
