"""Folds batch norms of an imported model into the convolutions before them, as exporters for inference do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.session.importing.define import ImportedModel

#: What a batch norm says that folding keeps, or that says nothing of what it computes in evaluation.
_PLAIN = frozenset({"type", "input", "epsilon", "momentum", "param_attr", "bias_attr", "moving_mean_name", "moving_variance_name"})


def with_folded_batch_norms(model: ImportedModel) -> ImportedModel:
    """Return a model in which a convolution does what the batch norm behind it does in evaluation, by its filters and a bias.

    A batch norm stays where something else reads the convolution, or where they share values with other layers; a note says how many.
    The convolution has the name of the batch norm, so that what reads it stays as it is.
    """
    layers = {name: dict(layer) for name, layer in model.layers.items()}
    arrays = dict(model.arrays)
    readers = Counter(name for layer in layers.values() for name in texts({k: v for k, v in layer.items() if k != "type"}))
    readers.update(model.fetches)
    norms = [name for name, layer in layers.items() if layer["type"] == "batch_norm"]
    folded: dict[str, str] = {}
    for name in norms:
        before = str(layers[name]["input"])
        made = _folded(layers.get(before, {}), layers[name], arrays, readers) if readers[before] == 1 else None
        if made is not None:
            folded[before], layers[name] = name, made
    kept = {name: layer for name, layer in layers.items() if name not in folded}
    used = set(texts(kept))
    notes = [*model.notes, f"{len(folded)} of {len(norms)} batch norms are folded into the convolutions before them"]
    return replace(model, layers=kept, arrays={name: value for name, value in arrays.items() if name in used}, notes=notes)


def _folded(conv: Mapping[str, Any], norm: Mapping[str, Any], arrays: dict[str, Any], readers: Counter[str]) -> dict[str, Any] | None:
    """Return a convolution that does what both do, whose values are put into `arrays`; None where that cannot be."""
    weight, bias = conv.get("param_attr"), conv.get("bias_attr", False)
    if conv.get("type") != "conv2d" or not isinstance(weight, Mapping) or conv.get("act") or not norm.keys() <= _PLAIN:
        return None
    named = [weight["name"], norm["param_attr"]["name"], norm["bias_attr"]["name"], norm["moving_mean_name"], norm["moving_variance_name"]]
    named += [bias["name"]] if isinstance(bias, Mapping) else []
    if bias is None or bias is True or any(readers[name] != 1 or name not in arrays for name in named):
        return None
    filters, scale, shift, mean, variance = (arrays[name].astype(np.float64) for name in named[:5])
    start = arrays[named[5]].astype(np.float64) if len(named) > 5 else np.zeros_like(mean)
    with np.errstate(invalid="ignore", divide="ignore"):  # a variance that is none gives NaN here as in the layer
        factor = scale / np.sqrt(variance + float(norm["epsilon"]))
    kind = arrays[named[0]].dtype
    arrays[named[0]] = np.ascontiguousarray((filters * factor.reshape(-1, 1, 1, 1)).astype(kind))
    arrays[named[2]] = ((start - mean) * factor + shift).astype(kind)
    return {**conv, "bias_attr": {"name": named[2]}}


def texts(value: Any) -> list[str]:
    """Return all texts in a value."""
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []
