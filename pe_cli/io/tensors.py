"""Named arrays in one file: safetensors read and written, npz read; nothing is ever unpickled.

The writer is ours (the format is a length, a JSON header and the raw bytes) so that it hashes while it writes, copies
nothing and reports a full disk as such; the reader is the library's, which checks every offset of a hostile header.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from safetensors import SafetensorError, safe_open

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.npy_header import DAMAGED_ZIP, UNREADABLE, claims
from pe_cli.core.types import DTYPES
from pe_cli.io import atomic
from pe_cli.io.regular_files import open_regular

_CODES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
#: Entry of the header with the framework that wrote the file.
_METADATA = "__metadata__"
#: Element types that no variable has, and that are read as float32: bytes of each.
_NARROW = {"F16": 2, "BF16": 2, "F8_E5M2": 1, "F8_E4M3": 1}
#: What NumPy and the zip reader raise for a damaged archive.
_DAMAGED = (OSError, KeyError, *DAMAGED_ZIP, *UNREADABLE)
#: Bytes that a byte of an archive can unpack to, at most: deflate reaches 1032.
MOST_PACKED = 1100
#: Limits on the arrays of an archive: as a multiple of the file's bytes, and in bytes for every file. Weights hardly compress.
RATIO, UNPACKED = 200, 1 << 28


def data_error(message: str, hint: str | None = None) -> PeError:
    """Return an error about a file's contents; its exit code is DATA."""
    return PeError(message, hint=hint, code=ExitCode.DATA)


def _checked(name: str, array: np.ndarray, where: str) -> np.ndarray:
    """Return the array as C-contiguous and in the machine's byte order.

    Raises:
        PeError: its element type is none of ours.
    """
    dtype = array.dtype.newbyteorder("=")
    if dtype.name not in DTYPES:
        raise data_error(
            f"{where}'{name}' is {array.dtype}, which no variable can hold",
            f"convert it first, for example to float32; the types are {', '.join(DTYPES)}",
        )
    # np.ascontiguousarray would turn a scalar into an array of one element.
    return np.asarray(array, dtype=dtype, order="C")


