"""Files appear whole or not at all: write beside, flush to the disk, rename."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pe_cli.core.errors import ExitCode, PeError

#: Failures that a bigger or emptier disk cures.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Failures that another output path cures.
_UNUSABLE = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOENT,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
#: What a file system says that can't lock.
NO_LOCKS = frozenset({errno.ENOLCK, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
_TEMPORARY = re.compile(r"\.tmp-(\d+)-[0-9a-f]{8}(\..*)?")


def write_error(error: OSError, path: Path, *, wanted: int | None = None, kept: str = "") -> PeError:
    """Explain why a file or folder could not be written.

    Args:
        error: what the system said.
        path: what was to be written, as the user knows it.
        wanted: size of what was to be written, in bytes, where it is known.
        kept: one clause about what is still there, for the hint.

    Returns:
        An error with exit code USAGE for a path that can't be written, DEVICE for a full or failing disk.
    """
    reason = (error.strerror or str(error)).lower()
    tail = f"; {kept}" if kept else ""
    # EFBIG comes from a limit of this process and says nothing about the disk.
    if error.errno in _FULL:
        limited = error.errno == errno.EFBIG
        free = "" if limited else f", {_free(path)} bytes free"
        need = f": {wanted} bytes wanted{free}" if wanted is not None else ""
        remedy = "raise the limit on the size of files (ulimit -f)" if limited else "free some space"
        return PeError(
            f"cannot write {path}: {reason}{need}",
            hint=f"{remedy}, or choose another disk{tail}",
            code=ExitCode.DEVICE,
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "raise the limit on open files (ulimit -n)" if error.errno == errno.EMFILE else "other processes have too many files open"
        return PeError(f"cannot write {path}: {reason}", hint=f"{remedy}{tail}", code=ExitCode.DEVICE)
    if error.errno in _UNUSABLE:
        return PeError(f"cannot write {path}: {reason}", hint=_remedy(error, path) + tail, code=ExitCode.USAGE)
    return PeError(
        f"cannot write {path}: {reason}", hint=f"the disk or its file system fails{tail}", code=ExitCode.DEVICE
    )


def _free(path: Path) -> int:
    """Return the free bytes of the file system that holds path, 0 when nobody can tell."""
    for folder in (path, *path.absolute().parents):
        # The folder itself may not exist yet: the first one above that does is on the same file system.
        with contextlib.suppress(OSError):
            facts = os.statvfs(folder)
            return facts.f_bavail * facts.f_frsize
    return 0


def _remedy(error: OSError, path: Path) -> str:
    if error.errno == errno.ENOENT:
        return f"create the folder {path.parent} first"
    if error.errno == errno.EISDIR:
        return "name a file, not a folder"
    if error.errno == errno.ENOTDIR:
        return "a part of this path is a file where a folder is needed"
    if error.errno == errno.ENAMETOOLONG:
        return "choose a shorter name"
    return "choose a folder that you may write to"


def _mode(path: Path) -> int:
    """Return the file's type and permissions, 0 when it can't be looked at."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def is_temporary(name: str) -> bool:
    """Tell whether a file name is one of `temporary_name`'s."""
    return _TEMPORARY.fullmatch(name) is not None


def temporary_name(suffix: str = "") -> str:
    """Return a new hidden name for something unfinished; it carries the process id."""
    return f".tmp-{os.getpid()}-{secrets.token_hex(4)}{suffix}"


#: Seconds after which what is unfinished is taken for that of a writer that was killed; a live one may be on another machine.
ABANDONED = 60.0


def clean_temporaries(folder: Path, *, held: bool = False) -> None:
    """Remove what writers that were killed left unfinished, files and folders.

    Args:
        folder: where to look; not searched deeper.
        held: nobody else writes here now, so that all is left: a process that was killed may have had the number of one that lives.
    """
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            match = _TEMPORARY.fullmatch(entry.name)
            # A live writer's files stay; its number is part of their names.
            if match is None or (not held and _alive(int(match.group(1)))):
                continue
            with contextlib.suppress(OSError):
                # The process number may be of another machine that shares the folder: only what is old counts as abandoned.
                if held or time.time() - entry.stat().st_mtime >= ABANDONED:
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry, ignore_errors=True)
                    else:
                        entry.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process of another user answers with EPERM, and is alive.
    except (OSError, OverflowError):
        return True
    return True


