"""Tells which initializers of a file are parameters: PyTorch's exporter says it in metadata, others by names and values."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.emit import Emitter
from pe_cli.session.importing.onnx.values import Array, is_filled

#: Where PyTorch's exporter says what a value is, what it has computed it of, and whose module a node is part of.
_KIND, _OF = "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.onnxscript.optimizer.folded_from"
_SCOPES = "pkg.torch.onnx.name_scopes"
#: Last parts of names that networks give to tables which are no parameters.
_BUFFERS = frozenset({
    "inv_freq", "original_inv_freq", "position_ids", "attn_mask", "relative_position_index", "relative_coords_table", "anchors",
    "anchor_grid", "running_mean", "running_var", "moving_mean", "moving_variance",
})  # fmt: skip
#: How parameters of the outermost module are called, which have no dot in their names, as most results of operators.
_PARAMETERS = re.compile(r"(token|embed|embedding|weight|bias|gamma|beta|table|query|queries|latent|parameter)s?$")
#: What adds a mask or chooses by it, or brings it into shape.
_MASKED = frozenset({
    "Add", "Sub", "Mul", "Where", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Identity", "Slice", "Concat", "Tile",
})  # fmt: skip
#: From this number on, what is added before a softmax leaves nothing of an element.
_LOW = -100.0


class Origins:
    """Where the initializers of a file come from.

    Args:
        model: of ONNX's own class.

    Attributes:
        kinds: initializer -> PARAMETER or another kind, as the file says it; none where it says nothing of any.
        names: initializer that the exporter computed of one parameter -> the parameter's name.
        merged: initializers that it computed of several parameters.
    """

    def __init__(self, model: Any) -> None:
        said = {info.name: {entry.key: entry.value for entry in info.metadata_props} for info in model.graph.value_info}
        self.says = any(_KIND in facts for facts in said.values())
        self.torch = model.producer_name == "pytorch"
        self.kinds: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.merged: set[str] = set()
        taken = {tensor.name for tensor in model.graph.initializer}
        for tensor in model.graph.initializer if self.says else ():
            facts = said.get(tensor.name, {})
            of = _list(facts.get(_OF, ""))
            # What a pass of the exporter has made of parameters, such as filters with their norm, has their names and no metadata.
            trained = any(_is_parameter(name) for name in of) if of else has_module(tensor.name)
            derived = "PARAMETER" if trained else "CONSTANT"
            self.kinds[tensor.name] = facts.get(_KIND) or derived
            if sum(map(_is_parameter, of)) > 1:
                self.merged.add(tensor.name)
            if len(of) == 1 and "." in of[0] and of[0] not in taken:
                self.names[tensor.name] = of[0]
                taken.add(of[0])

    def trains(self, name: str, array: Array, takers: Collection[str]) -> bool | None:
        """Tell whether an initializer is trained; None where that depends on what it is read as, as for a number.

        Args:
            name: of the initializer.
            array: its value.
            takers: kinds of the nodes that read it.
        """
        if array.dtype.name not in FLOATS or not array.size:
            return False
        if name in self.kinds:
            return self.kinds[name] == "PARAMETER"
        if array.size == 1:
            return True if self.torch and has_module(name) else None
        return not is_buffer(name) and low_value(array, takers) is None


    def told(self, name: str, array: Array, takers: Collection[str], emitter: Emitter) -> bool | None:
        """Tell whether an initializer is trained, and users where it is not; see `trains`."""
        trained = self.trains(name, array, takers)
        if trained is not False or array.dtype.kind != "f" or array.size < 2:
            return trained
        called, low = self.names.get(name, name), low_value(array, takers)
        emitter.fixed.add(called)
        if low is not None:
            emitter.note(f"'{called}' has the values 0 and {low:g} only: it is taken for a mask, which is not trained")
        elif "BatchNormalization" not in takers and not is_filled(array):
            who = "the file" if name in self.kinds else "its name"
            emitter.note(f"'{called}' is not trained: {who} says that it is no parameter")
        return trained


def has_module(name: str) -> bool:
    """Tell whether a name is one of PyTorch's for a parameter or a buffer of a module, and none of a node."""
    return "." in name and not name.startswith("/") and "::" not in name


def is_buffer(name: str) -> bool:
    """Tell whether a name is that of a table which is no parameter in the networks that have it."""
    last = re.split(r"[./]", name)[-1]
    return last in _BUFFERS or last.startswith("lifted_tensor")  # which is PyTorch's name of a constant in the code of a network


def low_value(array: Array, takers: Collection[str]) -> float | None:
    """Return the other value of an array that has only 0 and one more, as masks have; None for every other array."""
    if array.size < 2 or not set(takers) <= _MASKED or not (array == 0).any():
        return None
    others = array[array != 0]
    if not others.size or not (others == others[0]).all():
        return None
    axes = sum(size > 1 for size in array.shape)
    return float(others[0]) if others[0] <= _LOW or axes > 1 else None


def scope_of(node: Any) -> str | None:
    """Return the module that a node is part of, as PyTorch's exporter says it; None where nothing says it."""
    said = next((_list(entry.value) for entry in node.metadata_props if entry.key == _SCOPES), [])
    return said[-2] if len(said) > 1 else None


def _is_parameter(name: str) -> bool:
    if "." in name:
        return not is_buffer(name)
    return _PARAMETERS.search(name) is not None


def _list(text: str) -> list[str]:
    """Return a list of texts that is written as Python writes it; empty where it is none."""
    try:
        found = ast.literal_eval(text) if text.startswith("[") and len(text) < 100_000 else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def same_form(one: str, other: str) -> bool:
    """Tell whether two names differ in numbers only, as those of layers that were copied."""
    return one != other and re.sub(r"\d+", "#", one) == re.sub(r"\d+", "#", other)


def twins(arrays: Iterable[tuple[str, Array]]) -> list[tuple[str, str, bool]]:
    """Return matrices that are equal, bit for bit, or are so turned: first, second, whether the second is turned.

    Args:
        arrays: name and matrix, each read when its turn comes.
    """
    seen: dict[tuple[tuple[int, ...], str, bytes], str] = {}
    found = []
    for name, array in arrays:
        if array.size < 16 or len(np.unique(array[:4, :4])) < 3:
            continue
        plain, turned = ((kind.shape, kind.dtype.name, blake2b(kind.tobytes()).digest()) for kind in (array, array.T))
        if plain in seen or turned in seen:
            found.append((seen[plain], name, False) if plain in seen else (seen[turned], name, True))
        else:
            seen[plain] = name
    return found
