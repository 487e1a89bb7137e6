"""A batch that is ready to run, and what a step made of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.execute.merge import mean_of_numbers, merge
from pe_cli.execute.plan import Plan
from pe_cli.execute.request import Request

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that has been checked and split, with the plan that runs it.

    Args:
        plan: for its types and fetches.
        request: that the plan served when the batch was made; plans are refitted for others.
        parts: what each device of this process is fed.
        samples: of each device of this process.
    """

    plan: Plan
    request: Request
    parts: Sequence[Mapping[str, Array]]
    samples: Sequence[int]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave, by device with samples; those of a batch in parts, one part after the other, and so those of several runs.

    Args:
        values: name -> value.
        sizes: samples.
        shares: name -> how much each device's value counts in its mean: the rows that it is taken over; 0 where it is not computed.
        plan: that ran; None for several.
        whole: samples of the batch, where several runs take the same ones; None where `sizes` adds up to them.
    """

    values: Sequence[Mapping[str, Array]]
    sizes: Sequence[int]
    shares: Mapping[str, Sequence[int]]
    plan: Plan | None = None
    whole: int | None = None

    @property
    def samples(self) -> int:
        """Samples of the batch."""
        return sum(self.sizes) if self.whole is None else self.whole

    def merged(self, name: str, how: str) -> Array:
        """Return a variable over all devices; `how` as for `merge`, with the mean by samples."""
        held = [(v[name], size) for v, size in zip(self.values, self.sizes, strict=True) if name in v]
        return np.asarray(merge([value for value, _ in held], [size for _, size in held], how))

    def number(self, name: str, how: str = "mean") -> tuple[float, int]:
        """Return a single number over all devices, and how much it counts beside those of other steps.

        Args:
            name: of the variable; one that the last part of a batch alone has is the whole batch's.
            how: mean, by what the number is taken over on each device, or sum.
        """
        shares = self.shares[name]
        found, counts = [], []
        for value, count in zip(self.values, shares, strict=True):
            if name in value:
                found.append(value[name])
                counts.append(count)
        weight = sum(shares)
        if how == "mean":
            return mean_of_numbers(found, counts), weight
        return float(np.asarray(merge(found, counts, how), np.float64).mean()), weight
