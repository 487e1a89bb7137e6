"""Chooses the kind of starter for a file or folder."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.session.starters.files import Starter, Wish

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
#: Files of a folder that are looked at for what they are.
LOOKED = 2000
ARRAYS = (".npz", ".npy")


def make(wish: Wish) -> Starter:
    """Return a starter for a file or folder.

    Raises:
        PeError: USAGE, the target is missing or cannot go with such data; DATA, the data cannot be read.
    """
    source = wish.source
    if not source.exists():
        close = (
            did_you_mean(source.name, [entry.name for entry in source.parent.iterdir()])
            if source.parent.is_dir()
            else None
        )
        raise PeError(
            f"no such file or folder: {source}", hint=close or f"paths start at {Path.cwd()}", code=ExitCode.DATA
        )
    return _folder(wish) if source.is_dir() else _file(wish)


def _file(wish: Wish) -> Starter:
    from pe_cli.data.annotations.kinds import kind_of
    from pe_cli.session.data.user_data import is_table_file
    from pe_cli.session.starters import detection, table, tagging

    suffix = wish.source.suffix.lower()
    if suffix in PICTURES:
        raise PeError(
            f"{wish.source} is one picture", hint="name the folder that holds one folder of pictures per class, or pictures beside masks"
        )
    if suffix in ARRAYS:
        raise PeError(
            f"{wish.source} holds arrays, and --from takes tables, folders of pictures, and texts",
            hint="pe init without --from writes a config to change; docs/data.md tells the reader npz",
        )
    if suffix in (".json", ".xml") and wish.target is None and wish.task in ("auto", "boxes") and (kind := kind_of(wish.source)):
        return detection.starter(wish, wish.source, kind)
    named = tagging.SUFFIXES if wish.task == "auto" else ()
    json_of = suffix in (".json", ".jsonl") and wish.target is None and wish.task == "auto"
    if suffix in named or wish.task == "words" or (json_of and tagging.has_spans(wish.source)):
        return tagging.starter(wish)
    if is_table_file(wish.source) or wish.target is not None:
        return table.starter(wish)
    from pe_cli.session.starters import language

    return language.starter(wish)


def _folder(wish: Wish) -> Starter:
    from pe_cli.session.starters import detection, images, language, mask_folders, segmentation, table, texts

    files = (path for path in wish.source.rglob("*") if path.is_file() and not path.name.startswith("."))
    inside = list(islice(files, LOOKED))
    pictures = sum(path.suffix.lower() in PICTURES for path in inside)
    tables = table.tables_in(wish.source)
    boxes = detection.annotations_in(wish.source) if pictures and wish.task in ("auto", "boxes") else None
    if boxes is not None and not (tables and wish.target):
        return detection.starter(wish, *boxes)
    if wish.task == "boxes":
        raise PeError(
            f"{wish.source} has no annotations of boxes: COCO, Pascal VOC, YOLO, or exports of Label Studio and CVAT",
            hint="name the folder that holds the pictures and the annotations",
            code=ExitCode.DATA,
        )
    may = pictures * 2 > len(inside) and wish.task in ("auto", "masks")
    masks = mask_folders.find(wish.source, sure=wish.task == "masks") if may else None
    if masks is not None and not (tables and wish.target):
        return segmentation.starter(wish, masks)
    if wish.task == "masks":
        raise PeError(
            f"{wish.source} has no masks: no folder in it, and no name, tells which pictures are masks of others",
            hint="put pictures into images/ and masks of the same names into masks/, or beside them as NAME_mask.png",
            code=ExitCode.DATA,
        )
    if pictures * 2 > len(inside) and not (tables and wish.target not in (None, images.LABEL)):
        return images.starter(wish)
    if tables:
        return table.starter(wish)
    if not inside:
        raise PeError(
            f"{wish.source} has no files", hint="name a table, a text, or a folder of pictures", code=ExitCode.DATA
        )
    if any(path.parent != wish.source for path in inside):
        return texts.starter(wish)
    return language.starter(wish)
