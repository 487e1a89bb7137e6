"""The folder of checkpoints: their steps and marks, which are removed, and which one a path means."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.io import atomic
from pe_cli.io.checkpoint_meta import META, PARAMS, check_file, read_meta
from pe_cli.io.regular_files import open_regular
from pe_cli.io.run_files import CHECKPOINTS
from pe_cli.io.table_pieces import check_pieces
from pe_cli.io.tensors import data_error

Mark = Literal["last", "best"]
MARKS: tuple[Mark, ...] = ("last", "best")

_STEP = re.compile(r"step-(0|[1-9]\d{0,17})")
#: A step that is being replaced: it counts until the new one has its name.
_OLD = re.compile(r"\.old-step-(0|[1-9]\d{0,17})")


def steps(root: Path) -> list[int]:
    """Return the steps of which `root` holds a checkpoint, smallest first.

    Raises:
        PeError: DATA; the folder can't be read.
    """
    try:
        return _steps(root)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise data_error(f"{root}: {(error.strerror or str(error)).lower()}") from None


def _steps(root: Path) -> list[int]:
    """Do what `steps` says, for one who writes here: a folder that is gone is then a failed write, no damaged data."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    # A step under its old name counts: its writer died between two renames.
    return sorted({int(match[1]) for name in names if (match := _STEP.fullmatch(name) or _OLD.fullmatch(name))})


def folder_of(root: Path, step: int) -> Path:
    """Return the folder of a step, whether or not it exists."""
    return root / name_of(root, step)


def name_of(root: Path, step: int) -> str:
    """Return the name of a step's folder; no path, of which Python would intern each part, and keep the room for it in its table."""
    name, old = f"step-{step}", f".old-step-{step}"
    return old if os.path.isdir(f"{root}/{old}") and not os.path.exists(f"{root}/{name}") else name  # noqa: PTH110, PTH112


def marked(root: Path, mark: Mark) -> int | None:
    """Return the step that a mark points at, None when there is no such mark.

    Raises:
        PeError: DATA; the mark is damaged.
    """
    path = root / mark
    try:
        with open_regular(path) as stream:
            # A mark is a name of a few bytes; of anything longer only the beginning is shown.
            text = stream.read(64)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise data_error(f"{path}: {(error.strerror or str(error)).lower()}") from None
    match = _STEP.fullmatch(text.decode("latin-1").strip())
    if match is None:
        raise data_error(f"{path}: does not name a checkpoint, but holds {text[:32]!r}", another_whole(root))
    return int(match[1])


def mark(root: Path, name: Mark, step: int) -> None:
    """Let `last` or `best` point at a step.

    Args:
        root: folder that holds the checkpoints.
        name: which mark.
        step: number of the step; its checkpoint must exist.

    Raises:
        PeError: USAGE or DEVICE, the mark can't be written; DATA, no such checkpoint.
    """
    assert name in MARKS, name
    try:
        with locked(root):
            if step not in _steps(root):
                raise data_error(f"{root}: no checkpoint of step {step} to mark as '{name}'", another_whole(root))
            atomic.write_text(root / name, f"step-{step}\n")
    except OSError as error:
        raise atomic.write_error(error, root / name) from None


def prune(root: Path, keep: int) -> None:
    """Remove all but the newest checkpoints and those that `last` and `best` point at.

    Args:
        root: folder that holds the checkpoints.
        keep: how many of the highest steps stay, at least 1.

    Raises:
        PeError: the folder can't be written, or a mark is damaged.
    """
    try:
        with locked(root):
            prune_locked(root, keep, -1)
    except OSError as error:
        raise atomic.write_error(error, root) from None


def prune_locked(root: Path, keep: int, saved: int) -> None:
    """Do what `prune` says, with the lock held; `saved` is a step that stays too, -1 for none."""
    found = _steps(root)
    # The one just saved stays whatever its number is: a run may have gone back to an earlier step.
    wanted: set[int | None] = {saved, *found[-keep:]}
    for name in MARKS:
        with contextlib.suppress(PeError):  # a damaged mark protects nothing, and must not stop the training
            wanted.add(marked(root, name))
    for step in set(found) - wanted:
        # Renamed first: a folder under its final name is never half removed.
        doomed = f"{root}/{atomic.temporary_name()}"
        os.rename(f"{root}/{name_of(root, step)}", doomed)  # noqa: PTH104
        shutil.rmtree(doomed, ignore_errors=True)


