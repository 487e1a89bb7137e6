"""viterbi_decode: the best tags of sequences under scores of tags and of transitions between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.v2_shapes import both, filled


def viterbi_decode(
    potentials: Any, transition_params: Any, lengths: Any, include_bos_eos_tag: bool = True, name: str | None = None
) -> tuple[Any, Any]:
    """Find the tags of every sequence whose scores and transitions have the largest sum.

    Args:
        potentials: [sequences, time, tags], the time known.
        transition_params: [tags, tags]: from one tag to the next.
        lengths: [sequences] int64.
        include_bos_eos_tag: the last tag is what a sequence starts from, and the one before it what it ends in.
        name: without effect.

    Returns:
        [sequences] the largest sums; [sequences, longest length] int64 the tags, 0 behind the last one.

    Raises:
        FluidValueError: shapes that do not fit, or a time that only a step knows; a ValueError.
    """
    if len(potentials.shape) != 3 or potentials.shape[1] < 1 or list(transition_params.shape) != [potentials.shape[2]] * 2:
        raise FluidValueError(f"viterbi_decode: {potentials} with {transition_params}", hint="[sequences, time, tags] and [tags, tags]")
    _, time, tags = potentials.shape
    steps = [layers.squeeze(v, [1]) for v in layers.split(potentials, time, 1)] if time > 1 else [layers.squeeze(potentials, [1])]
    best = steps[0]
    length = layers.cast(layers.reshape(lengths, [-1, 1]), "int64")

    def where(step: int, compare: Any) -> Any:
        return compare(length, filled(length, step))

    def edge(row: int) -> Any:
        return layers.slice(transition_params, [0], [row], [row + 1])

    def ended(sums: Any, step: int) -> Any:
        more = layers.elementwise_add(sums, edge(tags - 2))
        return select(_wide(where(step + 1, layers.equal), sums), more, sums)

    if include_bos_eos_tag:
        best = ended(layers.elementwise_add(best, edge(tags - 1)), 0)
    came: list[Any] = []
    for t in range(1, time):
        # [sequences, from, to]
        first, moves = both(layers.unsqueeze(best, [2]), layers.unsqueeze(transition_params, [0]))
        sums = layers.elementwise_add(first, moves)
        came.append(layers.argmax(sums, 1))
        goes_on = _wide(where(t, layers.greater_than), best)
        best = select(goes_on, layers.elementwise_add(layers.reduce_max(sums, 1), steps[t]), best)
        best = ended(best, t) if include_bos_eos_tag else best
    tag = layers.reshape(layers.argmax(best, 1), [-1, 1])
    path = []
    for t in range(time - 1, -1, -1):
        inside = where(t, layers.greater_than)
        path.append(layers.elementwise_mul(tag, layers.cast(inside, "int64")))
        if t:
            tag = select(inside, call("take_along_axis", came[t - 1], tag, 1), tag)
    whole = layers.concat(path[::-1], 1) if time > 1 else path[0]
    longest = layers.reduce_max(layers.reshape(length, [-1]))
    kept = layers.range(layers.assign(np.array([0])), layers.reshape(longest, [1]), layers.assign(np.array([1])), "int64")
    found = layers.index_select(whole, kept, 1)
    found.stop_gradient = True
    return layers.reduce_max(best, 1), found


def _wide(condition: Any, like: Any) -> Any:
    """Repeat one truth value per sequence over the tags."""
    zeros = filled(layers.cast(like, "int32"), 0)
    return layers.cast(layers.elementwise_add(zeros, layers.cast(condition, "int32")), "bool")


class ViterbiDecoder(Layer):
    """`viterbi_decode` with transitions of its own.

    Args:
        transitions: [tags, tags].
        include_bos_eos_tag: the last two tags are those of the ends.
        name: without effect.
    """

    def __init__(self, transitions: Any, include_bos_eos_tag: bool = True, name: str | None = None) -> None:
        super().__init__()
        self.transitions, self.include_bos_eos_tag = transitions, include_bos_eos_tag

    def forward(self, potentials: Any, lengths: Any) -> tuple[Any, Any]:
        """Append the search."""
        return viterbi_decode(potentials, self.transitions, lengths, self.include_bos_eos_tag)


__all__ = ["ViterbiDecoder", "viterbi_decode"]
