"""Rows of large tables in files of their own: each parameter server writes the rows that it holds into the folder of a checkpoint."""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import DTYPES
from pe_cli.io import atomic
from pe_cli.io.checkpoint_meta import META, Meta, check_file, read_meta
from pe_cli.io.run_files import CHECKPOINTS
from pe_cli.io.tensors import data_error, described, read_rows, write_safetensors

Array = np.ndarray[Any, Any]
_FILE = re.compile(r"rows-(0|[1-9]\d{0,3})\.safetensors")


@dataclass(frozen=True)
class Rows:
    """Some rows of a table, as one tensor of a file.

    Args:
        whole: name of the table.
        begin: number of the first row.
        end: number behind the last row.
    """

    whole: str
    begin: int
    end: int


@dataclass(frozen=True)
class Piece:
    """A file of rows.

    Args:
        file: its name.
        sha256: of the file, as hex digits.
        bytes: of the file.
        rows: what each tensor in it is.
    """

    file: str
    sha256: str
    bytes: int
    rows: Mapping[str, Rows]

    def to_json(self) -> dict[str, object]:
        """Return the description as JSON values."""
        rows = {name: [r.whole, r.begin, r.end] for name, r in self.rows.items()}
        return {"sha256": self.sha256, "bytes": self.bytes, "rows": rows}


@dataclass(frozen=True)
class Pieces:
    """Files of rows that are written already, in a folder that becomes a checkpoint.

    Args:
        draft: the folder, under a temporary name beside the checkpoints.
        files: in it.
        tensors: table -> element type and shape of all its rows.
        bad: tables with a value that is not finite.
    """

    draft: Path
    files: Sequence[Piece]
    tensors: Mapping[str, Mapping[str, object]]
    bad: Sequence[str] = field(default=())


def is_draft(folder: Path) -> bool:
    """Return whether a folder exists that is to become a checkpoint. Messages of other processes may have no other folder written to."""
    # Names of folders come from messages of servers: nothing outside of a checkpoints folder may be written.
    return atomic.is_temporary(folder.name) and folder.parent.name == CHECKPOINTS and folder.is_dir() and not folder.is_symlink()


def tables_of(folder: Path) -> tuple[str, dict[str, Table]] | None:
    """Return a checkpoint's digest, and its tables that lie in files of rows; None where this machine sees no such folder.

    The files are not compared with their sha256: whoever goes on with a checkpoint has done that.

    Raises:
        PeError: DATA; it is damaged.
    """
    if folder.parent.name != CHECKPOINTS or not (folder / META).is_file():
        return None
    meta, tensors = read_meta(folder)
    return hashlib.sha256((folder / META).read_bytes()).hexdigest(), read_pieces(folder, meta, tensors, check=False)


def write_piece(folder: Path, number: int, arrays: Mapping[str, Array], rows: Mapping[str, Rows]) -> Piece:
    """Write rows, flushed to the disk.

    Args:
        folder: see `is_draft`.
        number: of the server.
        arrays: rows by name in the file; not copied.
        rows: name in the file -> which rows of which table they are.

    Raises:
        PeError: USAGE or DEVICE, they cannot be written.
    """
    file = folder / f"rows-{number}.safetensors"
    try:
        digest, size = write_safetensors(file, arrays)
    except OSError as error:
        raise atomic.write_error(error, file, wanted=sum(a.nbytes for a in arrays.values())) from None
    return Piece(file.name, digest, size, rows)


def listed(folder: Path, meta: Meta) -> list[Piece]:
    """Return the files of rows that the description of a checkpoint lists.

    Raises:
        PeError: DATA; the list is damaged.
    """
    found = meta.get("pieces", {})
    try:
        if not isinstance(found, Mapping):
            raise TypeError
        return [_piece(file, facts) for file, facts in found.items()]
    except (TypeError, ValueError, KeyError):
        raise data_error(f"{folder}: the files of rows in {META} are damaged", "use another checkpoint") from None


def _piece(file: str, facts: Any) -> Piece:
    if _FILE.fullmatch(file) is None or not isinstance(facts["bytes"], int):
        raise ValueError
    rows = {}
    for name, (whole, begin, end) in facts["rows"].items():
        if not isinstance(whole, str) or type(begin) is not int or type(end) is not int or not 0 <= begin <= end:
            raise ValueError
        rows[str(name)] = Rows(whole, begin, end)
    return Piece(file, str(facts["sha256"]), facts["bytes"], rows)


