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
    """What a step gave, by device with samples; those of a batch in parts, one part after the other.

    Args:
        values: name -> value.
        sizes: samples.
        shares: name -> how much each device's value counts in its mean: the rows that it is taken over.
        plan: that ran; None for several.
    """

    values: Sequence[Mapping[str, Array]]
    sizes: Sequence[int]
    shares: Mapping[str, Sequence[int]]
    plan: Plan | None = None

    def merged(self, name: str, how: str) -> Array:
        """Return a variable over all devices; `how` as for `merge`, with the mean by samples."""
        return np.asarray(merge([v[name] for v in self.values], self.sizes, how))

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
        weight = sum(counts) if len(counts) == len(shares) else sum(self.sizes)
        if how == "mean":
            return mean_of_numbers(found, counts), weight
        return float(np.asarray(merge(found, counts, how), np.float64).mean()), weight
