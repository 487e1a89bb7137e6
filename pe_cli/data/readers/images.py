"""Folders of pictures, one folder per class; or a table with a column of paths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pe_cli.config.sections.value_types import Name
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.data.array_dataset import is_table
from pe_cli.data.folder_listing import files_in
from pe_cli.data.notation import Notations
from pe_cli.data.pictures.decode import SUFFIXES, Mode, header, stamp
from pe_cli.data.pictures.decode_threads import in_parts
from pe_cli.data.pictures.mask_files import Unmasked, check_pattern, listed, masks_among, paired
from pe_cli.data.pictures.picture_checks import Broken, Unreadable, pillow
from pe_cli.data.raw_cells import Cells, ListTable, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, check_options, find_reader, reader
from pe_cli.data.tables.file_patterns import find_files

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

#: Columns of a folder of pictures.
IMAGE, LABEL, FILE, MASK = "image", "label", "file", "mask"


class ImagesOptions(ReaderOptions):
    """Options of the images reader."""

    folder: Name | None = Field(
        None,
        description="folder with one folder per class; or with pictures alone, which then have no label; for a table, where paths start",
    )
    files: Name | list[Name] | None = Field(
        None, min_length=1, description="pictures by name or by pattern, without a label; instead of folder"
    )
    table: Name | dict[str, Any] | None = Field(
        None, description="table whose rows are the samples: its file, or the options of the reader `table`; instead of folder or files"
    )
    path: Name | None = Field(
        None, description="column of the table that holds the paths of the pictures; without a table, what it is called, image when absent"
    )
    broken: Literal["error", "skip"] = Field(
        "error", description="a file that is no picture: an error, or left out; for a table, see the column type image"
    )
    masks: Name | None = Field(None, description="folder with a mask for each picture of `folder`, under the same path but for the ending")
    mask_name: Annotated[str, Field(strict=True), AfterValidator(check_pattern)] = Field(
        "*", description="what a mask is called, without its ending; * is the name of its picture, as in '*_mask'"
    )
    unmasked: Unmasked = Field(
        "error", description="a picture without a mask, or a mask without a picture: an error, or left out; keep: rows without a mask"
    )

    @model_validator(mode="after")
    def _fits(self) -> ImagesOptions:
        if self.table is None and self.path == LABEL:
            raise ValueError("path is what the column of the pictures is called, and label is that of their classes")
        if self.table is not None and self.path is None:
            raise ValueError("table needs path, the column that holds the paths of the pictures")
        if self.masked and self.path == MASK:
            raise ValueError("path is what the column of the pictures is called, and mask is that of their masks")
        if self.masked and (self.table is not None or self.folder is None):
            raise ValueError("masks and mask_name go with folder; in a table, declare the column of their paths: {type: mask}")
        ways = [name for name in ("folder", "files") if getattr(self, name) is not None]
        if self.table is not None and self.files is not None:
            raise ValueError("files and table both say which pictures there are: keep one")
        if self.table is None and len(ways) != 1:
            raise ValueError("name one of folder, files and table" if not ways else "folder and files both say which pictures there are")
        return self

    @property
    def masked(self) -> bool:
        """Whether pictures have masks."""
        return self.masks is not None or self.mask_name != "*"


@reader("images", ImagesOptions)
def open_images(options: ImagesOptions, origin: Origin) -> Table:
    """Read pictures: PNG, JPEG, WebP and BMP, by Pillow (`pip install 'pe-cli[images]'`).

    A folder gives the columns `image`, the picture; `label`, the folder of its class; and `file`, its path in the folder. They are
    in the order of their paths. Hidden files and folders are left out. With masks there is no label, and the column `mask` has the
    masks. A table gives its own columns.

    Raises:
        PeError: no picture can be read, or `skip` leaves none.
    """
    pillow()
    if options.table is not None:
        return _of_table(options, origin)
    if options.masked:
        return _with_masks(options, origin)
    folder, found = (_listed(options, origin) if options.files is not None else _of_folder(options, origin))
    if options.broken == "skip":
        found = [(label, path) for (label, path), good in zip(found, _readable(folder, found), strict=True) if good]
    if not found:
        raise origin.error(f"{folder} has no picture that can be read", "set broken: error to see why")
    if options.skip >= len(found):
        raise origin.error(f"skip: {options.skip} leaves none of {len(found)} pictures", "skip fewer")
    found = found[options.skip :][: options.limit]
    paths = [path for _, path in found]
    image = options.path or IMAGE
    columns: dict[str, Sequence[object]] = {image: paths}
    if found[0][0] is not None:
        columns[LABEL] = [label for label, _ in found]
    made = PictureTable({**columns, FILE: paths}, origin, folder)
    made.implied = {image: {"type": "image", **({"broken": "skip"} if options.broken == "skip" else {})}}
    if LABEL in columns:
        made.implied = {**made.implied, LABEL: {"type": "category"}}
    return made


def _with_masks(options: ImagesOptions, origin: Origin) -> Table:
    """Return the pictures of a folder beside their masks, which lie in another folder or among them."""
    assert options.folder is not None
    folder = _folder(options.folder, origin)
    masks = folder if options.masks is None else _folder(options.masks, origin)
    if options.masks is None:
        pictures, drawn = masks_among(listed(folder, origin), options.mask_name)
    else:
        pictures, drawn = listed(folder, origin, without=masks if masks.resolve() != folder.resolve() else None), listed(masks, origin)
    if not pictures:
        raise origin.error(f"{folder} has no pictures ({', '.join(SUFFIXES)})", "name the folder that holds the pictures")
    pairs = paired(pictures, drawn, options.mask_name, options.unmasked, (folder, masks), origin)
    if options.broken == "skip":
        good = _readable(folder, [(None, path) for path, _ in pairs])
        pairs = [pair for pair, whole in zip(pairs, good, strict=True) if whole]
    pairs = pairs[options.skip :][: options.limit]
    if not pairs:
        raise origin.error(f"skip: {options.skip} leaves no picture of {len(pictures)}", "skip fewer")
    paths, image = [path for path, _ in pairs], options.path or IMAGE
    made = PictureTable({image: paths, MASK: [mask for _, mask in pairs], FILE: paths}, origin, folder)
    made.folders = {MASK: masks}
    made.implied = {
        image: {"type": "image", **({"broken": "skip"} if options.broken == "skip" else {})},
        MASK: {"type": "mask", "over": image},
    }
    return made


class PictureTable(ListTable):
    """Pictures of a folder.

    Args:
        columns: name -> one value per picture.
        origin: gives errors their place.
        folder: that paths start from.
    """

    def __init__(self, columns: Mapping[str, Sequence[object]], origin: Origin, folder: Path) -> None:
        # a class may well be called NA: what a folder is called is never missing
        super().__init__(columns, origin, missing=())
        self.folder = folder
        self.folders: Mapping[str, Path] = {}  # of columns whose paths start elsewhere


class TableOfPictures:
    """A table with a column of paths; see `Table`.

    Args:
        table: as it was read.
        path: name of the column.
        folder: that paths start from.
        broken: what the column says of pictures that cannot be read.
    """

    def __init__(self, table: Table, path: str, folder: Path, broken: str) -> None:
        self._table, self.folder = table, folder
        self.implied: Mapping[str, Mapping[str, Any]] = {
            **table.implied,
            path: {"type": "image", **({"broken": "skip"} if broken == "skip" else {})},
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return self._table.names

    def __len__(self) -> int:
        return len(self._table)

    def cells(self, name: str) -> Cells:
        """Return a column; see `Table.cells`."""
        return self._table.cells(name)

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Say which columns will be asked for as what; see `Table.prepare`."""
        self._table.prepare(numbers, codes, together)

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell; see `Table.error`."""
        return self._table.error(row, name, message, hint)


def _of_table(options: ImagesOptions, origin: Origin) -> Table:
    assert options.path is not None
    written = {"files": options.table} if isinstance(options.table, str) else dict(options.table or {})
    found = find_reader("table", origin.at)
    given: dict[str, Any] = {name: getattr(options, name) for name in ("skip", "limit") if name in options.model_fields_set}
    checked = check_options(found, {**written, **given}, origin.at)
    table = found.open(checked, origin)
    assert is_table(table)
    if options.path not in table.names:
        hint = did_you_mean(options.path, table.names) or f"it has {', '.join(table.names[:20])}"
        raise origin.error(f"the table has no column '{options.path}', which path names", hint)
    folder = _folder(options.folder, origin) if options.folder else find_files(written["files"], origin)[0].parent
    return TableOfPictures(table, options.path, folder, options.broken)


def _folder(name: str, origin: Origin) -> Path:
    """Return a folder that can be listed.

    Raises:
        PeError: DATA; there is none.
    """
    path = origin.base / os.path.expanduser(name)  # noqa: PTH111 - Path's raises where there is no such user
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            origin.read.append(path)
            return path
        there = path.exists()
    except (OSError, ValueError) as error:
        said = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise origin.error(f"cannot read {path}: {said}", "check the path and its permissions") from None
    if there:
        raise origin.error(f"{path} is a file, not a folder", f"files: {name} takes single pictures")
    close = did_you_mean(path.name, sorted(entry.name for entry in path.parent.iterdir())) if path.parent.is_dir() else None
    raise origin.error(
        f"there is no folder {path}", close or f"relative paths start at the config file's folder, {origin.base.absolute()}"
    )


def _listed(options: ImagesOptions, origin: Origin) -> tuple[Path, list[tuple[str | None, str]]]:
    """Return files that were named, and the folder that holds them all."""
    assert options.files is not None
    paths = [path.absolute() for path in find_files(options.files, origin)]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    return folder, [(None, str(path.relative_to(folder))) for path in paths]


def _of_folder(options: ImagesOptions, origin: Origin) -> tuple[Path, list[tuple[str | None, str]]]:
    """Return a folder and what lies in it: class and path of every picture, sorted by path.

    Raises:
        PeError: DATA; other files are in it, a class has no picture, or pictures lie beside the folders of classes.
    """
    assert options.folder is not None
    folder = _folder(options.folder, origin)
    every = sorted(files_in(folder, origin, linked=True))
    found = [path for path in every if path.lower().endswith(SUFFIXES)]
    other = [path for path in every if not path.lower().endswith(SUFFIXES)]
    if other and options.broken == "error":
        more = f", and {len(other) - 1:,} more files" if len(other) > 1 else ""
        raise origin.error(
            f"{folder / other[0]}{more}: not {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}",
            "take it out of the folder, or set broken: skip",
        )
    if not found:
        raise origin.error(f"{folder} has no pictures ({', '.join(SUFFIXES)})", "name the folder that holds the folders of the classes")
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        return folder, [(None, path) for path in found]
    labels = [path.split("/", 1)[0] if "/" in path else None for path in found]
    if None in labels and options.broken == "error":
        raise origin.error(
            f"{folder / found[labels.index(None)]} lies beside folders of classes ({', '.join(classes[:5])}), so it has no class",
            "move it into one of them, or name one folder",
        )
    empty = sorted(set(classes) - set(labels))
    if empty and options.broken == "error":
        raise origin.error(f"class '{empty[0]}' has no picture: {folder / empty[0]}", "remove the folder, or set broken: skip")
    return folder, [(label, path) for label, path in zip(labels, found, strict=True) if label is not None]


def _readable(folder: Path, found: Sequence[tuple[str | None, str]], mode: Mode = "rgb") -> list[bool]:
    """Return which files have the header of a picture."""
    good = [False] * len(found)

    def look(start: int, end: int) -> None:
        for i in range(start, end):
            # By its real path, which is the key of what was found out about a file.
            path = os.path.join(os.path.realpath(folder), found[i][1])  # noqa: PTH118 - the key of what is remembered
            try:
                good[i] = not isinstance(header(path, mode, stamp(path)), Broken)
            except Unreadable:
                continue

    in_parts(look, len(found))
    return good