def _header(arrays: Mapping[str, np.ndarray], framework: str) -> bytes:
    """Return length and JSON header; the arrays follow in the order of the mapping, without gaps."""
    entries: dict[str, object] = {}
    offset = 0
    for name, array in arrays.items():
        entries[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps({_METADATA: {"format": framework}, **entries}, separators=(",", ":")).encode()
    # Padded with blanks, which JSON allows, so that the data begins at a multiple of 8 for readers that map the file.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray], framework: str = "pe") -> tuple[str, int]:
    """Write arrays under `path` at once, flushed to the disk; for a file under its final name, see `atomic.temporary`.

    Args:
        path: a new or empty file.
        arrays: any shapes, including () and empty ones.
        framework: whose names and order of axes they have; see `written_by`.

    Returns:
        sha256 of the file as hex digits, and its size in bytes.

    Raises:
        OSError: the disk is full or failed.
        PeError: an element type is none of `DTYPES`.
    """
    whole = {name: _checked(name, array, "") for name, array in arrays.items()}
    # The widest elements first: every array then starts at a multiple of its element size.
    ordered = dict(sorted(whole.items(), key=lambda item: (-item[1].itemsize, item[0])))
    # Hashed while it is written: reading a large checkpoint again would take as long as writing it.
    digest = hashlib.sha256()
    size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        for piece in (memoryview(_header(ordered, framework)), *(_bytes(array) for array in ordered.values())):
            digest.update(piece)
            atomic.write_all(descriptor, piece)
            size += piece.nbytes
        # Before the caller renames it: a name must never point to data that is not on the disk.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest.hexdigest(), size


def _bytes(array: np.ndarray) -> memoryview:
    # The format is little-endian on every machine.
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


def sha256(path: Path) -> str:
    """Return the sha256 of a file as hex digits.

    Raises:
        OSError: it can't be read.
    """
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read every array of a safetensors file.

    Returns:
        name -> array, each its own writable memory.

    Raises:
        PeError: DATA; the file is missing, truncated or corrupt, or holds an element type that is none of ours and no narrow float,
            which are read as float32.
    """
    if not path.is_file():
        raise data_error(f"{path}: no such file")
    arrays: dict[str, np.ndarray] = {}
    try:
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - the reader is no mapping, it has keys() only
                code = tensors.get_slice(name).get_dtype()
                # Read past the library: NumPy has no type for them.
                if code in _NARROW:
                    arrays[name] = _widened(path, name, code, tuple(tensors.get_slice(name).get_shape()))
                    continue
                _refuse_unknown(path, name, code)
                arrays[name] = _own(tensors.get_tensor(name))
    except (SafetensorError, OSError, ValueError) as error:
        raise data_error(f"{path}: not a whole safetensors file: {_first_line(error)}") from None
    except MemoryError:
        raise PeError(f"{path}: its arrays don't fit into memory", code=ExitCode.DEVICE) from None
    return arrays


def written_by(path: Path) -> str:
    """Return what a safetensors file says of the framework that wrote it; empty where it says nothing.

    Raises:
        PeError: DATA; it is damaged.
    """
    try:
        with safe_open(path, framework="np") as tensors:
            return str((tensors.metadata() or {}).get("format", ""))
    except (SafetensorError, OSError, ValueError) as error:
        raise data_error(f"{path}: not a whole safetensors file: {_first_line(error)}") from None


def _widened(path: Path, name: str, code: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of narrow floats as float32, in which each of their values is exact.

    Raises:
        OSError, ValueError: the file has changed since the library has checked its header.
    """
    # Offsets were checked by the library when it opened the file.
    with open_regular(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
        begin, _ = json.loads(stream.read(length))[name]["data_offsets"]
        stream.seek(8 + length + begin)
        count = math.prod(shape)
        data = stream.read(count * _NARROW[code])
    raw = np.frombuffer(data, "<u2" if _NARROW[code] == 2 else "u1")
    if len(raw) != count:
        raise ValueError(f"'{name}' was cut off")
    if code == "BF16":
        found = (raw.astype(np.uint32) << 16).view(np.float32)
    elif code == "F8_E4M3":
        found = _EIGHTHS[raw]
    else:  # the upper byte of a float16 is an E5M2
        found = (raw if code == "F16" else raw.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    return found.reshape(shape)


def _e4m3() -> np.ndarray:
    """Return the float32 of each byte: a sign, four bits of exponent and three of mantissa, no infinity, and two NaN."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    size[byte & 127 == 127] = np.nan
    return np.where(byte < 128, size, -size).astype(np.float32)


_EIGHTHS = _e4m3()


def described(path: Path) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return element type and shape of every array of a safetensors file, reading none of them.

    Raises:
        PeError: DATA; as for `read_safetensors`.
    """
    if not path.is_file():
        raise data_error(f"{path}: no such file")
    types = {code: np.dtype(name) for name, code in _CODES.items()}
    found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    try:
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - as above
                each = tensors.get_slice(name)
                _refuse_unknown(path, name, each.get_dtype())
                found[name] = types[each.get_dtype()], tuple(each.get_shape())
    except (SafetensorError, OSError, ValueError) as error:
        raise data_error(f"{path}: not a whole safetensors file: {_first_line(error)}") from None
    return found


def read_rows(path: Path, name: str, begin: int, end: int) -> np.ndarray:
    """Return some rows of an array of a safetensors file, in memory of their own; no other row is read.

    Args:
        path: of the file.
        name: of an array with at least one axis.
        begin: number of the first row.
        end: number behind the last row.

    Raises:
        PeError: DATA; the file is no longer there, or damaged.
    """
    try:
        with safe_open(path, framework="np") as tensors:
            return _own(tensors.get_slice(name)[begin:end])
    except (SafetensorError, OSError, ValueError) as error:
        raise data_error(f"{path}: not a whole safetensors file: {_first_line(error)}") from None


def _refuse_unknown(path: Path, name: str, code: str) -> None:
    if code not in _CODES.values():
        raise data_error(
            f"{path}: '{name}' has the type {code}, which no variable can hold",
            f"convert it first, for example to F32; the types are {', '.join(_CODES.values())}",
        )


def _own(array: np.ndarray) -> np.ndarray:
    # An array of the library may lie in its buffer, which goes with the file.
    return array if array.flags.writeable and array.flags.owndata else array.copy()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read every array of an npz file, never unpickling.

    Returns:
        name -> array.

    Raises:
        PeError: DATA; the file is missing, truncated or corrupt, or holds an element type that is none of ours.
    """
    if not path.is_file():
        raise data_error(f"{path}: no such file")
    arrays: dict[str, np.ndarray] = {}
    try:
        # Opened here: np.load leaves the file of a damaged archive open.
        with open_regular(path) as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("one bare array, not an archive of named ones")
            _check_total(archive, path)
            for name in archive.files:
                # Before the member is unpacked: a small file may claim terabytes.
                _check_claims(archive, name)
                value = archive[name]
                if not isinstance(value, np.ndarray):
                    raise ValueError(f"'{name}' is not an array")
                arrays[name] = _own(_checked(name, value.astype(np.float32) if value.dtype == np.float16 else value, f"{path}: "))
    except MemoryError:
        raise PeError(f"{path}: its arrays don't fit into memory", code=ExitCode.DEVICE) from None
    except _DAMAGED as error:
        raise data_error(f"{path}: not a whole npz file: {_first_line(error)}") from None
    return arrays


def _check_total(archive: np.lib.npyio.NpzFile, path: Path) -> None:
    """Refuse a small file that unpacks to so much that no model has it.

    Raises:
        PeError: DATA; says how much.
    """
    assert archive.zip is not None, "it is open"
    # By the directory of the archive, which costs nothing to read.
    total, size = sum(info.file_size for info in archive.zip.infolist()), path.stat().st_size
    if total > max(UNPACKED, RATIO * size):
        text = f"{path}: {size} bytes that claim to unpack to {total}, more than {RATIO} times as many"
        raise data_error(text, "write it with np.savez, if it is what you want")


def _check_claims(archive: np.lib.npyio.NpzFile, name: str) -> None:
    """Look at what a member of an archive claims to hold, before there is room made for it.

    Raises:
        ValueError: it can't hold as much; and what `claims` raises.
    """
    assert archive.zip is not None, "it is open"
    info = archive.zip.getinfo(name if name in archive.zip.namelist() else f"{name}.npy")
    if info.file_size > MOST_PACKED * max(1, info.compress_size):
        raise ValueError(f"'{name}' claims {info.file_size} bytes, more than {info.compress_size} can unpack to")
    # Read up to the header only, and compared with what the directory says.
    with archive.zip.open(info) as stream:
        if stream.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            return  # then it is no array
        stream.seek(0)
        shape, _, dtype = claims(stream)
        size = info.file_size - stream.tell()
    if math.prod(shape) * dtype.itemsize != size and not dtype.hasobject:
        raise ValueError(f"'{name}' claims shape {list(shape)} of {dtype}, but holds {size} bytes")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
