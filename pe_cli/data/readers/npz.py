"""NumPy .npz archives: uncompressed members are mapped, compressed ones are unpacked."""

from __future__ import annotations

import struct
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from pydantic import Field

from pe_cli.core.errors import did_you_mean
from pe_cli.core.npy_header import DAMAGED_ZIP
from pe_cli.data.dataset import Array, ArrayDataset, Dataset, map_array
from pe_cli.data.npy import read_header
from pe_cli.data.reader_context import DEFLATE_RATIO, Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.spill_storage import unpacked

_ENCRYPTED = 0x1
_LOCAL_HEADER = 30
_REMEDY = "the archive is cut off or damaged: copy or download it again"
#: Files that are none, by their names -> the reader for them.
_OTHERS = {".csv": "csv", ".gz": "idx", ".npy": "npy", ".tsv": "csv"}


class NpzOptions(ReaderOptions):
    """Options of the npz reader."""

    file: str = Field(description="the .npz archive")
    fields: dict[str, str] | None = Field(
        None, min_length=1, description="field -> array in the archive; all arrays under their own names when absent"
    )


@reader("npz", NpzOptions)
def open_npz(options: NpzOptions, origin: Origin) -> Dataset:
    """Read arrays of one .npz archive, each [samples, ...].

    Members that np.savez wrote are mapped, those of np.savez_compressed are unpacked, large ones into a temporary file. Only the
    arrays that are named are touched, so train and eval arrays may share an archive. Arrays of Python objects (pickles) are refused.

    Raises:
        PeError: the file is no .npz archive that can be read.
    """
    path = origin.find(options.file)
    try:
        with ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if _is_array(info)}
            fields = options.fields if options.fields is not None else {name: name for name in members}
            _check_names(fields, members, path, origin)
            chosen = {name: members[name] for name in fields.values()}
            _check_sizes(chosen, path, origin)
            arrays = {name: _read(archive, info, path, origin) for name, info in chosen.items()}
    except DAMAGED_ZIP as error:
        raise origin.error(f"{path} is no readable .npz archive: {error}", _remedy(path)) from None
    return ArrayDataset({field: arrays[name] for field, name in fields.items()}, origin)


def _remedy(path: Path) -> str:
    return f"use reader: {_OTHERS[path.suffix]}" if path.suffix in _OTHERS else _REMEDY


def _is_array(info: ZipInfo) -> bool:
    return info.filename.endswith(".npy")


def _check_names(fields: dict[str, str], members: dict[str, ZipInfo], path: Path, origin: Origin) -> None:
    known = ", ".join(members) or "no array at all"
    for name in fields.values():
        if name not in members:
            raise origin.error(f"{path} has no array '{name}'", did_you_mean(name, members) or f"it has {known}")
    if not fields:
        raise origin.error(f"{path} has no array", "write it with np.savez")


def _check_sizes(members: dict[str, ZipInfo], path: Path, origin: Origin) -> None:
    size = path.stat().st_size
    for name, info in members.items():
        what = f"array '{name}' of {path}"
        if info.flag_bits & _ENCRYPTED or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise origin.error(f"{what} is encrypted, or packed by another method than deflate", "use np.savez")
        most = info.compress_size if info.compress_type == ZIP_STORED else info.compress_size * DEFLATE_RATIO
        if info.header_offset + info.compress_size > size or info.file_size > most:
            raise origin.error(
                f"{what} claims {info.file_size} bytes from {info.compress_size} packed ones at offset "
                f"{info.header_offset}, but the file has {size} bytes",
                _REMEDY,
            )


def _read(archive: ZipFile, info: ZipInfo, path: Path, origin: Origin) -> Array:
    what = f"array '{info.filename.removesuffix('.npy')}' of {path}"
    with archive.open(info) as file:
        header = read_header(file, info.file_size, what, origin)
        if info.compress_type == ZIP_STORED:
            start = _data_offset(path, info) + header.offset
            if start + header.nbytes <= path.stat().st_size:
                return map_array(path, header.dtype, header.shape, start, header.fortran)
            raise origin.error(f"{what} ends after the end of the file", _REMEDY)
        if origin.only_looks(header.nbytes, path):
            return np.broadcast_to(np.zeros((), header.dtype), header.shape)
        # it reads past the end, which makes zipfile compare the checksum
        flat = unpacked(file, header.nbytes, what)
    if len(flat) != header.nbytes:
        raise origin.error(f"{what} claims {header.nbytes} bytes, but {len(flat)} or more could be unpacked", _REMEDY)
    return flat.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def _data_offset(path: Path, info: ZipInfo) -> int:
    # the local header's name and extra field may be longer than those of the directory at the archive's end
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(_LOCAL_HEADER)
    name, extra = struct.unpack_from("<HH", local, 26)
    return int(info.header_offset + _LOCAL_HEADER + name + extra)
