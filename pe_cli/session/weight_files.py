"""Weights of a trained model as PyTorch has them: names, and the order of axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io.weight_layouts import LAYOUTS, turned
from pe_cli.ops.define.traits import Weight
from pe_cli.program.ir import Program
from pe_cli.program.region import every_op
from pe_cli.session.training.initial_values import readings

Array = np.ndarray[Any, Any]
#: Slots of ops that normalise, and what PyTorch calls what they read.
_SLOTS = {"Scale": "weight", "Bias": "bias", "Mean": "running_mean", "Variance": "running_var"}


def for_torch(program: Program, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights of a model by the names that PyTorch's modules have: `fc.weight`, `norm.running_mean`.

    A matrix becomes [outputs, inputs]. Layers whose names have slashes become modules in modules: `block/conv` is `block.conv`.

    Args:
        program: what the model computes in evaluation.
        values: of all its variables that stay.

    Raises:
        PeError: USAGE; a weight lies in an order of its own, or two would have one name.
    """
    ours, roles = readings(program, list(values)), _roles(program)
    found: dict[str, Array] = {}
    for name, value in values.items():
        layer, _, own = name.rpartition(".")
        if value.ndim > 1 and not ours[name]:
            text = f"'{name}' lies in an order of its own, and PyTorch keeps such weights otherwise"
            raise PeError(text, hint="leave --layout out, or write --onnx")
        role = roles.get(name, own)
        theirs = ".".join(part for part in (layer.replace("/", "."), role) if part)
        if theirs in found:
            raise PeError(f"two weights would be called '{theirs}', one of them '{name}'", hint="leave --layout out")
        found[theirs] = _turned(value, ours[name])
        if role == "running_var":
            found[f"{theirs.removesuffix(role)}num_batches_tracked"] = np.zeros((), np.int64)
    return found


def _turned(value: Array, ours: Mapping[str, str]) -> Array:
    """Return a weight with its axes as PyTorch has them."""
    kinds = {kind: axes for kind, axes in ours.items() if kind in LAYOUTS["torch"]}
    if value.ndim < 2 or not kinds:
        return value
    kind, axes = next(iter(kinds.items()))
    made = turned(value, {kind: axes}, {kind: LAYOUTS["torch"][kind]}, value.shape)
    return value if made is None else np.ascontiguousarray(made)


def _roles(program: Program) -> dict[str, str]:
    """Return what PyTorch calls the variables that ops read: name -> weight, bias, running_mean or running_var."""
    found: dict[str, str] = {}
    for op in every_op(program):
        weight = op.definition.get(Weight)
        of_weights = dict.fromkeys(weight.slots, "bias" if weight.kind == "elementwise" else "weight") if weight is not None else {}
        for slot, role in {**_SLOTS, **of_weights}.items():
            found |= dict.fromkeys(op.inputs.get(slot, []), role)
    return found