def make_folder(path: Path) -> Path:
    """Create a folder and its parents where they are missing, so that they survive a power failure.

    Returns:
        path.

    Raises:
        PeError: it can't be created (USAGE), or the disk is full (DEVICE).
    """
    try:
        # From the inside out: each new name has to be flushed in the folder above it.
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)
    except OSError as error:
        raise write_error(error, path) from None
    return path


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power failure, where the file system can do it.

    Raises:
        OSError: the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot flush folders; there is nothing more that could be done.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the contents of a file survive a power failure.

    Raises:
        OSError: the disk is full or failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte; the system may take fewer at a time.

    Raises:
        OSError: the disk is full or failed.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_plain(path: Path, data: bytes) -> None:
    """Fill a file that no reader knows yet: neither atomic nor flushed.

    Raises:
        OSError: the disk is full or failed.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


#: By suffix, names of drafts that are free again. `pathlib` interns all parts of paths, and the table of those texts grows with new ones.
_free_names: dict[str, list[str]] = {}
os.register_at_fork(after_in_child=_free_names.clear)  # they carry the parent's process id


def draft_name(suffix: str = "") -> str:
    """Return a name as `temporary_name` does, which may have been used before: nobody else does until `give_name`."""
    with contextlib.suppress(KeyError, IndexError):
        return _free_names[suffix].pop()
    return sys.intern(temporary_name(suffix))


def give_name(name: str, suffix: str = "") -> None:
    """Give back a name of `draft_name` under which nothing is left."""
    if name:
        _free_names.setdefault(suffix, []).append(name)


@contextlib.contextmanager
def temporary(path: Path, *, wanted: int | None = None, sync: bool = True) -> Iterator[Path]:
    """Give an empty file to write into; it takes the name `path` when the block ends well, else it is removed.

    A symbolic link stays, and what it points at is replaced.

    Args:
        path: the final name; a file that already has it is untouched until the rename.
        wanted: size of what will be written, in bytes, for the message about a full disk.
        sync: whether the file must survive a power failure; False only promises that it is whole if the system lives.

    Yields:
        A path in the same folder, with the same suffix.

    Raises:
        PeError: the folder can't be written (USAGE), or the disk is full or failed (DEVICE).
    """
    # Through links: replacing a link by a file would break what the user has set up.
    target = Path(os.path.realpath(path))
    # With the suffix kept, because writers of formats look at it.
    suffix = target.suffix if len(target.suffix) <= 16 else ""
    draft = target.with_name(draft_name(suffix))
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # O_EXCL: a name that exists belongs to somebody else.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield draft
        # the data must be on the disk before the name: a file system may write a rename first, and a power failure would leave it empty
        if sync:
            sync_file(draft)
        draft.rename(target)
        give_name(draft.name, suffix)
        if sync:
            sync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        kept = f"the earlier {path} is unchanged" if _mode(target) else ""
        raise write_error(error, path, wanted=wanted, kept=kept) from None


def write_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a whole file, or leave what was there; devices and pipes (`/dev/stdout`) are written straight.

    Args:
        path: the file; its folder must exist.
        data: the contents.
        sync: as for `temporary`.

    Raises:
        PeError: the folder can't be written (USAGE), or the disk is full or failed (DEVICE).
    """
    mode = _mode(path)
    # `/dev/stdout` cannot be renamed over.
    if mode and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        try:
            with path.open("wb", buffering=0) as stream:
                write_all(stream.fileno(), data)
        except OSError as error:
            raise write_error(error, path, wanted=len(data)) from None
        return
    with temporary(path, wanted=len(data), sync=sync) as draft:
        write_plain(draft, data)


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a whole file as UTF-8; see `write_bytes`.

    Raises:
        PeError: the folder can't be written (USAGE), or the disk is full or failed (DEVICE).
    """
    write_bytes(path, text.encode(), sync=sync)


def write_last(path: Path, text: str) -> None:
    """Write a whole file as `write_text` does, or over the old one where the disk has no room for a second file beside it.

    Of one block of the file system, which is there already, that needs no room; what the old text had more is blank then.

    Raises:
        PeError: the folder can't be written (USAGE), or the disk has failed, or has no room for more than there was (DEVICE).
    """
    try:
        write_text(path, text)
    except PeError as error:
        data = text.encode()
        if error.code != ExitCode.DEVICE or not stat.S_ISREG(_mode(path)) or len(data) > path.stat().st_blocks * 512:
            raise
        try:
            with path.open("r+b", buffering=0) as file:
                # Padded to the old length with blanks: truncating first could leave an empty file if the process dies here.
                file.write(data.ljust(path.stat().st_size))
        except OSError:
            raise error from None
