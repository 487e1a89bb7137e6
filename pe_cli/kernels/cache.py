"""Compiled kernels on the disk, by the hash of all that they are made of."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from pathlib import Path

MAGIC = b"pe-kernel-1\n"
#: Follows the name of a kernel that is compiled though the cache has it.
DAMAGED = ", whose file in the cache was damaged"
#: Objects kept on disk; the least recently used go first.
MAX_FILES = 4000
#: Seconds after which an unfinished object is that of a process that was killed.
ABANDONED = 3600.0


@functools.cache
def folder() -> Path:
    """Return the cache folder: `$PE_CACHE_DIR`, else `$XDG_CACHE_HOME/pe/kernels`; made on first use where that can be."""
    base = os.environ.get("PE_CACHE_DIR")
    path = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "pe" / "kernels"
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _home() -> Path:
    """Return the user's folder; one that cannot exist for a user who has none, so that nothing is kept."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def unkept() -> str:
    """Return why nothing can be written to the cache, as the end of a kernel's name; empty where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder()) as file:
            file.write(bytes(4096))
    except OSError as error:
        return f", which can't be kept in {folder()} ({(error.strerror or str(error)).lower()})"
    return ""


def read(key: str) -> bytes | None:
    """Return an object; None where there is none, nothing where there is a damaged one, which is removed."""
    path = folder() / f"{key}.o"
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    body = blob[len(MAGIC) + 32 :]
    good = blob.startswith(MAGIC) and hashlib.sha256(body).digest() == blob[len(MAGIC) : len(MAGIC) + 32]
    if not good:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return b""
    with contextlib.suppress(OSError):
        os.utime(path)
    return body


def store(key: str, body: bytes) -> None:
    """Write an object atomically; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        fd, name = tempfile.mkstemp(dir=folder(), prefix=f".{key}.")
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(MAGIC + hashlib.sha256(body).digest() + body)
            Path(name).replace(folder() / f"{key}.o")
        except OSError:
            Path(name).unlink()
            raise


def prune() -> None:
    """Remove the oldest objects, and what killed processes left; others may do the same now."""
    for path in sorted(folder().glob("*.o"), key=_used, reverse=True)[MAX_FILES:]:
        with contextlib.suppress(OSError):
            path.unlink()
    for path in folder().glob(".*.*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def _used(path: Path) -> float:
    """Return when a file was used last; 0 where it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
