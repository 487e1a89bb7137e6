"""ONNX files."""

from __future__ import annotations

from pathlib import Path

from pe_cli.session.importing.define import ImportedModel, ImportWish, ModelKind


def _takes(source: Path) -> bool:
    return source.suffix.lower() == ".onnx"


def _read(wish: ImportWish) -> ImportedModel:
    from pe_cli.session.importing.onnx.read import read

    return read(wish)


_OPTIONS = ("partial", "fixed", "task", "flat", "fold_batch_norm", "shape", "constant", "training")
KIND = ModelKind("ONNX", "a file MODEL.onnx", _takes, _read, _OPTIONS)
