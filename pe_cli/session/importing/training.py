"""Adds to an imported model what training needs: a label, a loss, and a last layer whose size is an argument of the model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError
from pe_cli.session.importing.define import ImportedModel
from pe_cli.session.importing.write import model_text

TASKS = ("classes", "number")


def for_training(model: ImportedModel, task: str) -> ImportedModel:
    """Return a model with a loss of its first output.

    Of classes, the last fully connected layer before that output has the size `${classes}`: with another number in `model.args` of a config
    its values do not fit, and it begins anew.

    Args:
        model: as imported.
        task: classes or number.

    Raises:
        PeError: USAGE; the first output is none that a loss of this kind compares, or the model has a loss.
    """
    if model.loss:
        raise PeError(f"the model has a loss, '{model.loss}'", hint="leave --task out: its config trains with that loss")
    taken = {*model.feeds, *model.layers}
    names = {wanted: wanted for wanted in ("label", "value", "cost", "loss", "prob", "acc")}
    for wanted in names:
        while names[wanted] in taken:
            names[wanted] += "_"
    return _classes(model, names) if task == "classes" else _number(model, names)


def _shape(model: ImportedModel, name: str) -> tuple[int, ...]:
    """Return the sizes of a variable, which begin with -1 for the batch.

    Raises:
        PeError: USAGE; it has no value for each sample, or none of a size that is known.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.yaml"
        file.write_text(model_text(model), encoding="utf-8")
        shape = tuple(build(load_model(file)).eval.var(name).shape)
    said = ", ".join("batch" if axis == 0 and size < 0 else "?" if size < 0 else str(size) for axis, size in enumerate(shape))
    if shape[:1] != (-1,):
        hint = "leave --task out, and add a loss to model.yaml"
        raise PeError(f"the output '{name}' is [{said}]: it has no value for each sample", hint=hint)
    if -1 in shape[1:]:
        hint = "--shape INPUT=N,SIZE,... says the sizes of inputs that the file leaves open"
        raise PeError(f"the output '{name}' is [{said}]: a loss needs sizes that are known", hint=hint)
    return shape


def _classes(model: ImportedModel, names: Mapping[str, str]) -> ImportedModel:
    out = model.fetches[0]
    layers = {name: dict(layer) for name, layer in model.layers.items()}
    logits, prob = _source(layers, out), names["prob"]
    if layers.get(logits, {}).get("type") == "softmax":
        logits, prob = _source(layers, str(layers[logits]["input"])), out
    args, notes = dict(model.args), list(model.notes)
    if layers.get(logits, {}).get("type") == "fc":
        args["classes"] = layers[logits]["size"]
        layers[logits]["size"] = "${classes}"
    elif logits not in layers:
        hint = "leave --task out, and add a loss to model.yaml"
        raise PeError(f"the output '{out}' is no result of a layer that a loss can follow", hint=hint)
    else:
        notes.append(f"the number of classes stays: the scores '{logits}' are of {layers[logits]['type']}, and not of a last layer fc")
    shape = _shape(model, logits)
    if len(shape) != 2:
        text = f"the output '{out}' is [batch, {', '.join(map(str, shape[1:]))}], and not one row of scores for each sample"
        raise PeError(text, hint="leave --task out, and add a loss to model.yaml")
    layers[names["cost"]] = {"type": "softmax_with_cross_entropy", "logits": logits, "label": names["label"]}
    layers[names["loss"]] = {"type": "mean", "x": names["cost"]}
    if prob != out:
        layers[prob] = {"type": "softmax", "input": logits}
    layers[names["acc"]] = {"type": "accuracy", "input": prob, "label": names["label"]}
    fetches = list(dict.fromkeys([names["loss"], names["acc"], *model.fetches, prob]))
    feeds = {**model.feeds, names["label"]: {"shape": [1], "dtype": "int64"}}
    comments = {**model.comments, names["label"]: "the number of the class, from 0"}
    return replace(model, feeds=feeds, layers=layers, args=args, fetches=fetches, comments=comments, loss=names["loss"], notes=notes)


def _source(layers: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Return the layer whose value a name is, behind layers that only give it another one."""
    while layers.get(name, {}).get("type") == "assign":
        name = str(layers[name]["input"])
    return name


def _number(model: ImportedModel, names: Mapping[str, str]) -> ImportedModel:
    out, value = model.fetches[0], names["value"]
    layers: dict[str, Mapping[str, Any]] = dict(model.layers)
    layers[names["cost"]] = {"type": "square_error_cost", "input": out, "label": value}
    layers[names["loss"]] = {"type": "mean", "x": names["cost"]}
    shape = _shape(model, out)
    feeds = {**model.feeds, value: {"shape": list(shape[1:]), "dtype": "float32"}}
    return replace(model, feeds=feeds, layers=layers, fetches=[names["loss"], *model.fetches], loss=names["loss"])
