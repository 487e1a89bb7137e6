"""Decompresses files of gzip and zstd, up to a size that no table exceeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pe_cli.data.reader_context import Origin

#: Bytes that are unpacked or recoded at a time.
CHUNK = 1 << 20
#: A packed file may unpack to so many times its size, or to so many bytes where that is more. Tables shrink to a third or a twentieth.
RATIO, UNPACKED = 200, 1 << 28
#: First bytes of files that are packed.
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def packing(head: bytes) -> str:
    """Return how a file is packed by its first bytes: gzip, zstd, or nothing."""
    return "gzip" if head.startswith(GZIP) else "zstd" if head.startswith(ZSTD) else ""


def unpacked(file: IO[bytes], packed: str, path: Path, origin: Origin) -> Iterator[bytes]:
    """Yield what a packed file holds.

    Args:
        file: open at its first byte.
        packed: how, of `packing`.
        path: of the file.
        origin: gives errors their place.

    Raises:
        PeError: DATA; it is cut off or damaged, this Python cannot unpack it, or it unpacks to far more than any table does.
    """
    return _bounded(_unpacked(file, packed, path, origin), path, path.stat().st_size, origin)


def chunks_of(path: Path, origin: Origin) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked where it is packed; see `unpacked`."""
    with path.open("rb") as file:
        packed = packing(file.read(64))
        file.seek(0)
        yield from unpacked(file, packed, path, origin) if packed else iter(lambda: file.read(CHUNK), b"")


def _unpacked(file: IO[bytes], packed: str, path: Path, origin: Origin) -> Iterator[bytes]:
    """Yield what a packed file holds."""
    import gzip
    import zlib

    failures: tuple[type[BaseException], ...] = (EOFError, OSError, zlib.error)
    stream: Any
    if packed == "gzip":
        stream = gzip.GzipFile(fileobj=file)
    else:
        # Each reader has errors of its own for a damaged stream.
        stream, more = _zstd(file, path, origin)
        failures = (*failures, *more)
    while True:
        try:
            data = stream.read(CHUNK)
        except failures as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise origin.error(
                f"{path} cannot be unpacked: {said}", "it is cut off or damaged: copy or download it again"
            ) from None
        if not data:
            return
        yield bytes(data)


def _zstd(file: IO[bytes], path: Path, origin: Origin) -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return a stream of what zstd packed, and what it raises: Python's own from 3.14 on, else pyarrow's."""
    try:
        from compression import zstd
    except ImportError:
        pass
    else:
        return zstd.ZstdFile(file), (zstd.ZstdError,)
    try:
        import pyarrow as pa
    except ImportError:
        raise origin.error(
            f"{path} is packed by zstd, which this Python cannot unpack",
            "pip install 'pe-cli[tables]', or unpack it: zstd -d",
        ) from None
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"), (pa.ArrowException,)


def _bounded(stream: Iterator[bytes], path: Path, size: int, origin: Origin) -> Iterator[bytes]:
    """Refuse what unpacks to far more than any table does."""
    total, most = 0, max(UNPACKED, RATIO * size)
    for data in stream:
        total += len(data)
        # While it is unpacked and not afterwards: a few kilobytes may unpack to more than the disk holds.
        if total > most:
            raise origin.error(
                f"{path} has {size:,} bytes and unpacks to more than {most:,}: no table shrinks so far",
                "unpack it yourself if you trust it, and name the unpacked file",
            )
        yield data
