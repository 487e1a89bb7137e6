"""Weights of a trained model as PyTorch has them: names, and the order of axes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import strict_json
from pe_cli.io.regular_files import open_regular
from pe_cli.io.weight_layouts import LAYOUTS, turned
from pe_cli.ops.define.traits import Weight
from pe_cli.program.ir import Program
from pe_cli.program.region import every_op
from pe_cli.session.training.initial_values import readings

Array = np.ndarray[Any, Any]
#: Bytes of a file that names tensors, at most.
_MOST_BYTES = 1 << 24
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


def by_names(program: Program, values: Mapping[str, Array], file: Path) -> dict[str, Array]:
    """Return the weights of an imported model by the names, and with the axes, of the folder that it was imported from.

    Tensors that are tied have a name each. What batch norms have gathered gets the counter that PyTorch keeps beside it.

    Args:
        program: what the model computes in evaluation.
        values: of all its variables that stay.
        file: `tensors.json` of the import.

    Raises:
        PeError: DATA; the file cannot be read, or does not name the model's weights.
    """
    said = _tensors(file)
    missing = [name for name in values if name not in said]
    if missing:
        hint = "name the file of the import of this model"
        raise PeError(f"{file} does not name {', '.join(missing[:8])}", hint=hint, code=ExitCode.DATA)
    ours, found = readings(program, list(values)), {}
    for name, value in values.items():
        layout, shape = said[name]["layout"], tuple(said[name]["shape"])
        made = _turned(value, ours[name], layout) if layout else value
        # Axes of size 1 that only one of both has.
        same = [n for n in made.shape if n != 1] == [n for n in shape if n != 1]
        for theirs in said[name]["names"]:
            found[theirs] = made.reshape(shape) if same else made
            if theirs.endswith(".running_var"):
                found[f"{theirs.removesuffix('running_var')}num_batches_tracked"] = np.zeros((), np.int64)
    return found


def _tensors(file: Path) -> dict[str, Any]:
    """Return what a `tensors.json` says, checked."""
    try:
        with open_regular(file) as stream:
            said = strict_json.loads(stream.read(_MOST_BYTES))
    except OSError as error:
        hint = "check the path and its permissions"
        raise PeError(f"{file}: {(error.strerror or str(error)).lower()}", hint=hint, code=ExitCode.DATA) from None
    except ValueError as error:
        raise PeError(f"{file} is no JSON: {error}", hint="name tensors.json of an import", code=ExitCode.DATA) from None
    if not isinstance(said, dict) or not all(map(_is_entry, said.values())):
        raise PeError(f"{file} does not name tensors", hint="name tensors.json of an import", code=ExitCode.DATA)
    return said


def _is_entry(said: Any) -> bool:
    return (
        isinstance(said, dict) and said.keys() == {"names", "shape", "layout"} and (said["layout"] == "" or said["layout"] in LAYOUTS)
        and isinstance(said["names"], list) and all(isinstance(name, str) for name in said["names"])
        and isinstance(said["shape"], list) and all(isinstance(size, int) for size in said["shape"])
    )  # fmt: skip


def _turned(value: Array, ours: Mapping[str, str], layout: str = "torch") -> Array:
    """Return a weight with its axes as a framework has them."""
    kinds = {kind: axes for kind, axes in ours.items() if kind in LAYOUTS[layout]}
    if value.ndim < 2 or not kinds:
        return value
    kind, axes = next(iter(kinds.items()))
    made = turned(value, {kind: axes}, {kind: LAYOUTS[layout][kind]}, value.shape)
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
