"""The cache of compiled kernels on disk, keyed by a hash of everything that they are made of.

What lies there is machine code that is run. So the folder and its files count only where they belong to this user, or to root, and nobody
else may write to them; and a file's checksum covers its name, so that no kernel stands for another.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

MAGIC = b"pe-kernel-2\n"
#: Bits of a mode that let others write.
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Follows the name of a kernel that is compiled though the cache has it.
DAMAGED = ", whose file in the cache was damaged"
#: Objects kept on disk; the least recently used go first.
MAX_FILES = 8000
#: Seconds after which an unfinished object is that of a process that was killed.
ABANDONED = 3600.0


@functools.cache
def folder() -> Path:
    """Return the cache folder: `$PE_CACHE_DIR`, else `$XDG_CACHE_HOME/pe/kernels`; made on first use where that can be.

    A relative `$XDG_CACHE_HOME` does not count, as its specification says.
    """
    base, general = os.environ.get("PE_CACHE_DIR"), Path(os.environ.get("XDG_CACHE_HOME") or "")
    path = Path(base).absolute() if base else (general if general.is_absolute() else _home() / ".cache") / "pe" / "kernels"
    with contextlib.suppress(OSError):
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not base:  # of the days when it was made as the umask says
            made = path.stat()
            if made.st_uid == _me() and made.st_mode & _OTHERS:
                path.chmod(stat.S_IMODE(made.st_mode) & ~_OTHERS)
    return path


def _me() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _is_ours(found: os.stat_result) -> bool:
    """Whether nobody else may have written the file."""
    return found.st_uid in (_me(), 0) and not found.st_mode & _OTHERS


def _home() -> Path:
    """Return the user's folder; one that cannot exist for a user who has none, so that nothing is kept."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


@functools.cache
def _counts(path: Path) -> bool:
    """Whether a folder may be used: one that is not there, or cannot be looked at, holds nothing anyway."""
    try:
        return _is_ours(path.stat())
    except OSError:
        return True


def trusted() -> bool:
    """Whether what lies in the folder counts."""
    return _counts(folder())


def unkept() -> str:
    """Return why nothing can be written to the cache, as the end of a kernel's name; empty where it can."""
    if not _counts(folder()):
        return f", which can't be kept in {folder()} (others may write to it, so it does not count)"
    try:
        with tempfile.TemporaryFile(dir=folder()) as file:
            file.write(bytes(4096))
    except OSError as error:
        return f", which can't be kept in {folder()} ({(error.strerror or str(error)).lower()})"
    return ""


def is_empty() -> bool:
    """Return whether there is no kernel: nothing has been compiled yet."""
    try:
        with os.scandir(folder()) as there:
            return not any(entry.name.endswith(".o") for entry in there)
    except OSError:
        return True


def read(key: str) -> bytes | None:
    """Return an object; None where there is none, nothing where there is a damaged one, which is removed."""
    path = folder() / f"{key}.o"
    if not _counts(path.parent):
        return None
    try:
        with path.open("rb") as file:
            # The open file is examined, not its name, which could come to mean another file in between.
            good = _is_ours(os.fstat(file.fileno()))
            blob = file.read()
    except OSError:
        return None
    body = blob[len(MAGIC) + 32 :]
    if not good or not blob.startswith(MAGIC) or _checksum(key, body) != blob[len(MAGIC) : len(MAGIC) + 32]:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return b""
    with contextlib.suppress(OSError):
        # The modification time stands for the last use, because many file systems do not keep access times.
        os.utime(path)
    return body


def _checksum(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + body).digest()


def store(key: str, body: bytes) -> None:
    """Write an object atomically; a cache that cannot be written is no error."""
    if not _counts(folder()):
        return
    with contextlib.suppress(OSError):
        fd, name = tempfile.mkstemp(dir=folder(), prefix=f".{key}.")
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(MAGIC + _checksum(key, body) + body)
            Path(name).replace(folder() / f"{key}.o")
        except OSError:
            Path(name).unlink()
            raise


def prune() -> None:
    """Remove the oldest objects, and what killed processes left; others may do the same now.

    Every kernel that is compiled ends here, so files are looked at only where there are too many.
    """
    with contextlib.suppress(OSError), os.scandir(folder()) as there:
        names = [entry.name for entry in there]
        kept = folder()
        objects = [name for name in names if name.endswith(".o") and not name.startswith(".")]
        if len(objects) > MAX_FILES:
            for path in sorted((kept / name for name in objects), key=_used, reverse=True)[MAX_FILES:]:
                with contextlib.suppress(OSError):
                    path.unlink()
        # Names of unfinished objects begin with a dot, see `store`; a young one belongs to a process that is still writing it.
        for path in (kept / name for name in names if name.startswith(".") and "." in name[1:]):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()


def _used(path: Path) -> float:
    """Return when a file was used last; 0 where it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
