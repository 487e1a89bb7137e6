"""What a model of another program is read into, and the kinds that are known: a module for each in `kinds/`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ImportedModel:
    """A model as a model file has it, with the values of its parameters.

    Args:
        name: of the model.
        feeds: name -> declaration.
        layers: name -> layer, in order: `{type: fc, input: x, size: 3}`, or the use of a block.
        fetches: names of its outputs.
        arrays: parameter -> value; what has none begins at random.
        args: constants of the model.
        blocks: name -> `{args, layers, output, next}`.
        comments: layer, feed, or `block/layer` -> what stands behind it, such as its shape.
        notes: what was folded, simplified or left out, a sentence each.
        source: file or folder that it was read from.
        details: what only the report has, a line each.
        files: name -> what else is written beside the model, such as an example of a config.
        loss: what training makes smaller; empty where nothing says it.
        optimizer: that a config begins with; empty where nothing says it.
        metadata: what the file says of itself: key -> text.
    """

    name: str
    feeds: Mapping[str, Mapping[str, Any]]
    layers: Mapping[str, Mapping[str, Any]]
    fetches: Sequence[str]
    arrays: Mapping[str, np.ndarray[Any, Any]]
    args: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    source: str = ""
    details: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    loss: str = ""
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportWish:
    """What is asked of an import.

    Args:
        source: file or folder.
        partial: what cannot be imported ends the model there, and is no error.
        fixed: inputs keep the sizes that the file says, and have no batch axis.
        head: what the model is to end with, of a family that has several; None for what the folder says.
        classes: that a new last layer tells apart; None keeps those of the folder.
        length: tokens that the model sees; None for as many as usual.
        shapes: input -> sizes, of which None is that of the batch; of a graph that leaves them open.
        constants: input -> number that it always is.
        training: batch norms and dropout in the form of training are layers that do so in training alone.
    """

    source: Path
    partial: bool = False
    fixed: bool = False
    head: str | None = None
    classes: int | None = None
    length: int | None = None
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    training: bool = False


@dataclass(frozen=True)
class ModelKind:
    """A kind of models of other programs.

    Args:
        name: in messages.
        looks_like: what its files look like, for messages: `a file MODEL.onnx`.
        takes: whether a file or folder is of this kind, by its name and what lies in it.
        read: reads one.
        options: what users may ask of it, of `pe import`'s options.
    """

    name: str
    looks_like: str
    takes: Callable[[Path], bool]
    read: Callable[[ImportWish], ImportedModel]
    options: tuple[str, ...]


@functools.cache
def kinds() -> tuple[ModelKind, ...]:
    """Return all kinds, by name."""
    from pe_cli.session.importing import kinds as package

    modules = [importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)]
    return tuple(sorted((module.KIND for module in modules), key=lambda kind: kind.name))


def kind_of(source: Path) -> ModelKind:
    """Return the kind of a model of another program.

    Raises:
        PeError: DATA; there is none, or it is of no kind that is known.
    """
    if not source.exists():
        raise PeError(f"no such file or folder: {source}", hint=f"paths start at {Path.cwd()}", code=ExitCode.DATA)
    for kind in kinds():
        if kind.takes(source):
            return kind
    known = "; ".join(f"{kind.looks_like} ({kind.name})" for kind in kinds())
    raise PeError(f"{source} is no model of a kind that is read", hint=f"name {known}", code=ExitCode.DATA)


def read_model(wish: ImportWish) -> ImportedModel:
    """Read a model of another program.

    Raises:
        PeError: DATA; there is none, it is of no kind that is known, it is damaged, or a part of it has no layer here.
    """
    return kind_of(wish.source).read(wish)
