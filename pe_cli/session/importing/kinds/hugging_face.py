"""Folders as Hugging Face's transformers writes them."""

from __future__ import annotations

from pathlib import Path

from pe_cli.session.importing.define import ImportedModel, ImportWish, ModelKind


def _takes(source: Path) -> bool:
    return (source / "config.json").exists()


def _read(wish: ImportWish) -> ImportedModel:
    from pe_cli.session.importing.hugging_face.read import read

    return read(wish)


_OPTIONS = ("head", "classes", "length", "fold_batch_norm")
KIND = ModelKind("Hugging Face", "a folder with config.json and model.safetensors", _takes, _read, _OPTIONS)
