"""Rotary position embedding: pairs of values are turned by angles that grow with the position."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import MAX_VALUES
from pe_cli.program.ir import Variable


@layer
def rotary_embedding(input: Variable, num_heads: int = 1, base: float = 10000.0, name: str | None = None) -> Variable:
    """Turn queries or keys by their positions, so that products of them depend on distances alone.

    Each head of width w has pairs (i, i + w / 2); at position t pair i is turned by the angle t base^(-2 i / w).

    Args:
        input: [batch, time, num_heads w], w even.
        num_heads: heads side by side in the last axis.
        base: of the angles, no unit.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: input is none such, or the time is not known.

    Source:
        Su et al. 2021, "RoFormer", eq. 15; pairs lie as in Llama.
    """
    helper = LayerHelper("rotary_embedding", name)
    helper.check_rank(input, "input", 3, "[batch, time, width]")
    time, width = input.shape[1:]
    if num_heads < 1 or time < 1 or width < 1 or width % (2 * num_heads) or not base > 0:
        text = f"rotary_embedding: {num_heads} heads on {input} with base {base}"
        raise helper.error(text, hint="give [batch, time, a multiple of 2 num_heads] with a known time, and a base above 0")
    half = width // num_heads // 2
    # The table is written into the program: the bound keeps a mistyped length from filling memory.
    if time * half > MAX_VALUES:
        raise helper.error(f"rotary_embedding: {time} positions of {half} angles are more than {MAX_VALUES:,}", hint="use fewer positions")
    angles = np.arange(time)[:, None] * np.float64(base) ** (-np.arange(half) / half)
    heads = helper.one("reshape", {"X": input}, {"shape": [0, 0, num_heads, 2 * half]})
    # Pairs are (i, i + half), as in GPT-NeoX and LLaMA, not neighbours as in the first paper; checkpoints depend on it.
    parts = [helper.one("slice", {"Input": heads}, {"axes": [3], "starts": [i * half], "ends": [(i + 1) * half]}) for i in (0, 1)]
    cos, sin = (_table(helper, values, input.dtype) for values in (np.cos(angles), np.sin(angles)))

    def turned(sign: str, along: Variable, across: Variable) -> Variable:
        products = [helper.one("elementwise_mul", {"X": x, "Y": y}, {"axis": 1}) for x, y in ((along, cos), (across, sin))]
        return helper.one(sign, {"X": products[0], "Y": products[1]}, {"axis": -1})

    pair = [turned("elementwise_sub", parts[0], parts[1]), turned("elementwise_add", parts[1], parts[0])]
    joined = helper.one("concat", {"X": pair}, {"axis": 3})
    return helper.one("reshape", {"X": joined}, {"shape": [0, 0, width]})


def _table(helper: LayerHelper, values: np.ndarray[Any, Any], dtype: str) -> Variable:
    """Return [time, 1, pairs] constants."""
    facts = {"shape": [values.shape[0], 1, values.shape[1]], "dtype": dtype, "values": values.ravel().tolist()}
    made = helper.one("assign_value", {}, facts)
    made.stop_gradient = True
    return made
