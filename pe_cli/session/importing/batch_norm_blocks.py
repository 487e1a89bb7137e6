"""Folds batch norms of a model in blocks, whose parameters are called like their layers, into the convolutions before them."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.program.ir import Program
from pe_cli.session.importing.batch_norm import texts
from pe_cli.session.importing.define import ImportedModel
from pe_cli.session.importing.hugging_face.read import TENSORS
from pe_cli.session.importing.write import model_text

Entries = Mapping[str, Mapping[str, Any]]
#: What a batch norm says that a convolution says as well, or that evaluation does without.
_PLAIN = frozenset({"type", "input", "epsilon", "momentum", "act"})


def with_folded_blocks(model: ImportedModel) -> ImportedModel:
    """Return a model in which a convolution does what the batch norm right behind it does in evaluation, by its filters and a bias.

    A batch norm stays where something else reads the convolution; a note says how many.
    """
    outside = {name for entry in [*model.layers.values(), *_entries(model.blocks)] for name in texts(entry) if "/" in name}
    layers = _folded(model.layers, {*model.fetches, *outside, model.loss})[0]
    blocks = {name: _block(block, outside) for name, block in model.blocks.items()}
    made = replace(model, layers=layers, blocks=blocks)
    before, after = _program(model), _program(made)
    types = {v.name: v.type for v in after.list_vars() if v.persistable}
    norms = _norms(before)
    arrays = dict(model.arrays)
    gone = [norm for norm in norms if norm.scale not in types]
    for norm in gone:
        _fold(norm, arrays)
    assert types.keys() >= arrays.keys(), "a convolution has a bias, and its batch norm nothing"
    notes = [*model.notes, f"{len(gone)} of {len(norms)} batch norms are folded into the convolutions before them"]
    files = {name: data for name, data in model.files.items() if name != TENSORS or not gone}
    notes += [f"there is no {TENSORS}: folded weights are none of the folder's"] if len(files) < len(model.files) else []
    return replace(made, arrays=arrays, notes=notes, files=files)


def _entries(blocks: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [entry for block in blocks.values() for entry in block["layers"].values()]


def _block(block: Mapping[str, Any], outside: set[str]) -> Mapping[str, Any]:
    others = {key: value for key, value in block.items() if key not in ("layers", "output")}
    output = block.get("output")
    layers, now = _folded(block["layers"], {*outside, *texts(others)})
    return {**block, "layers": layers, **({"output": now.get(output, output)} if output else {})}


def _folded(layers: Entries, kept: set[str]) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Return layers without the batch norms that stand right behind a convolution which nothing else reads, and what these are now.

    Args:
        layers: of the model or of a block.
        kept: names that are read from elsewhere.
    """
    names, now = list(layers), dict[str, str]()
    made: dict[str, Mapping[str, Any]] = dict(layers)
    for before, name in itertools.pairwise(names):
        conv, norm = made.get(before, {}), made[name]
        if conv.get("type") != "conv2d" or norm.get("type") != "batch_norm" or not norm.keys() <= _PLAIN or conv.get("act"):
            continue
        if norm.get("input", before) != before or conv.get("bias_attr") is not False or "param_attr" in conv:
            continue
        others = {other: {k: v for k, v in entry.items() if k != "type"} for other, entry in made.items() if other != name}
        if before in texts(others) or not kept.isdisjoint((before, name)):
            continue
        made[before] = {key: value for key, value in conv.items() if key != "bias_attr"} | ({"act": norm["act"]} if "act" in norm else {})
        del made[name]
        now[name] = before
        made = {key: _renamed(entry, name, before) for key, entry in made.items()}
    return made, now


def _renamed(entry: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    def one(value: Any) -> Any:
        return [one(each) for each in value] if isinstance(value, list) else new if value == old else value

    return {key: value if key in ("type", "block") else one(value) for key, value in entry.items()}


def _program(model: ImportedModel) -> Program:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.yaml"
        file.write_text(model_text(model), encoding="utf-8")
        return build(load_model(file)).eval


@dataclass(frozen=True)
class _Norm:
    """A batch norm behind a convolution: names of its values, and of the filters."""

    filters: str
    scale: str
    shift: str
    mean: str
    variance: str
    epsilon: float


def _norms(program: Program) -> list[_Norm]:
    """Return all batch norms; those behind no convolution have no filters."""
    convs = {op.outputs["Output"][0]: op.inputs["Filter"][0] for op in program.top_ops if op.type in ("conv2d", "depthwise_conv2d")}
    found = []
    for op in program.top_ops:
        if op.type == "batch_norm":
            scale, shift, mean, variance = (op.inputs[slot][0] for slot in ("Scale", "Bias", "Mean", "Variance"))
            found.append(_Norm(convs.get(op.inputs["X"][0], ""), scale, shift, mean, variance, float(op.attrs["epsilon"])))
    return found


def _fold(norm: _Norm, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Give a convolution what its batch norm has."""
    filters, scale, shift, mean, variance = (
        arrays[name].astype(np.float64) for name in (norm.filters, norm.scale, norm.shift, norm.mean, norm.variance)
    )
    with np.errstate(invalid="ignore", divide="ignore"):  # a variance that is none gives NaN here as in the layer
        factor = scale / np.sqrt(variance + norm.epsilon)
    kind = arrays[norm.filters].dtype
    for name in (norm.scale, norm.shift, norm.mean, norm.variance):
        del arrays[name]
    arrays[norm.filters] = np.ascontiguousarray((filters * factor.reshape(-1, 1, 1, 1)).astype(kind))
    arrays[f"{norm.filters.rpartition('.')[0]}.b_0"] = (shift - mean * factor).astype(kind)
