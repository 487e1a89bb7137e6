"""A model with what `train.adapt` trained beside its weights put into them, so that it computes what it computed before, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.build.build import Built, build
from pe_cli.build.low_rank import LowRank
from pe_cli.config.spec import RunSpec

Array = np.ndarray[Any, Any]


def without_adapters(run: RunSpec) -> RunSpec:
    """Return a run that trains the model as its file has it."""
    assert run.train is not None
    return replace(run, train=run.train.model_copy(update={"adapt": None}))


def merged(run: RunSpec, built: Built, values: Mapping[str, Array]) -> tuple[Built, dict[str, Array]]:
    """Return programs without small matrices, and the values that they compute the same with; what has none to merge is as it is.

    Args:
        run: that `built` is made of.
        built: programs of the run.
        values: of all variables that stay.
    """
    adapted = built.adapted
    if adapted is None or not adapted.weights:
        return built, dict(values)
    plain = build(run.model, without_adapters(run))
    found = {name: value for name, value in values.items() if name not in adapted.new}
    for weight in adapted.weights:
        found[weight.weight] = _merged(weight, values)
    return plain, found


def _merged(weight: LowRank, values: Mapping[str, Array]) -> Array:
    """Return W + scale A B, its outputs of the lengths that DoRA has trained; computed in float64."""
    own = values[weight.weight]
    whole, first, second = (values[name].astype(np.float64) for name in (weight.weight, weight.first, weight.second))
    wide = np.einsum("or,rihw->oihw", second[:, :, 0, 0], first) if own.ndim == 4 else first @ second
    made = whole + weight.scale * wide
    if weight.change:
        inputs = 1 - weight.outputs
        lengths = [np.linalg.norm(x, axis=inputs, keepdims=True) for x in (whole, made)]
        made *= (lengths[0] + np.expand_dims(values[weight.change].astype(np.float64), inputs)) / lengths[1]
    return np.ascontiguousarray(made, own.dtype)
