"""Random tensors that are drawn anew at every step: uniform, normal and integer."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Sizes, fed_sizes
from pe_cli.program.ir import Variable

#: Whole numbers that float64 can tell apart.
_EXACT = 1 << 52


@layer
def uniform_random(
    shape: Sizes,
    dtype: str = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Draw numbers from [min, max) at every step.

    Args:
        shape: sizes.
        dtype: float32 or float64.
        min: smallest value.
        max: limit that is not reached.
        seed: own seed; 0 for the program's.

    Returns:
        Of that shape and dtype.

    Raises:
        PeError: a bad shape or dtype.

    Source:
        fluid.layers.uniform_random.
    """
    helper = LayerHelper("uniform_random")
    sizes, fed = fed_sizes(helper, "shape", shape)
    attrs = {"shape": sizes, "dtype": dtype, "min": min, "max": max, "seed": seed}
    return helper.one("uniform_random", {"ShapeTensor": fed}, attrs)


@layer
def gaussian_random(
    shape: Sizes, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: str = "float32"
) -> Variable:
    """Draw normal numbers at every step.

    Args:
        shape: sizes.
        mean: of the distribution.
        std: standard deviation.
        seed: own seed; 0 for the program's.
        dtype: float32 or float64.

    Returns:
        Of that shape and dtype.

    Raises:
        PeError: a bad shape or dtype.

    Source:
        fluid.layers.gaussian_random.
    """
    helper = LayerHelper("gaussian_random")
    sizes, fed = fed_sizes(helper, "shape", shape)
    attrs = {"shape": sizes, "mean": mean, "std": std, "seed": seed, "dtype": dtype}
    return helper.one("gaussian_random", {"ShapeTensor": fed}, attrs)


@layer
def randint(low: int, high: int | None = None, shape: Sizes | None = None, dtype: str = "int64", seed: int = 0) -> Variable:
    """Draw whole numbers at every step, each as likely as another.

    Args:
        low: the smallest; where high is null, 0 is, and low is the limit.
        high: limit that is not reached.
        shape: sizes; [1] by default.
        dtype: element type.
        seed: own seed, the same numbers at every step; 0 takes the program's, with new ones at every step.

    Returns:
        Of that shape and dtype; gradients stop there.

    Raises:
        PeError: there is no whole number in the range, a negative size, or an unknown dtype.

    Source:
        fluid.layers.randint.
    """
    helper = LayerHelper("randint")
    first, last = (0, low) if high is None else (low, high)
    if last <= first or max(abs(first), abs(last)) > _EXACT:
        raise helper.error(f"randint: there is no whole number from {first} to below {last}", hint="high above low")
    # In float64, which holds these whole numbers exactly; clipped, as a number just below the upper end may be rounded to it.
    drawn = uniform_random([1] if shape is None else shape, "float64", float(first), float(last), seed)
    whole = helper.one("clip", {"X": helper.one("floor", {"X": drawn})}, {"min": float(first), "max": float(last - 1)})
    return helper.one("cast", {"X": whole}, {"out_dtype": dtype})


@layer
def randn(shape: Sizes, dtype: str = "float32") -> Variable:
    """Draw standard normal numbers at every step.

    Args:
        shape: sizes.
        dtype: element type.

    Returns:
        Of that shape and dtype; gradients stop there.

    Raises:
        PeError: a negative size or an unknown dtype.

    Source:
        fluid.layers.randn.
    """
    return gaussian_random(shape, dtype=dtype)
