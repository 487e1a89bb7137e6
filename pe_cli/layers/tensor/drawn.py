"""Layers that draw numbers at every step, by the names of 1.8: randint, randn."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.program.ir import Variable

#: Whole numbers that float64 can tell apart.
_EXACT = 1 << 52


@layer
def randint(low: int, high: int | None = None, shape: list[int] | None = None, dtype: str = "int64", seed: int = 0) -> Variable:
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
    drawn = find("uniform_random").fn([1] if shape is None else shape, "float64", float(first), float(last), seed)
    whole = helper.one("clip", {"X": helper.one("floor", {"X": drawn})}, {"min": float(first), "max": float(last - 1)})
    return helper.one("cast", {"X": whole}, {"out_dtype": dtype})


@layer
def randn(shape: list[int], dtype: str = "float32") -> Variable:
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
    drawn: Variable = find("gaussian_random").fn(shape, dtype=dtype)
    return drawn
