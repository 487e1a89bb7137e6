"""Reads a model of PaddlePaddle 1.x into layers: the folder of `save_inference_model`, or what `fluid.save` wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fluid import models
from pe_cli.io.fluid.forward import Forward, forward_of
from pe_cli.io.fluid.program_desc import LOD_TENSOR, SELECTED_ROWS, BlockDesc, VarDesc
from pe_cli.io.fluid.reading import Loaded
from pe_cli.session.importing.define import ImportedModel, ImportWish
from pe_cli.session.importing.paddle.emit import Emitter
from pe_cli.session.importing.paddle.files import locate, model_file, read_values
from pe_cli.session.importing.paddle.loops import append_scan
from pe_cli.session.importing.paddle.optimizer import optimizer_of, rate_of
from pe_cli.session.importing.paddle.rewrite import rewritten

Array = np.ndarray[Any, Any]


def read(wish: ImportWish) -> ImportedModel:
    """Read a model.

    Raises:
        PeError: DATA; files are missing or damaged, or an operator has no layer.
    """
    path = model_file(wish.source)
    assert path is not None
    blocks = models.read_blocks(models.read_bytes(path), str(path))
    saved = _saved(blocks)
    files = locate(wish.source, list(saved))
    forward = forward_of(blocks)
    try:
        loaded = models.loaded(rewritten(forward.blocks), str(path), partial=wish.partial)
        emitter = Emitter(loaded, [*loaded.fetches, *loaded.frontier], partial=wish.partial, loop=append_scan)
        emitter.run()
        if not emitter.layers:
            raise PeError("it computes nothing that a layer does", hint=_first(loaded, emitter), code=ExitCode.DATA)
    except PeError as error:
        error.message = error.message if str(path) in error.message else f"{path}: {error.message}"
        raise
    rate = rate_of(forward.updates)
    wanted = [*(name for name in emitter.parameters if name in saved), *([rate] if rate in saved and files.values else [])]
    arrays = read_values(files, saved, wanted)
    model = _model(wish.source, path, loaded, emitter, {name: arrays[name] for name in arrays if name != rate} | emitter.arrays)
    loss = emitter.reference(forward.loss) or ""
    return replace(model, loss=loss, optimizer=optimizer_of(forward.updates, arrays), notes=[*model.notes, *_of_training(forward)])


def _of_training(forward: Forward) -> list[str]:
    """Return what is said of the part of a program that trains it."""
    text = "regularization, clipping and schedules of learning rates are not read: write them into config.yaml"
    return [text] if forward.more_than_updates else []


def _saved(blocks: Sequence[BlockDesc]) -> dict[str, VarDesc]:
    """Return the variables that have values in files, by name."""
    return {v.name: v for block in blocks for v in block.vars if v.persistable and v.kind in (LOD_TENSOR, SELECTED_ROWS)}


def _first(loaded: Loaded, emitter: Emitter) -> str:
    failures = [*loaded.lost, *emitter.failures]
    return failures[0].message if failures else "save it with target_vars that are computed"


def _model(source: Path, path: Path, loaded: Loaded, emitter: Emitter, arrays: dict[str, Array]) -> ImportedModel:
    fetches: list[str] = []
    details: list[str] = []
    odd = [name for name, value in arrays.items() if value.dtype.kind == "f" and not np.isfinite(value).all()]
    notes = [f"'{name}' has values that are NaN or infinite" for name in odd]
    notes += [f"left out: {failure.message}" for failure in (*loaded.lost, *emitter.failures)]
    for name in [*loaded.fetches, *loaded.frontier, *emitter.frontier]:
        ref = emitter.reference(name)
        if ref is not None and (name in loaded.fetches or ref not in emitter.feeds):
            fetches.append(ref)
            details.append(f"output {ref}: {name}")
    if not fetches:
        raise PeError(f"{path}: nothing of what it computes has a layer", hint=_first(loaded, emitter), code=ExitCode.DATA)
    return ImportedModel(
        name=_name_of(source), feeds=emitter.feeds, layers=emitter.layers, fetches=list(dict.fromkeys(fetches)), arrays=arrays,
        blocks=emitter.blocks, comments=emitter.comments, notes=notes, source=str(source), details=details,
    )  # fmt: skip


def _name_of(source: Path) -> str:
    found = source.resolve().parent.name if source.name.startswith("__") else source.resolve().stem
    return re.sub(r"[^A-Za-z0-9_-]+", "_", found).strip("_-") or "model"
