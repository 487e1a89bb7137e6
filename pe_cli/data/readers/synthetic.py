"""Synthetic data: samples that are computed, and that a model can learn from."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.config.sections.value_types import Count
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.data.counter_random import random_bits, stream_key, uniform
from pe_cli.data.dataset import Array, Batch, Dataset
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.ops.define.lod import offsets_name, offsets_of, ranges

# places in a bank of noise where a sample may start; two banks make pairs of starts that practically never repeat
_STARTS = 1 << 16
_PROTOTYPES = 4096
_DETAIL = 1024
# elements that are made at a time, so that they stay in cache
_BLOCK = 1 << 16
_MOST_ELEMENTS = 1 << 28
# whole numbers up to here are exact in float64
_MOST_STEPS = 1 << 53
# rows of a sequence; the noise of row r of sample i is that of number i * _MOST_ROWS + r
_MOST_ROWS = 1 << 20
_HIGH = {"float32": 1.0, "float64": 1.0, "uint8": 256.0, "bool": 2.0}


class FieldOptions(BaseModel):
    """One field of the synthetic reader."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    shape: tuple[Count, ...] = Field(description="sizes of one sample, without the batch axis")
    dtype: Literal["float32", "float64", "int64", "int32", "uint8", "bool"] = "float32"
    low: float = Field(0.0, allow_inf_nan=False, description="smallest value")
    high: float | None = Field(
        None,
        allow_inf_nan=False,
        description="values stay below it; 1 for floats, 256 for uint8, else it must be given",
    )
    noise: float = Field(0.5, ge=0, le=1, description="share of the range that is noise; 0 repeats the prototype")
    classes: Count | None = Field(None, description="makes it a label: class indices in [0, classes)")
    lengths: tuple[Count, Count] | None = Field(
        None, description="each sample is a sequence of so many rows, at least and at most; shape is that of one row"
    )

    @model_validator(mode="after")
    def _consistent(self) -> FieldOptions:
        if self.lengths and not self.lengths[0] <= self.lengths[1] <= _MOST_ROWS:
            raise ValueError(f"lengths are [least, most], at most {_MOST_ROWS}, got {list(self.lengths)}")
        if math.prod(self.shape) > _MOST_ELEMENTS:
            raise ValueError(f"a sample of {math.prod(self.shape)} elements is more than {_MOST_ELEMENTS}")
        if self.classes is not None:
            extra = self.model_fields_set & {"low", "high", "noise"}
            if extra:
                raise ValueError(f"classes already says the values, so {' and '.join(sorted(extra))} has no meaning")
            if self.dtype in FLOATS or self.classes > self._largest() + 1:
                raise ValueError(f"{self.classes} class indices need an integer type, int64 is usual, not {self.dtype}")
            return self
        if self.high is None and self.dtype not in _HIGH:
            raise ValueError(f"{self.dtype} values need high (or classes, when it is a label)")
        if not 0 < self.top - self.low <= float(np.finfo(np.float32).max):
            raise ValueError(f"low {self.low:g} must be below high {self.top:g}, by a number that float32 holds")
        if self.dtype not in FLOATS and (self.low < self._smallest() or self.top > self._largest() + 1):
            raise ValueError(f"values from {self.low:g} to {self.top:g} do not fit {self.dtype}")
        if self.dtype not in FLOATS and not 0 < math.ceil(self.top) - math.ceil(self.low) <= _MOST_STEPS:
            raise ValueError(f"between {self.low:g} and {self.top:g} there must be 1 to 2**53 whole numbers")
        return self

    def _largest(self) -> int:
        return 1 if self.dtype == "bool" else int(np.iinfo(self.dtype).max)

    def _smallest(self) -> int:
        return 0 if self.dtype == "bool" else int(np.iinfo(self.dtype).min)

    @property
    def top(self) -> float:
        """The largest value; whole numbers stay below it."""
        return self.high if self.high is not None else _HIGH[self.dtype]


class SyntheticOptions(ReaderOptions):
    """Options of the synthetic reader."""

    samples: Count = Field(256, le=1 << 40, description="number of samples")
    fields: dict[str, FieldOptions] = Field(min_length=1, description="field -> what it holds")
    seed: int = Field(0, strict=True, description="another seed gives other samples")


@reader("synthetic", SyntheticOptions)
def open_synthetic(options: SyntheticOptions, origin: Origin) -> Dataset:
    """Compute samples from a seed; no file is read.

    Sample i of a field depends on the seed, the field's name and i, and on nothing else. Every sample has a class;
    a field with `classes` tells it, the others are low + (high - low) * ((1 - noise) * prototype[class] + noise * u),
    with u in [0, 1) the mean of two uniform draws. Where no field has classes, a hidden number in [0, 1) blends two
    prototypes, so that one field can be predicted from another. Equal seeds share their prototypes: with `skip` an
    eval set has other samples of the same classes.
    """
    return Synthetic(options)


