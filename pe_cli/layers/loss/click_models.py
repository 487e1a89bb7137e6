"""Layers of click models: continuous_value_model, and sampling_id."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: str = "float32") -> Variable:
    """Draw a column for every row, each with the probability that the row has there.

    Args:
        x: [batch, columns] probabilities.
        min: lower end of the numbers that are drawn.
        max: upper end of them.
        seed: own seed, the same columns at every step; 0 for new ones at every step.
        dtype: element type of the probabilities; the columns are int64 whatever it is.

    Returns:
        int64 [batch].

    Raises:
        PeError: other types.

    Source:
        fluid.layers.sampling_id.
    """
    helper = LayerHelper("sampling_id")
    # Checked although it changes nothing: a mistyped argument of fluid's should not pass in silence.
    if dtype not in ("float32", "float64", "int64"):
        raise helper.error(f"sampling_id: dtype is {dtype}", hint="float32 or float64")
    return helper.one("sampling_id", {"X": x}, {"min": min, "max": max, "seed": seed})


@layer
def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Make logarithms of the first two columns, how often something was shown and clicked, or leave them out.

    out[r, 0] = ln(show + 1), out[r, 1] = ln(click + 1) - ln(show + 1)

    Args:
        input: [rows, width], show and click first.
        cvm: [rows, 2], show and click; what is learned does not pass through here in the original, either.
        use_cvm: keep the two columns.

    Returns:
        [rows, width], or [rows, width - 2].

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.continuous_value_model.
    """
    return LayerHelper("cvm").one("cvm", {"X": input, "CVM": cvm}, {"use_cvm": use_cvm}, "Y")
