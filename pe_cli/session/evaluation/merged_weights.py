"""Merges what `train.adapt` trained into the weights beside it, so that the model computes the same with its original layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.build.build import Built, build
from pe_cli.build.low_rank import LowRank
from pe_cli.config.spec import ModelSpec

Array = np.ndarray[Any, Any]


def merged(model: ModelSpec, built: Built, values: Mapping[str, Array]) -> tuple[Built, dict[str, Array]]:
    """Return programs without small matrices, and the values that they compute the same with; what has none to merge is as it is.

    Args:
        model: that `built` is made of.
        built: programs of a run.
        values: of all variables that stay.
    """
    adapted = built.adapted
    if adapted is None or not adapted.weights:
        return built, dict(values)
    plain = build(model)
    found = {name: value for name, value in values.items() if name not in adapted.new}
    for weight in adapted.weights:
        found[weight.weight] = _merged(weight, values)
    return plain, found


def _merged(weight: LowRank, values: Mapping[str, Array]) -> Array:
    """Return W + scale A B, its outputs of the lengths that DoRA has trained; computed in float64."""
    own = values[weight.weight]
    whole, first, second = (values[name].astype(np.float64) for name in (weight.weight, weight.first, weight.second))
    # Of a convolution, A has the window, and B is 1 x 1.
    wide = np.einsum("or,rihw->oihw", second[:, :, 0, 0], first) if own.ndim == 4 else first @ second
    made = whole + weight.scale * wide
    if weight.change:
        # DoRA: every output becomes as long as it was before, and longer by what was learned.
        inputs = 1 - weight.outputs
        lengths = [np.linalg.norm(x, axis=inputs, keepdims=True) for x in (whole, made)]
        made *= (lengths[0] + np.expand_dims(values[weight.change].astype(np.float64), inputs)) / lengths[1]
    return np.ascontiguousarray(made, own.dtype)
