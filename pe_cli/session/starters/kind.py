"""Chooses the kind of starter for a file or folder."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.session.starters.files import Settings, Starter

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
#: Files of a folder that are looked at for what they are.
LOOKED = 2000
ARRAYS = (".npz", ".npy")


def make(settings: Settings) -> Starter:
    """Return a starter for a file or folder.

    Raises:
        PeError: USAGE, the target is missing or cannot go with such data; DATA, the data cannot be read.
    """
    source = settings.source
    if not source.exists():
        close = (
            did_you_mean(source.name, [entry.name for entry in source.parent.iterdir()])
            if source.parent.is_dir()
            else None
        )
        raise PeError(
            f"no such file or folder: {source}", hint=close or f"paths start at {Path.cwd()}", code=ExitCode.DATA
        )
    return _folder(settings) if source.is_dir() else _file(settings)


def _file(settings: Settings) -> Starter:
    from pe_cli.data.annotations.kinds import kind_of
    from pe_cli.session.data.user_data import is_table_file
    from pe_cli.session.starters import detection, table, tagging

    suffix = settings.source.suffix.lower()
    if suffix in PICTURES:
        raise PeError(
            f"{settings.source} is one picture",
            hint="name the folder that holds one folder of pictures per class, or pictures beside masks",
        )
    if suffix in ARRAYS:
        raise PeError(
            f"{settings.source} holds arrays, and --from takes tables, folders of pictures, and texts",
            hint="pe init without --from writes a config to change; docs/data.md tells the reader npz",
        )
    may = suffix in (".json", ".xml") and settings.target is None and settings.task in ("auto", "boxes")
    if may and (kind := kind_of(settings.source)):
        return detection.starter(settings, settings.source, kind)
    named = tagging.SUFFIXES if settings.task == "auto" else ()
    json_of = suffix in (".json", ".jsonl") and settings.target is None and settings.task == "auto"
    if suffix in named or settings.task == "words" or (json_of and tagging.has_spans(settings.source)):
        return tagging.starter(settings)
    if is_table_file(settings.source) or settings.target is not None:
        return table.starter(settings)
    from pe_cli.session.starters import language

    return language.starter(settings)


def _folder(settings: Settings) -> Starter:
    from pe_cli.session.starters import detection, images, language, mask_folders, segmentation, table, texts

    files = (path for path in settings.source.rglob("*") if path.is_file() and not path.name.startswith("."))
    inside = list(islice(files, LOOKED))
    pictures = sum(path.suffix.lower() in PICTURES for path in inside)
    tables = table.tables_in(settings.source)
    boxes = detection.annotations_in(settings.source) if pictures and settings.task in ("auto", "boxes") else None
    if boxes is not None and not (tables and settings.target):
        return detection.starter(settings, *boxes)
    if settings.task == "boxes":
        raise PeError(
            f"{settings.source} has no annotations of boxes: COCO, Pascal VOC, YOLO, or exports of Label Studio and CVAT",
            hint="name the folder that holds the pictures and the annotations",
            code=ExitCode.DATA,
        )
    may = pictures * 2 > len(inside) and settings.task in ("auto", "masks")
    masks = mask_folders.find(settings.source, sure=settings.task == "masks") if may else None
    if masks is not None and not (tables and settings.target):
        return segmentation.starter(settings, masks)
    if settings.task == "masks":
        raise PeError(
            f"{settings.source} has no masks: no folder in it, and no name, tells which pictures are masks of others",
            hint="put pictures into images/ and masks of the same names into masks/, or beside them as NAME_mask.png",
            code=ExitCode.DATA,
        )
    if pictures * 2 > len(inside) and not (tables and settings.target not in (None, images.LABEL)):
        return images.starter(settings)
    if tables:
        return table.starter(settings)
    if not inside:
        raise PeError(
            f"{settings.source} has no files", hint="name a table, a text, or a folder of pictures", code=ExitCode.DATA
        )
    if any(path.parent != settings.source for path in inside):
        return texts.starter(settings)
    return language.starter(settings)