class Synthetic:
    """Samples as a function of (seed, field, index).

    Args:
        options: number of samples, seed and fields.
    """

    def __init__(self, options: SyntheticOptions) -> None:
        self.fields = {name: TensorType(field.shape, field.dtype) for name, field in options.fields.items()}
        self.sequences = frozenset(name for name, field in options.fields.items() if field.lengths)
        self._options = options
        self._classes = max((field.classes or 0 for field in options.fields.values()), default=0)
        self._sources = {
            name: _Noise(options.seed, name, field, min(self._classes or 2, _PROTOTYPES))
            for name, field in options.fields.items()
            if field.classes is None
        }

    def __len__(self) -> int:
        return self._options.samples

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Compute some samples; see `Dataset.take`."""
        latent = self._latent(indices)
        batch: Batch = {}
        for name, field in self._options.fields.items():
            if field.lengths is None:
                batch[name] = self._field(name, field, indices, latent)
                continue
            least, most = field.lengths
            spread = random_bits(stream_key(self._options.seed, name, "length"), indices) % np.uint64(most - least + 1)
            lengths = least + spread.astype(np.int64)
            rows = ranges(indices * _MOST_ROWS, lengths)
            batch[offsets_name(name, 0)] = offsets_of(lengths)
            batch[name] = self._field(name, field, rows, np.repeat(latent, lengths))
        return batch

    def _latent(self, indices: NDArray[np.int64]) -> Array:
        if not self._classes:
            return uniform(stream_key(self._options.seed, "blend"), indices).astype(np.float32)
        # each run of `classes` samples has every class once, from a random start: no class is missing
        key = stream_key(self._options.seed, "class")
        turn = random_bits(key, indices // self._classes) % np.uint64(self._classes)
        return (indices + turn.astype(np.int64)) % self._classes

    def _field(self, name: str, field: FieldOptions, indices: NDArray[np.int64], latent: Array) -> Array:
        shape = (len(indices), *field.shape)
        if field.classes is not None:
            # the first element is the sample's class, the others follow from it by a fixed shift
            places = np.arange(math.prod(field.shape), dtype=np.int64)
            shifts = random_bits(stream_key(self._options.seed, name, "shift"), places) % np.uint64(field.classes)
            shifts[0] = 0
            labels = (latent[:, None] + shifts.astype(np.int64)) % field.classes
            return labels.astype(field.dtype).reshape(shape)
        values = self._sources[name].draw(indices, latent)
        if field.dtype in FLOATS:
            return values.astype(field.dtype, copy=False).reshape(shape)
        first = math.ceil(field.low)
        count = math.ceil(field.top) - first
        steps = np.minimum(np.floor(values.astype(np.float64) * count), count - 1)
        return (steps.astype(np.int64) + first).astype(field.dtype).reshape(shape)


class _Noise:
    """Prototypes and two banks of noise of one field, already in its range (whole numbers: in [0, 1]).

    Hashing every element of a large image would be slower than training on it; a sample's noise is instead the mean
    of a stretch of one bank and a stretch of the other, whose starts are hashed.
    """

    def __init__(self, seed: int, name: str, field: FieldOptions, prototypes: int) -> None:
        self._low, self._high = (field.low, field.top) if field.dtype in FLOATS else (0.0, 1.0)
        self._size = math.prod(field.shape)
        width = self._high - self._low

        def numbers(what: str, count: int, share: float, low: float = 0.0) -> NDArray[np.float32]:
            key, out = stream_key(seed, name, what), np.empty(count, np.float32)
            for begin in range(0, count, _BLOCK):
                counters = np.arange(begin, min(begin + _BLOCK, count), dtype=np.int64)
                out[begin : begin + _BLOCK] = uniform(key, counters) * share * width + low
            return out

        detail = min(self._size, _DETAIL)
        self._prototypes = numbers("prototype", prototypes * detail, 1 - field.noise, self._low)
        self._prototypes = self._prototypes.reshape(prototypes, detail)
        # a large sample repeats its prototype's numbers in stretches, so that a thousand classes fit in memory
        self._spread = np.arange(self._size) * detail // self._size
        count = self._size + _STARTS - 1
        self._banks = [
            (
                stream_key(seed, name, bank, "start"),
                sliding_window_view(numbers(bank, count, field.noise / 2), self._size),
            )
            for bank in ("first", "second")
        ]

    def draw(self, indices: NDArray[np.int64], latent: Array) -> NDArray[np.float32]:
        """Return [batch, size] between low and high."""
        out = np.empty((len(indices), self._size), np.float32)
        rows = max(1, _BLOCK // self._size)
        for start in range(0, len(indices), rows):
            part = slice(start, start + rows)
            self._fill(out[part], indices[part], latent[part])
        return out

    def _fill(self, out: NDArray[np.float32], indices: NDArray[np.int64], latent: Array) -> None:
        if latent.dtype == np.float32:
            base = self._prototypes[0] + latent[:, None] * (self._prototypes[1] - self._prototypes[0])
        else:
            base = self._prototypes[latent % len(self._prototypes)]
        if self._size == base.shape[1]:
            out[:] = base
        else:
            np.take(base, self._spread, axis=1, out=out, mode="clip")
        for key, bank in self._banks:
            starts = random_bits(key, indices) % np.uint64(_STARTS)
            out += bank[starts.astype(np.int64)]
        np.clip(out, self._low, self._high, out=out)