def check_pieces(folder: Path, meta: Meta) -> None:
    """Compare the files of rows with what the description says of them.

    Raises:
        PeError: DATA; one is missing or has changed.
    """
    for piece in listed(folder, meta):
        check_file(folder / piece.file, piece.to_json())


def room(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path, mapped: int) -> Array:
    """Return room for a variable; that for a large one lies in a file without a name, so that this process never has all of it in memory.

    Args:
        shape: of the variable.
        dtype: its element type.
        folder: where the file is; made where it is not there.
        mapped: bytes from which on a variable is large.

    Raises:
        PeError: DEVICE, the disk is full.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < mapped:
        return np.empty(shape, dtype)
    try:
        # In the checkpoint's file system, which has room for the table, and not in a small /tmp.
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # else a full disk would be told by a signal
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise atomic.write_error(error, folder, wanted=size) from None


class Table:
    """A table that lies in files of rows: rows are read when they are asked for, and no others.

    `table[begin:end]` returns rows, `np.asarray(table)` all of them.

    Args:
        shape: of the whole table.
        dtype: its element type.
        spans: file, name of the tensor in it, number of its first row in the table, number behind its last row; in the order of rows.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], spans: Sequence[tuple[Path, str, int, int]]) -> None:
        self.shape, self.dtype, self._spans = shape, dtype, spans

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint."""
        return self._spans[0][0].parent

    def __getitem__(self, rows: slice) -> Array:
        begin, end, step = rows.indices(self.shape[0])
        assert step == 1, "rows that follow one another"
        found = np.empty((max(0, end - begin), *self.shape[1:]), self.dtype)
        for file, name, first, last in self._spans:
            low, high = max(begin, first), min(end, last)
            if low < high:
                found[low - begin : high - begin] = read_rows(file, name, low - first, high - first)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        del copy  # it is read anew every time
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)


#: A value of a checkpoint.
Value = Array | Table


def read_pieces(folder: Path, meta: Meta, tensors: Mapping[str, object], *, check: bool = True) -> dict[str, Table]:
    """Return the tables that lie in files of rows, however many servers have written them.

    Args:
        folder: of the checkpoint.
        meta: its description.
        tensors: of that.
        check: compare the files with their sha256, for which each is read once.

    Raises:
        PeError: DATA; a file is missing or damaged, or the rows are not all there, each once.
    """
    pieces = listed(folder, meta)
    shapes = {whole: _shape(folder, whole, tensors.get(whole)) for whole in dict.fromkeys(r.whole for p in pieces for r in p.rows.values())}
    for whole, (shape, _) in shapes.items():
        spans = sorted((r.begin, r.end) for p in pieces for r in p.rows.values() if r.whole == whole)
        # The spans must follow one another without gaps: a missing row would be what memory held.
        if [0, *(end for _, end in spans)] != [*(begin for begin, _ in spans), shape[0]]:
            raise data_error(f"{folder}: the rows of '{whole}' are not all there, each once", "use another checkpoint")
    wanted = sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values())
    # Sizes come from a file: more than its pieces hold is a damaged description.
    if wanted > sum(p.bytes for p in pieces):
        raise data_error(f"{folder}: {META} says more rows than its files hold", "use another checkpoint")
    if check:
        check_pieces(folder, meta)
    parts: dict[str, list[tuple[Path, str, int, int]]] = {whole: [] for whole in shapes}
    for piece in pieces:
        there = described(folder / piece.file)
        for name, rows in piece.rows.items():
            shape, dtype = shapes[rows.whole]
            if there.get(name) != (dtype, (rows.end - rows.begin, *shape[1:])):
                raise data_error(f"{folder}: {piece.file} has other rows of '{rows.whole}' than {META} says", "use another checkpoint")
            parts[rows.whole].append(((folder / piece.file).absolute(), name, rows.begin, rows.end))
    ordered = {whole: sorted(each, key=lambda span: span[2:]) for whole, each in parts.items()}
    return {whole: Table(shape, dtype, ordered[whole]) for whole, (shape, dtype) in shapes.items()}


def _shape(folder: Path, whole: str, said: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    fits = isinstance(said, Mapping) and said.get("dtype") in DTYPES and isinstance(said.get("shape"), list) and said["shape"]
    if not fits or not all(type(s) is int and s >= 0 for s in said["shape"]):
        raise data_error(f"{folder}: {META} does not say how large '{whole}' is", "use another checkpoint")
    return tuple(said["shape"]), np.dtype(said["dtype"])
