"""Models of PaddlePaddle 1.x: folders of `save_inference_model`, and what `fluid.save` writes."""

from __future__ import annotations

from pathlib import Path

from pe_cli.session.importing.define import ImportedModel, ImportWish, ModelKind


def _takes(source: Path) -> bool:
    from pe_cli.session.importing.paddle.files import model_file

    return model_file(source) is not None


def _read(wish: ImportWish) -> ImportedModel:
    from pe_cli.session.importing.paddle.read import read

    return read(wish)


KIND = ModelKind("PaddlePaddle 1", "a folder with __model__, or a file MODEL.pdmodel", _takes, _read, ("partial", "task"))
