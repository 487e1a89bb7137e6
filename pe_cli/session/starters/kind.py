"""Chooses the kind of starter for a file or folder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.session.starters.divided import folders_in, narrowed
from pe_cli.session.starters.files import Settings, Starter

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
OTHER_PICTURES = (".tif", ".tiff", ".gif", ".heic", ".avif", ".dcm", ".ppm", ".pgm", ".svg", ".psd", ".jp2", ".exr", ".nef", ".cr2")
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
    made = _folder(settings) if source.is_dir() else _file(settings)
    if settings.holidays is not None and "holidays: " not in made.config:
        raise PeError(f"--holidays is about dates of tables, and {source} has none that are read", hint="leave --holidays out")
    if settings.event is not None and "event: " not in made.config:
        raise PeError(f"--event is about a target of a table, and {source} is none", hint="leave --event out")
    return made


def _file(settings: Settings) -> Starter:
    from pe_cli.data.annotations.kinds import kind_of
    from pe_cli.session.data.user_data import is_table_file
    from pe_cli.session.starters import detection, table, tagging

    suffix = settings.source.suffix.lower()
    if suffix in (*PICTURES, *OTHER_PICTURES):
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
        return detection.starter(settings, detection.Annotations(settings.source, kind, detection.pictures_beside(settings.source)))
    named = tagging.SUFFIXES if settings.task == "auto" else ()
    json_of = suffix in (".json", ".jsonl") and settings.target is None and settings.task == "auto"
    if suffix in named or settings.task == "words" or (json_of and tagging.has_spans(settings.source)):
        return tagging.starter(settings)
    if is_table_file(settings.source) or settings.target is not None:
        return table.starter(settings)
    from pe_cli.session.starters import language

    return language.starter(settings)


def _folder(settings: Settings) -> Starter:
    from pe_cli.session.starters import detection, table

    whole, parts = settings.source, folders_in(settings.source).values()
    boxes = detection.annotations_in(whole) if settings.task in ("auto", "boxes") else None
    # Annotations that lie beside the parts are divided by their own names, so the folder stays whole for them.
    if boxes is None or any(whole / part in (boxes.path, *boxes.path.parents) for part in parts):
        settings = narrowed(settings, parts)
    if settings.source != whole:
        return _folder(settings)
    tables = table.tables_in(settings.source)
    if boxes is not None and not (tables and settings.target):
        return detection.starter(settings, boxes)
    if settings.task == "boxes":
        raise PeError(
            f"{settings.source} has no annotations of boxes: COCO, Pascal VOC, YOLO, or exports of Label Studio and CVAT",
            hint="name the folder that holds the pictures and the annotations",
            code=ExitCode.DATA,
        )
    files = (path for path in settings.source.rglob("*") if path.is_file() and not path.name.startswith("."))
    inside = list(islice(files, LOOKED))
    return _pictures(settings, inside, tables) or _texts(settings, inside, tables)


def _pictures(settings: Settings, inside: Sequence[Path], tables: Sequence[Path]) -> Starter | None:
    """Return a starter for a folder of pictures; None where it has others.

    Args:
        settings: of the user.
        inside: files of the folder.
        tables: files that lie in it.
    """
    from pe_cli.session.starters import images, mask_folders, segmentation

    most = sum(path.suffix.lower() in PICTURES for path in inside) * 2 > len(inside)
    masks = mask_folders.find(settings.source, sure=settings.task == "masks") if most and settings.task in ("auto", "masks") else None
    if masks is not None and not (tables and settings.target):
        return segmentation.starter(settings, masks)
    if settings.task == "masks":
        raise PeError(
            f"{settings.source} has no masks: no folder in it, and no name, tells which pictures are masks of others",
            hint="put pictures into images/ and masks of the same names into masks/, or beside them as NAME_mask.png",
            code=ExitCode.DATA,
        )
    return images.starter(settings) if most and not (tables and settings.target not in (None, images.LABEL)) else None


def _texts(settings: Settings, inside: Sequence[Path], tables: Sequence[Path]) -> Starter:
    """Return a starter for a folder of tables or texts; see `_pictures`."""
    from pe_cli.session.starters import language, table, tagging, texts

    tagged = [path.name for path in inside if path.parent == settings.source and path.suffix.lower() in tagging.SUFFIXES]
    named = narrowed(settings, tagged or [path.name for path in tables])
    if named.source != settings.source:
        return _file(named)
    if tables:
        return table.starter(settings)
    if not inside:
        raise PeError(f"{settings.source} has no files", hint="name a table, a text, or a folder of pictures", code=ExitCode.DATA)
    other = next((path for path in inside if path.suffix.lower() in OTHER_PICTURES), None)
    if other is not None:
        raise PeError(
            f"{other}: pictures of this kind are not read; those that are: {', '.join(PICTURES)}",
            hint="save them as PNG, as ImageMagick does: mogrify -format png FILES",
            code=ExitCode.DATA,
        )
    if any(path.parent != settings.source for path in inside):
        return texts.starter(settings)
    return language.starter(settings)
