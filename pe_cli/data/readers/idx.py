"""IDX files, the format of MNIST: raw ones are mapped, gzipped ones are unpacked."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import Field

from pe_cli.data.dataset import Array, ArrayDataset, Dataset, map_array
from pe_cli.data.reader_context import DEFLATE_RATIO, Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.spill_storage import unpacked

_GZIP = b"\x1f\x8b"
#: Axes of an array, those of NumPy before 2.0.
MOST_AXES = 32
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxOptions(ReaderOptions):
    """Options of the idx reader."""

    files: dict[str, str] = Field(min_length=1, description="field -> IDX file, raw or gzipped")


@reader("idx", IdxOptions)
def open_idx(options: IdxOptions, origin: Origin) -> Dataset:
    """Read IDX files (MNIST, Fashion-MNIST, EMNIST), one per field.

    A raw file is mapped and may be larger than memory; a gzipped one is unpacked, a large one into a temporary file.
    Which it is, is seen from its first bytes, not from its name.

    Source:
        LeCun, Cortes, Burges: "The MNIST database", section "File formats": two zero bytes, element type, number of
        axes, sizes as big-endian 32-bit integers, elements.
    """
    return ArrayDataset({field: _read(name, origin) for field, name in options.files.items()}, origin)


def _read(name: str, origin: Origin) -> Array:
    path = origin.find(name)
    size = path.stat().st_size
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            dtype, shape, offset = _header(file, size, path, origin)
            _check_size(dtype, shape, size - offset, path, origin)
            return map_array(path, dtype, shape, offset)
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                return _unpack(stream, size, path, origin)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise origin.error(f"{path} is a broken gzip file: {error}", "copy or download it again") from None


def _header(
    file: IO[bytes] | gzip.GzipFile, size: int, path: Path, origin: Origin
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    magic = file.read(4)
    # The format has no version and no end: these four bytes are all that tells it from other files.
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or not magic[3]:
        raise origin.error(
            f"{path} is no IDX file: it starts with {magic.hex(' ') or 'nothing'}, not with 00 00, a type of 08 to 0e "
            "and the number of axes",
            "fetch the ubyte or gz files of the data set",
        )
    if magic[3] > MOST_AXES:
        raise origin.error(f"{path} claims {magic[3]} axes, and arrays have {MOST_AXES} at most", "download it again")
    raw = file.read(4 * magic[3])
    if len(raw) < 4 * magic[3]:
        raise origin.error(
            f"{path} ends in its header: it claims {magic[3]} axes and has {size} bytes", "download it again"
        )
    return np.dtype(_TYPES[magic[2]]), struct.unpack(f">{magic[3]}I", raw), 4 + len(raw)


def _check_size(dtype: np.dtype[Any], shape: tuple[int, ...], found: int, path: Path, origin: Origin) -> None:
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != found:
        raise origin.error(
            f"{path} claims shape {list(shape)} of {dtype.name}, {claimed} bytes, but holds {found} bytes",
            "the file is cut off: copy or download it again" if found < claimed else "check what wrote it",
        )


def _unpack(stream: gzip.GzipFile, size: int, path: Path, origin: Origin) -> Array:
    dtype, shape, _ = _header(stream, size, path, origin)
    claimed = math.prod(shape) * dtype.itemsize
    # Before it is unpacked: deflate cannot pack better than this, so the header is wrong.
    if claimed > size * DEFLATE_RATIO:
        raise origin.error(
            f"{path} claims shape {list(shape)}, {claimed} bytes, more than {size} gzipped bytes can hold",
            "the header is wrong: download it again",
        )
    if origin.only_looks(claimed, path):
        # A look at the columns needs shapes and no numbers: zeros that take no memory stand for them.
        return np.broadcast_to(np.zeros((), dtype), shape)
    flat = unpacked(stream, claimed, f"what {path} unpacks to")
    _check_size(dtype, shape, len(flat), path, origin)
    return flat.view(dtype).reshape(shape)
