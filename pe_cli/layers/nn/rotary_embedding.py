"""Rotary position embedding: pairs of values are turned by angles that grow with the position."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import MAX_VALUES
from pe_cli.program.ir import Variable


@layer
def rotary_embedding(
    input: Variable,
    num_heads: int = 1,
    base: float = 10000.0,
    name: str | None = None,
    turned: int = 0,
    factor: float = 1.0,
    trained_time: int = 0,
    low_turns: float = 1.0,
    high_turns: float = 4.0,
) -> Variable:
    """Turn queries or keys by their positions, so that products of them depend on distances alone.

    Of each head the first w values have pairs (i, i + w / 2); at position t pair i is turned by the angle t f_i with f_i = base^(-2 i / w).
    A model that sees more positions than it was trained with has smaller frequencies: f_i / factor, and with `trained_time` only those
    that make fewer than `low_turns` turns in so many positions. Those with more than `high_turns` stay, and between lie weighted means.

    Args:
        input: [batch, time, num_heads width].
        num_heads: heads side by side in the last axis.
        base: of the angles, no unit.
        turned: values of each head that are turned, w; even, 0 for all.
        factor: that frequencies are divided by, no unit.
        trained_time: positions that the model was trained with before its frequencies were divided; 0 to divide all of them.
        low_turns: below which frequencies are divided, in turns.
        high_turns: above which they stay, in turns; more than `low_turns`.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: input is none such, the time is not known, or a number is out of its range.

    Source:
        Su et al. 2021, "RoFormer", eq. 15; pairs lie as in Llama. Chen et al. 2023, "Extending Context Window of Large Language Models via
        Positional Interpolation", for the factor; Grattafiori et al. 2024, "The Llama 3 Herd of Models", for turns.
    """
    helper = LayerHelper("rotary_embedding", name)
    helper.check_rank(input, "input", 3, "[batch, time, width]")
    time, width = input.shape[1:]
    if num_heads < 1 or time < 1 or width < 1 or width % num_heads or not base > 0:
        text = f"rotary_embedding: {num_heads} heads on {input} with base {base}"
        raise helper.error(text, hint="give [batch, time, a multiple of num_heads] with a known time, and a base above 0")
    head = width // num_heads
    pairs = (turned or head) // 2
    if turned < 0 or (turned or head) % 2 or turned > head:
        raise helper.error(f"rotary_embedding: {turned or head} values of heads of {head} are turned", hint="turn an even number of them")
    if not factor > 0 or trained_time < 0 or not 0 < low_turns < high_turns:
        text = f"rotary_embedding: factor {factor}, trained_time {trained_time}, turns {low_turns} and {high_turns}"
        raise helper.error(text, hint="give a factor above 0, trained_time of 0 or more, and low_turns between 0 and high_turns")
    # The table is written into the program: the bound keeps a mistyped length from filling memory.
    if time * pairs > MAX_VALUES:
        raise helper.error(f"rotary_embedding: {time} positions of {pairs} angles are more than {MAX_VALUES:,}", hint="use fewer positions")
    frequencies = np.float64(base) ** (-np.arange(pairs) / pairs)
    kept = np.zeros(pairs)
    if trained_time:
        kept = np.clip((trained_time * frequencies / (2 * np.pi) - low_turns) / (high_turns - low_turns), 0, 1)
    angles = np.arange(time)[:, None] * (frequencies * (kept + (1 - kept) / factor))
    heads = helper.one("reshape", {"X": input}, {"shape": [0, 0, num_heads, head]})

    def part(begin: int, end: int) -> Variable:
        return helper.one("slice", {"Input": heads}, {"axes": [3], "starts": [begin], "ends": [end]})

    # Pairs are (i, i + half), as in GPT-NeoX and LLaMA, not neighbours as in the first paper; checkpoints depend on it.
    first, second = part(0, pairs), part(pairs, 2 * pairs)
    cos, sin = (_table(helper, values, input.dtype) for values in (np.cos(angles), np.sin(angles)))

    def combined(sign: str, along: Variable, across: Variable) -> Variable:
        products = [helper.one("elementwise_mul", {"X": x, "Y": y}, {"axis": 1}) for x, y in ((along, cos), (across, sin))]
        return helper.one(sign, {"X": products[0], "Y": products[1]}, {"axis": -1})

    made = [combined("elementwise_sub", first, second), combined("elementwise_add", second, first)]
    made += [part(2 * pairs, head)] if 2 * pairs < head else []
    joined = helper.one("concat", {"X": made}, {"axis": 3})
    return helper.one("reshape", {"X": joined}, {"shape": [0, 0, width]})


def _table(helper: LayerHelper, values: np.ndarray[Any, Any], dtype: str) -> Variable:
    """Return [time, 1, pairs] constants."""
    facts = {"shape": [values.shape[0], 1, values.shape[1]], "dtype": dtype, "values": values.ravel().tolist()}
    made = helper.one("assign_value", {}, facts)
    made.stop_gradient = True
    return made
