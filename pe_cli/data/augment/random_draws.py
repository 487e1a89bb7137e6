"""Random draws for augmentation: functions of the seed, the epoch and the sample alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.counter_random import stream_key, uniform
from pe_cli.data.fields import Rows

#: Numbers that one sample may draw under one name, at most.
MOST = 1 << 22
#: Tells apart the times that a sample is drawn in an epoch; odd, so that no two of them meet.
_AGAIN = np.array([0x51A9B3D1F2C6E9A7], np.int64)
#: Tries of a method that rejects; the chance that a gamma number needs more is below 1e-20.
TRIES = 16


@dataclass(frozen=True)
class Draws:
    """Random numbers for the samples of a batch.

    Args:
        seed: another one draws other numbers.
        epoch: from 0.
        samples: int64 [batch], rows of the table: splits and shuffling do not change what is done with a row in an epoch.
        times: int64 [batch], how often each was drawn before in this epoch, where sampling repeats samples; None for never.
        place: tells apart the augmentations of a list.
    """

    seed: int
    epoch: int
    samples: Rows
    times: Rows | None = None
    place: str = ""

    def __len__(self) -> int:
        return len(self.samples)

    def at(self, place: str) -> Draws:
        """Return the draws of one augmentation of a list."""
        return replace(self, place=place)

    def _key(self, name: str) -> int:
        return stream_key("augment", self.seed, self.epoch, self.place, name)

    def _first(self) -> Rows:
        first: Rows = np.multiply(self.samples, MOST, dtype=np.int64)
        if self.times is not None:
            first += self.times * _AGAIN
        return first

    def uniform(self, name: str, low: float = 0.0, high: float = 1.0) -> NDArray[np.float64]:
        """Return one number of [low, high) for each sample, float64 [batch]."""
        return low + (high - low) * uniform(self._key(name), self._first())

    def several(self, name: str, count: int) -> NDArray[np.float64]:
        """Return `count` numbers of [0, 1) for each sample, float64 [batch, count]."""
        assert count <= MOST
        return uniform(self._key(name), self._first()[:, None] + np.arange(count, dtype=np.int64))

    def each(self, name: str, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return as many numbers of [0, 1) for each sample as counts says, one sample after the other, float64 [sum of counts]."""
        within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        return uniform(self._key(name), np.repeat(self._first(), counts) + within % MOST)

    def chosen(self, p: float) -> NDArray[np.bool_]:
        """Return which samples are changed, each with the chance p, bool [batch]."""
        return self.uniform("chosen") < p

    def whole(self, name: str, count: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return a whole number from 0 to count - 1 for each sample, int64 [batch]."""
        drawn = np.floor(self.uniform(name) * count).astype(np.int64)
        found: NDArray[np.int64] = np.minimum(drawn, np.asarray(count) - 1)
        return found

    def normal(self, name: str, count: int) -> NDArray[np.float64]:
        """Return `count` numbers of the standard normal distribution for each sample, float64 [batch, count].

        Source:
            Box and Muller 1958.
        """
        radius = np.sqrt(-2 * np.log1p(-self.several(f"{name} radius", count)))
        found: NDArray[np.float64] = radius * np.cos(2 * np.pi * self.several(f"{name} angle", count))
        return found

    def beta(self, name: str, alpha: float) -> NDArray[np.float64]:
        """Return a number of the distribution Beta(alpha, alpha) for each sample, float64 [batch]."""
        first, second = self._gamma(f"{name} first", alpha), self._gamma(f"{name} second", alpha)
        # compared as logarithms: for a small alpha both may be below the smallest float64
        found: NDArray[np.float64] = 1 / (1 + np.exp(np.clip(second - first, -700, 700)))
        return found

    def _gamma(self, name: str, alpha: float) -> NDArray[np.float64]:
        """Return the logarithm of a gamma number for each sample.

        Source:
            Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; section 6 for alpha below 1.
        """
        shape = alpha + 1 if alpha < 1 else alpha
        d = shape - 1 / 3
        c = 1 / np.sqrt(9 * d)
        x, u = self.normal(f"{name} normal", TRIES), self.several(f"{name} accepted", TRIES)
        v = (1 + c * x) ** 3
        with np.errstate(invalid="ignore", divide="ignore"):
            good = (v > 0) & (np.log1p(-u) < 0.5 * x * x + d - d * v + d * np.log(v))
        # where none is good the last try stands in
        good[:, -1] |= ~good.any(axis=1)
        chosen = np.maximum(v[np.arange(len(v)), good.argmax(axis=1)], 1e-300)
        found: NDArray[np.float64] = np.log(d * chosen)
        return found if alpha >= 1 else found + np.log1p(-self.uniform(f"{name} power")) / alpha
