"""histogram: how many numbers fall into each of several ranges of one width."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import NUMBERS, TensorType
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, Real, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op


@helper
def _bin(value, low, high, bins):
    """Return the number of the range that a value is in; below 0 outside of all."""
    # The upper end itself belongs to the last range, and rounding may lift a number below it there, too.
    if not low <= value <= high:
        return -1
    return min(int((value - low) * bins / (high - low)), bins - 1)


@kernel
def find_ends(x: Ptr, ends: PtrF64, n: Int, low: Real, high: Real):
    """ends = low and high; those of x where both are 0, and 1 further on either side where both are the same."""
    ends[0] = low
    ends[1] = high
    # Both 0 is the original's way to ask for the ends of the data.
    if low == 0.0 and high == 0.0 and n > 0:
        ends[0] = math.inf
        ends[1] = -math.inf
        for i in range(n):
            # A NaN is in no range and must not be an end either: no number would lie between.
            if x[i] == x[i]:
                ends[0] = min(ends[0], x[i])
                ends[1] = max(ends[1], x[i])
    if ends[0] == ends[1]:
        ends[0] -= 1.0
        ends[1] += 1.0


@kernel
def count_bins(x: Ptr, ends: PtrF64, out: PtrI64, n: Int, bins: Int):
    """out[b] = how many of x are in range b."""
    for b in range(bins):
        out[b] = 0
    for i in range(n):
        b = _bin(x[i] * 1.0, ends[0], ends[1], bins)
        if b >= 0:
            out[b] += 1


@op(
    "histogram",
    faces=[
        Face("", "input bins min max"),
        Functional("", "input bins=100 min=0 max=0 name", "Count entries in bins of one width; see `fluid.layers.histogram`.", at="tensor"),
    ],
    inputs="X",
    attrs={
        "bins": Attr(100, "how many ranges"),
        "min": Attr(0.0, "lower end of the first range, in the unit of X"),
        "max": Attr(0.0, "upper end of the last range, in the unit of X; X's own ends where both are 0"),
    },
    differentiable="",
    samples=[
        Sample({"X": (3, 40)}, {"bins": 7, "min": -1.5, "max": 1.5}, "a matrix"),
        Sample({"X": lambda rng: rng.integers(0, 5, 30)}, {"bins": 3}, "whole numbers, over their own range"),
        Sample({"X": (1,)}, {"bins": 4}, "one element"),
        Sample({"X": (0, 3)}, {"bins": 2}, "empty"),
    ],
)
def histogram(x: TensorType, *, bins: int, min: float, max: float) -> TensorType:
    """Count how many numbers fall into each of several ranges of one width.

    Out[b] = how many x have min + b w <= x < min + (b + 1) w,  w = (max - min) / bins; max itself is in the last range.
    Numbers outside, and NaN, are not counted.

    Args:
        X: any shape; float32, float64, int32 or int64.
        bins: ranges, at least 1.
        min: lower end.
        max: upper end, not below min. Where both are 0, they are the smallest and the largest of X, and where both are the same,
            each is put 1 further out.

    Returns:
        Out: [bins] int64.

    Raises:
        PeError: X has no numbers, bins is below 1, or max is below min.

    Source:
        paddle.histogram.
    """
    if x.dtype not in NUMBERS:
        raise PeError(f"histogram needs numbers, got {x}", hint="cast it")
    if bins < 1 or not (np.isfinite([min, max]).all() and min <= max):
        raise PeError(f"histogram needs at least 1 range and min <= max, got bins {bins}, min {min:g}, max {max:g}")
    return TensorType((bins,), "int64")


@histogram.lower("cpu")
def histogram_cpu(o: Lowering) -> None:
    """Find the ends, then count."""
    x, ends = o.input("X"), o.scratch(2, "float64")
    o.call(find_ends, x, ends, x.size, float(o.attrs["min"]), float(o.attrs["max"]))
    o.call(count_bins, x, ends, o.output("Out"), x.size, o.attrs["bins"])


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(find_ends)
def find_ends_cuda(x: Ptr, ends: PtrF64, n: Int, low: Real, high: Real):
    """One thread."""
    for _ in range(1):
        ends[0] = low
        ends[1] = high
        if low == 0.0 and high == 0.0 and n > 0:
            ends[0] = math.inf
            ends[1] = -math.inf
            for i in range(n):
                if x[i] == x[i]:
                    ends[0] = min(ends[0], x[i])
                    ends[1] = max(ends[1], x[i])
        if ends[0] == ends[1]:
            ends[0] -= 1.0
            ends[1] += 1.0


@on_cuda(count_bins)
def count_bins_cuda(x: Ptr, ends: PtrF64, out: PtrI64, n: Int, bins: Int):
    """One thread per range, which goes through all of x."""
    # A thread owns a range and passes over all numbers: no atomic sums.
    for b in range(bins):
        total = 0
        for i in range(n):
            if _bin(x[i] * 1.0, ends[0], ends[1], bins) == b:
                total += 1
        out[b] = total


also_on_cuda(histogram)
