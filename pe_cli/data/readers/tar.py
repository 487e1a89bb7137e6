"""Shards of samples in tar files, as WebDataset writes them."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pe_cli.core import json_reading
from pe_cli.data.pictures.archive_members import member_path
from pe_cli.data.pictures.decode import SUFFIXES
from pe_cli.data.pictures.picture_checks import pillow
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.images import FILE, IMAGE, LABEL, PictureTable
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.tables.file_patterns import find_files

Text = Annotated[str, Field(strict=True)]
#: Bytes of a text, a label or a JSON value, and of all of them together, at most.
LONGEST, MOST = 1 << 20, 1 << 30
_TEXTS = {"cls": LABEL, "txt": "text"}


class TarOptions(ReaderOptions):
    """Options of the tar reader."""

    files: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="tar files that are not packed: a file, a pattern such as `shards/train-*.tar`, or a list of them"
    )


@reader("tar", TarOptions)
def open_tar(options: TarOptions, origin: Origin) -> Table:
    """Read samples of tar files in the form of WebDataset: neighbouring members of one name up to its first dot are a sample.

    What is behind the dot says what a member is: `jpg`, `jpeg`, `png`, `webp` and `bmp` are the column `image` (and `left.jpg` the
    column `left`); `cls` is the column `label`, `txt` the column `text`, and each key of `json` a column of its own; other members are left
    out. The column `file` has the name of the sample. Nothing is extracted: pictures are read where they lie, when they are needed.

    Raises:
        PeError: a file is packed, damaged or cut off, has no sample, or a sample has a member twice.
    """
    rows: list[dict[str, object]] = []
    names: dict[str, None] = {}
    pictures: dict[str, None] = {}
    paths = [path.absolute() for path in find_files(options.files, origin)]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    most, total = None if options.limit is None else options.skip + options.limit, 0
    for path in paths:
        before = len(rows)
        for row, size in _samples(path, str(path.relative_to(folder)), origin, pictures):
            total += size
            if total > MOST:
                raise origin.error(f"{path}: labels and texts have more than {MOST:,} bytes", "read long texts with reader: text")
            names.update(dict.fromkeys(row))
            rows.append(row)
            if most is not None and len(rows) >= most:
                break
        if len(rows) == before:
            raise origin.error(f"{path} has no sample", "members are named like 00001.jpg and 00001.cls")
        if most is not None and len(rows) >= most:
            break
    if options.skip >= len(rows):
        raise origin.error(f"skip: {options.skip} leaves none of {len(rows)} samples", "skip fewer")
    if pictures:
        pillow()
    used = rows[options.skip :]
    made = PictureTable({name: [row.get(name) for row in used] for name in names}, origin, folder)
    made.implied = {name: {"type": "image"} for name in pictures} | ({LABEL: {"type": "category"}} if LABEL in names else {})
    return made


def _samples(path: Path, shown: str, origin: Origin, pictures: dict[str, None]) -> Iterator[tuple[dict[str, object], int]]:
    """Yield the samples of a file: cells by column, and bytes of texts that were read for them.

    Args:
        path: of the file.
        shown: what it is called in cells.
        origin: gives errors their place.
        pictures: gets the names of columns of pictures.
    """
    row: dict[str, object] = {}
    size = 0
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            length = path.stat().st_size
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # of millions, all would be kept
                base, _, kind = member.name.rpartition("/")[2].partition(".")
                # Links, devices and folders are no samples, and are not followed.
                if not member.isreg() or member.issparse() or not base or not kind:
                    continue
                key = member.name[: len(member.name) - len(kind) - 1]
                if row and row[FILE] != key:
                    if len(row) > 1:
                        yield row, size
                    row, size = {}, 0
                row[FILE] = key
                # A header may claim more than the file has.
                if member.offset_data + member.size > length:
                    raise origin.error(f"{path} is cut off in its member '{member.name}'", "copy or download it again")
                for name, cell in _cells(archive, member, kind.lower(), shown, path, origin, pictures):
                    if name in row:
                        raise origin.error(f"{path}: sample '{key}' has '{name}' twice", "name every member of a sample once")
                    row[name] = cell
                    size += len(str(cell))
    except (tarfile.TarError, ValueError, OverflowError) as error:
        hint = "unpack it: gunzip" if path.suffix in (".gz", ".tgz") else "copy or write it again"
        raise origin.error(f"{path} is no readable tar file: {error}", hint) from None
    if len(row) > 1:
        yield row, size


def _cells(
    archive: tarfile.TarFile, member: tarfile.TarInfo, kind: str, shown: str, path: Path, origin: Origin, pictures: dict[str, None]
) -> Iterator[tuple[str, object]]:
    """Yield the cells of a member."""
    if f".{kind}".endswith(SUFFIXES):
        name = kind.rpartition(".")[0] or IMAGE
        pictures[name] = None
        yield name, member_path(shown, member.offset_data, member.size)
        return
    if kind not in ("json", *_TEXTS):
        return
    if member.size > LONGEST:
        raise origin.error(f"{path}: '{member.name}' has {member.size:,} bytes, and {LONGEST:,} are the most", "shorten it")
    file = archive.extractfile(member)
    assert file is not None
    data = file.read()
    if len(data) < member.size:
        raise origin.error(f"{path} is cut off in its member '{member.name}'", "copy or download it again")
    try:
        text = data.decode()
        if kind != "json":
            yield _TEXTS[kind], text.strip()
            return
        found: Any = json_reading.loads(text)
    except ValueError:
        raise origin.error(f"{path}: '{member.name}' is no {'JSON' if kind == 'json' else 'UTF-8 text'}", "write it again") from None
    if not isinstance(found, dict):
        raise origin.error(f"{path}: '{member.name}' is no JSON object", 'write {"name": value, ...}')
    for name, value in found.items():
        yield name, json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
