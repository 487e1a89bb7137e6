"""What reads models of other programs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from pe_cli.config.load import load_model
from pe_cli.session.importing.define import ImportWish, read_model
from pe_cli.session.importing.repeats.fold import with_blocks
from pe_cli.session.importing.write import model_text, report_text
from tests.fuzz.grammar_folders import unpacked
from tests.fuzz.targets import refused, target


@target
def onnx_graph(data: bytes, folder: Path) -> None:
    """An ONNX file, as `pe import` takes it: what is made of it is a model file without mistakes."""
    path = folder / "f.onnx"
    path.write_bytes(data)
    with refused(folder), mock.patch.object(tempfile, "tempdir", str(folder)):  # where the blocks are tried
        flat = read_model(_wish(path, len(data)))
        model = with_blocks(flat)
        assert model is flat or model.blocks, model.notes[-1]
        report_text(model).encode()
        (folder / "model.yaml").write_text(model_text(model), encoding="utf-8")
        load_model(folder / "model.yaml")


def _wish(path: Path, number: int) -> ImportWish:
    """Return one of the ways to ask for a file."""
    shapes = [{}, {}, {"x": [None, 4]}, {"x": [None, 3, 4]}, {"x": [3, None]}][number % 5]
    constants = {"x": 1.0} if number % 7 == 0 and not shapes else {}
    return ImportWish(path, partial=number % 2 == 0, shapes=shapes, constants=constants, training=number % 3 == 0)


@target
def hugging_face(data: bytes, folder: Path) -> None:
    """A folder of transformers, as `pe import` takes it: what is made of it is a model file without mistakes."""
    config, values = unpacked(data)
    source = folder / "given"
    source.mkdir(exist_ok=True)
    (source / "config.json").write_bytes(config)
    (source / "model.safetensors").write_bytes(values)
    with refused(folder), mock.patch.object(tempfile, "tempdir", str(folder)):  # where the model file is tried
        model = read_model(ImportWish(source))
        report_text(model).encode()
        (folder / "model.yaml").write_text(model_text(model), encoding="utf-8")
        load_model(folder / "model.yaml")
