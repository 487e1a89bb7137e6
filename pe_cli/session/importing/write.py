"""Writes an imported model: a model file, its values, a config that names both, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pe_cli.config.nodes import MAX_BYTES
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.io import atomic
from pe_cli.io.tensors import write_safetensors
from pe_cli.session.importing.define import ImportedModel

MODEL, PARAMS, CONFIG, REPORT = "model.yaml", "params.safetensors", "config.yaml", "import.txt"
#: Column at which comments begin, where what stands before them is shorter.
_COMMENTS_AT = 96


def write(model: ImportedModel, folder: Path, replace: bool = False) -> list[Path]:
    """Write a model into a folder, each file whole or not at all, the model file last.

    Args:
        model: what is written.
        folder: made where it is not there.
        replace: whether files of an import that are there already are replaced.

    Returns:
        The files.

    Raises:
        PeError: USAGE; a file is there already, or cannot be written. DATA; the model is larger than a model file may be.
    """
    whole = model_text(model)
    if len(whole.encode()) > MAX_BYTES:
        raise PeError(f"the model file would have more than {MAX_BYTES:,} bytes, which no model file may", code=ExitCode.DATA)
    files = [folder / name for name in (PARAMS, CONFIG, REPORT, MODEL, *model.files)]
    for file in files:
        if not replace and (file.exists() or file.is_symlink()):
            raise PeError(f"{file} is there already", hint="name another folder, or add --force to replace it")
    atomic.make_folder(folder)
    with atomic.temporary(files[0]) as beside:
        write_safetensors(beside, model.arrays)
    for name, data in model.files.items():
        atomic.write_bytes(folder / name, data)
    for file, text in zip(files[1:4], (_config(model), report_text(model), whole), strict=True):
        atomic.write_text(file, text)
    return files


def model_text(model: ImportedModel) -> str:
    """Return the model file's text."""
    of = _one_line(Path(model.source).name)
    lines = [f"# Written by pe import from {of}; its values are in {PARAMS}.", f"name: {quoted(model.name)}"]
    if model.metadata:
        lines += ["metadata:", *(f"  {quoted(key)}: {flow(text)}" for key, text in model.metadata.items())]
    if model.args:
        lines.append(f"args: {flow(model.args)}")
    lines += ["feeds:", *_entries(model.feeds, model.comments, "  ")]
    if model.blocks:
        lines.append("blocks:")
    for name, block in model.blocks.items():
        lines.append(f"  {quoted(name)}:")
        lines += [f"    args: {flow(block['args'])}"] if block.get("args") else []
        lines += ["    layers:", *_entries(block["layers"], model.comments, "      ", f"{name}/")]
        lines += [f"    output: {quoted(block['output'])}"] if block.get("output") else []
        lines += [f"    next: {flow(block['next'])}"] if block.get("next") else []
    lines += ["layers:", *_entries(model.layers, model.comments, "  "), f"fetches: {flow(list(model.fetches))}"]
    return "\n".join(lines) + "\n"


def report_text(model: ImportedModel) -> str:
    """Return what was done, a line each."""
    return "\n".join([summary(model), *model.notes, *model.details]) + "\n"


def summary(model: ImportedModel) -> str:
    """Return in one line what a model has."""
    values = sum(array.size for array in model.arrays.values())
    return (
        f"{len(model.layers)} layers, {len(model.arrays)} tensors of {values:,} values; "
        f"inputs {', '.join(model.feeds)}; outputs {', '.join(model.fetches)}"
    )


def _config(model: ImportedModel) -> str:
    """Return a config that names the model, its values, and files of arrays, which are yours to write."""
    whole = [name for name, feed in model.feeds.items() if feed.get("replicate") and -1 not in feed["shape"]]
    feeds = {name: {"value": 0.0} if name in whole else name for name in model.feeds}
    lines = ["# Written by pe import. A file of arrays has one for each feed, by its name, with an axis of samples first."]
    if whole:
        lines.append("# A feed of one size for all samples is no field of the data: write its value.")
    lines += [f"model: {flow({'file': MODEL, 'args': dict(model.args)} if model.args else MODEL)}", "data:"]
    if model.loss:
        lines += ["  train: {reader: npz, file: train.npz, shuffle: true}"]
    lines += ["  predict: {reader: npz, file: input.npz}", f"feeds: {flow(feeds)}"]
    if model.loss:
        optimizer = model.optimizer or {"type": "Adam", "learning_rate": 0.0001}
        lines += [
            "train:", f"  loss: {quoted(model.loss)}", "  epochs: 5", "  batch_size: 32", f"  init: {{from: {PARAMS}}}",
            f"  optimizer: {flow(optimizer)}", "fetches:", f"  {quoted(model.loss)}: {{every: 1 epoch}}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _entries(entries: Mapping[str, Mapping[str, Any]], comments: Mapping[str, str], pad: str, prefix: str = "") -> list[str]:
    lines = []
    for name, entry in entries.items():
        text, comment = f"{pad}{quoted(name)}: {flow(entry)}", _one_line(comments.get(prefix + name, ""))
        lines.append(f"{text:<{_COMMENTS_AT}}  # {comment}" if comment else text)
    return lines


def _one_line(text: str) -> str:
    """Return text as a comment can hold it."""
    return "".join(c if c.isprintable() else " " for c in text)
