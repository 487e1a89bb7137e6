"""Batch and StepResult: a checked batch that is ready to run, and what a step computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pe_cli.execute.merge import mean_of_numbers, merge
from pe_cli.execute.plan.plan import Plan
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
        means: means of numbers that are known already, with how much each counts: name -> (values, weight).
        late: the step may still be running; it is waited for when a value is looked at.
    """

    values: Sequence[Mapping[str, Array]]
    sizes: Sequence[int]
    shares: Mapping[str, Sequence[int]]
    plan: Plan | None = None
    whole: int | None = None
    means: Mapping[str, tuple[Array, int]] = field(default_factory=dict)
    late: bool = False

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
        if how == "mean" and name in self.means:
            mean, count = self.means[name]
            return float(mean.item()) if mean.size == 1 else float(mean.astype(np.float64).mean()), count
        shares = self.shares[name]
        found, counts = [], []
        for value, count in zip(self.values, shares, strict=True):
            if name in value:
                found.append(value[name])
                counts.append(count)
        weight = sum(shares)
        # Only a whole set of devices has places in the tree of sums: a value that some lack is added up in the order of devices instead.
        if how == "mean":
            graph = self.plan.graph if self.plan else None
            places = (len(graph.places), graph.active) if graph and len(found) == len(graph.active) else None
            return mean_of_numbers(found, counts, places), weight
        return float(np.asarray(merge(found, counts, how), np.float64).mean()), weight

    def reduced(self, names: Sequence[str]) -> StepResult:
        """Return the same with the means of some variables."""
        means: dict[str, tuple[Array, int]] = {}
        # After a step of several parts the mean lies in the last part alone; what is larger than a number is the same on all, so nothing is
        # averaged.
        for name in names:
            last = self.values[-1][name]
            value, weight = self.number(name) if last.size == 1 else (last, sum(self.sizes))
            # In the dtype of the variable: whoever compares a run with one that kept all values sees the same rounding.
            means[name] = np.asarray(value, last.dtype).reshape(last.shape), weight
        return replace(self, means={**self.means, **means})

    def last(self, name: str) -> Array:
        """Return the value of a variable that is the same on every device, or that the last part of a batch alone has."""
        return self.means[name][0] if name in self.means else next(v[name] for v in reversed(self.values) if name in v)


def joined_parts(parts: Sequence[StepResult]) -> StepResult:
    """Return what a step gave whose batch was done in parts; a mean that the last part alone has is the whole batch's."""
    last = parts[-1]
    sizes = [n for part in parts for n in part.sizes]
    means: dict[str, tuple[Array, int]] = {}
    for name, (value, _) in last.means.items():
        # Means of parts that differ in samples are weighed by samples in float64, as `merge` weighs devices.
        found = [(part.means[name][0], sum(part.sizes)) for part in parts if name in part.means]
        if len(parts) > len(found) or len(found) == 1:
            means[name] = value, sum(sizes)
            continue
        total = sum(n / max(1, sum(sizes)) * v.astype(np.float64) for v, n in found)
        means[name] = np.asarray(total).astype(value.dtype), sum(sizes)
    values = [of for part in parts for of in part.values or [{}] * len(part.sizes)]
    names = dict.fromkeys(n for part in parts for of in part.values for n in of)
    return StepResult(values, sizes, dict.fromkeys(names, sizes), last.plan, means=means)
