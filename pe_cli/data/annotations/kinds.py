"""Tells which kind of annotations files are, and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pe_cli.core.errors import PeError
from pe_cli.data.annotations import coco, cvat, label_studio, voc, yolo
from pe_cli.data.annotations.things import MOST_BOXES, Found, wrong
from pe_cli.data.reader_context import Origin

Kind = Literal["auto", "coco", "voc", "yolo", "label_studio", "cvat"]
#: Bytes of a file that tell its kind.
HEAD = 4096
_READERS = {"coco": coco.read, "voc": voc.read, "label_studio": label_studio.read, "cvat": cvat.read}


def kind_of(path: Path) -> str:
    """Return the kind of a file of annotations; empty where it is none."""
    if path.suffix.lower() == ".txt":
        first = next((line.split() for line in _head(path).splitlines() if line.strip()), [])
        return "yolo" if (not first and not path.stat().st_size) or (len(first) >= 5 and all(_is_number(cell) for cell in first)) else ""
    head = _head(path).lstrip("\ufeff \r\n\t")
    if path.suffix.lower() == ".json":
        if head.startswith("["):
            return "label_studio" if '"annotations"' in head or '"image' in head or '"data"' in head else ""
        return "coco" if any(f'"{key}"' in head for key in ("images", "annotations", "categories")) else ""
    if path.suffix.lower() == ".xml":
        return "cvat" if "<annotations" in head else "voc" if "<annotation" in head else ""
    return ""


def _head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(HEAD).decode("utf-8", "replace")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_all(paths: Sequence[Path], kind: Kind, names: Sequence[str], origin: Origin) -> Found:
    """Return what all files say together.

    Args:
        paths: of one kind.
        kind: of them; auto finds it out by the first one.
        names: of the classes of YOLO.
        origin: of the data, for messages.

    Raises:
        PeError: DATA; a file is of another kind, or of none, or there are too many boxes.
    """
    known = kind_of(paths[0]) if kind == "auto" else kind
    if not known:
        raise wrong(paths[0], "no annotations that are read: COCO, Pascal VOC, YOLO, or exports of Label Studio and CVAT", origin)
    made, boxes = Found([]), 0
    for path in paths:
        try:
            found = yolo.read(path, origin, names) if known == "yolo" else _READERS[known](path, origin)
        except OSError as error:
            raise origin.error(f"cannot read {path}: {(error.strerror or str(error)).lower()}", "check its permissions") from None
        made.noted += found.noted
        boxes += sum(len(one.things) for one in found.noted)
        if boxes > MOST_BOXES:
            raise _many(path, origin)
        for what, count in found.left_out.items():
            made.left_out[what] = made.left_out.get(what, 0) + count
    return made


def _many(path: Path, origin: Origin) -> PeError:
    return origin.error(f"{path}: more than {MOST_BOXES:,} boxes in all files", "name fewer files")