def set_aside(root: Path, step: int, why: str) -> Path:
    """Rename a checkpoint so that nothing takes it for one any more, and return its new name.

    Args:
        root: folder that holds the checkpoints.
        step: whose checkpoint.
        why: first word of the new name, like `damaged`.

    Raises:
        PeError: the folder can't be written.
    """
    target = root / f"{why}-step-{step}"
    try:
        with locked(root):
            # Numbers are found by trying, as several may have been set aside for one reason.
            number = 2
            while target.exists():
                target, number = root / f"{why}-step-{step}-{number}", number + 1
            return folder_of(root, step).rename(target)
    except OSError as error:
        raise atomic.write_error(error, root) from None


def unmark(root: Path, name: Mark) -> None:
    """Remove a mark.

    Raises:
        PeError: the folder can't be written.
    """
    try:
        with locked(root):
            (root / name).unlink(missing_ok=True)
    except OSError as error:
        raise atomic.write_error(error, root / name) from None


def tidy(root: Path) -> None:
    """Finish or remove what killed writers left.

    Raises:
        PeError: the folder can't be written.
    """
    atomic.make_folder(root)
    try:
        with locked(root):
            clean(root)
    except OSError as error:
        raise atomic.write_error(error, root) from None


def clean(root: Path, but: str = "") -> None:
    """Finish what killed writers left; only with the lock, so that nothing of a live writer is touched.

    Args:
        root: folder that holds the checkpoints.
        but: name of what is being filled by others, and left alone.
    """
    left = [name for name in os.listdir(root) if name != but and (_OLD.fullmatch(name) or atomic.is_temporary(name))]  # noqa: PTH208
    for entry in [root / name for name in left]:
        match = _OLD.fullmatch(entry.name)
        # The new folder never got its name: the old one gets it back.
        if match and not (root / f"step-{match[1]}").exists():
            entry.rename(root / f"step-{match[1]}")
        elif entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the folder against other writers; the system releases it when the process dies."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            # A lock of a folder's descriptor: no file has to be made, and the system lets go of it when the process dies.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            # Some network file systems can't lock a folder: then the user keeps one run per folder.
            if error.errno not in atomic.NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def resolve(path: Path) -> Path:
    """Find the checkpoint that a path means.

    Args:
        path: a checkpoint folder, a run folder, a `checkpoints` folder, a `last` or `best` in one, or a tensor file.

    Returns:
        The checkpoint's folder, or the file. A folder of checkpoints means its `last`, without one its highest step.

    Raises:
        PeError: DATA; there is no checkpoint.
    """
    try:
        return _find(path)
    except OSError as error:
        raise data_error(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _find(path: Path) -> Path:
    root = path.parent
    # A mark may be missing while its folder is there: then the message tells what there is instead.
    if path.name in MARKS and (path.is_file() or (root.is_dir() and not path.exists())):
        step = marked(root, "last" if path.name == "last" else "best")
        if step is None:
            raise data_error(f"{path}: no checkpoint is marked as '{path.name}'", another_whole(root))
        return _existing(root, step, path)
    match = _STEP.fullmatch(path.name)
    if match and not path.exists():
        return _existing(root, int(match[1]), path)
    if path.is_file() or _STEP.fullmatch(path.resolve().name) or (path / META).exists() or (path / PARAMS).exists():
        return path
    if not path.is_dir():
        raise data_error(f"{path}: no such file or folder", did_you_mean(path.name, _names(root)))
    root = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path
    step = marked(root, "last")
    if step is not None:
        return _existing(root, step, root / "last")
    found = steps(root)
    if not found:
        raise data_error(f"{path}: no checkpoint in it", f"a checkpoint is a folder step-N with {PARAMS} and {META}")
    return folder_of(root, found[-1])


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _existing(root: Path, step: int, path: Path) -> Path:
    folder = folder_of(root, step)
    if not folder.is_dir():
        raise data_error(f"{path}: there is no checkpoint of step {step} in {root}", another_whole(root))
    return folder


def another_whole(root: Path, but: Path | None = None) -> str:
    """Return a hint: the newest checkpoint that reads well."""
    for step in reversed(steps(root) if root.is_dir() else []):
        folder = folder_of(root, step)
        if folder != but:
            with contextlib.suppress(PeError):
                # Sizes and description only: hashing every checkpoint to write a hint would take minutes.
                meta, _ = read_meta(folder)
                check_file(folder / PARAMS, meta)
                check_pieces(folder, meta)
                return f"{folder} is whole: use that one"
    return "there is no other checkpoint here: start from the beginning, or restore the folder from a copy"
