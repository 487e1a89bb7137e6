"""Annotations of pictures: boxes around things, as programs for drawing them save them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pe_cli.config.sections.value_types import Name
from pe_cli.data.annotations.kinds import Kind, kind_of, read_all
from pe_cli.data.annotations.pictures import Index, Placed, Placer, unreadable
from pe_cli.data.annotations.things import Noted
from pe_cli.data.annotations.yolo import NAMES, names_beside
from pe_cli.data.pictures.mask_files import listed
from pe_cli.data.pictures.picture_checks import pillow
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.images import FILE, IMAGE, PictureTable
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.tables.file_patterns import find_files

#: Columns besides the picture.
BOX, CLASS, COUNT = "boxes", "classes", "count"
#: Endings of files of annotations.
SUFFIXES = (".json", ".xml", ".txt")


class AnnotationsOptions(ReaderOptions):
    """Options of the annotations reader."""

    files: Name | Annotated[list[Name], Field(min_length=1)] = Field(
        description="a file of annotations, a folder of them, or a pattern; or a list of these"
    )
    folder: Name | None = Field(None, description="folder that the pictures lie in; that of the annotations when absent")
    format: Kind = Field("auto", description="auto: by the end of the name and the first bytes of the first file")
    names: Annotated[list[Name], Field(min_length=1)] | None = Field(
        None, description="of YOLO: the classes in the order of their numbers; those of classes.txt or data.yaml beside them when absent"
    )
    broken: Literal["error", "skip"] = Field(
        "error", description="a picture that is named and not there, or cannot be read: an error, or left out"
    )
    outside: Literal["error", "clip"] = Field(
        "error",
        description="a box that leaves its picture, or has no size: an error; or cut at the borders, and left out where nothing is left; "
        "where most boxes lie outside, that is an error",
    )


class AnnotationTable(PictureTable):
    """Pictures with boxes.

    Attributes:
        counts: what was left out or cut -> how often.
    """

    counts: dict[str, int]


@reader("annotations", AnnotationsOptions)
def open_annotations(options: AnnotationsOptions, origin: Origin) -> Table:
    """Read boxes around things in pictures: COCO, Pascal VOC, YOLO, and exports of Label Studio and CVAT.

    The columns are `image`, the picture; `boxes` and `classes`, JSON lists of [left, top, right, bottom] in parts of the picture and of
    what is in each; `count`, how many there are, and 1 where there is none, for layers that take no empty sequence; and `file`, the path
    of the picture. Rows are in the order of these paths. Pictures are found by their path, by the
    end of it, or by their name. Of YOLO, a picture without a file of annotations has no box.

    Raises:
        PeError: DATA; a file is of no known kind or damaged, a picture is not there or of another size, or a box lies outside.
    """
    pillow()
    paths = _files(options, origin)
    start = paths[0].parent
    folder = start if options.folder is None else origin.base / os.path.expanduser(options.folder)  # noqa: PTH111 - see images
    if not folder.is_dir():
        raise origin.error(f"there is no folder {folder}", "say where pictures are: folder: PATH")
    index = Index(listed(folder, origin))
    if not index.paths:
        raise unreadable(origin, folder)
    kind = kind_of(paths[0]) if options.format == "auto" else options.format
    names = (options.names or names_beside(start, origin)) if kind == "yolo" else []
    found = read_all(paths, options.format, names, origin)
    if kind == "yolo":
        known = {index.find(one.picture) for one in found.noted}
        bare = [path for path in index.paths if path not in known]
        found.noted += [Noted(path, path, parts=True) for path in bare]
    placer = Placer(folder, index, options.broken, options.outside, origin)
    placed = placer.place(found.noted)[options.skip :][: options.limit]
    if not placed:
        raise origin.error(f"{paths[0]}: no picture is left", "skip fewer, or say where pictures are: folder: PATH")
    return _table(placed, {**found.left_out, **placer.counts}, folder, origin)


def _table(placed: list[Placed], counts: dict[str, int], folder: Path, origin: Origin) -> Table:
    rows = [one.path for one in placed]
    columns: dict[str, Sequence[object]] = {
        IMAGE: rows, BOX: [json.dumps([[round(side, 6) for side in box] for box in one.boxes]) for one in placed],
        CLASS: [json.dumps(one.labels, ensure_ascii=False) for one in placed], COUNT: [max(1, len(one.boxes)) for one in placed],
        FILE: rows,
    }  # fmt: skip
    made = AnnotationTable(columns, origin, folder)
    made.counts = counts
    plain = {IMAGE: {"type": "image"}, CLASS: {"type": "box_classes"}, COUNT: {"type": "number"}}
    made.implied = {**plain, BOX: {"type": "boxes", "over": IMAGE}}
    return made


def _files(options: AnnotationsOptions, origin: Origin) -> list[Path]:
    """Return the files of annotations, sorted where a folder is named.

    Raises:
        PeError: DATA; there is none.
    """
    found: list[Path] = []
    for name in [options.files] if isinstance(options.files, str) else options.files:
        path = origin.base / os.path.expanduser(name)  # noqa: PTH111 - see images
        if not path.is_dir():
            found += find_files(name, origin)
            continue
        inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.name not in NAMES and one.is_file())
        inside = [one for one in inside if options.format != "auto" or kind_of(one)]
        if not inside:
            raise origin.error(f"{path} has no annotations ({', '.join(SUFFIXES)})", "name the folder or the file that holds them")
        found += inside
    return found
