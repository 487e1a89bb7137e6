"""Checkpoints: one folder each, there whole or not at all.

`step-N/` holds `params.safetensors` and `meta.json`, and is renamed into place after both are on the disk; beside them may be large
tables in files of rows, which parameter servers have written (`table_pieces.py`). `last` and
`best` are small text files that hold the name of a folder: a replaced text file survives a pulled plug, a replaced
symbolic link can't be flushed. Everything unfinished has a hidden name and is removed by the next save. Only one
process writes at a time (a lock).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io import atomic, strict_json
from pe_cli.io.checkpoint_folder import (
    another_whole,
    clean,
    folder_of,
    locked,
    mark,
    marked,
    prune,
    prune_locked,
    resolve,
    set_aside,
    steps,
    tidy,
    unmark,
)
from pe_cli.io.checkpoint_meta import (
    FILES_LIMIT,
    FORMAT,
    FORMAT_ROWS,
    META,
    META_LIMIT,
    PARAMS,
    Meta,
    check_file,
    read_meta,
)
from pe_cli.io.regular_files import open_regular
from pe_cli.io.table_pieces import Pieces, Value, read_pieces
from pe_cli.io.tensors import data_error, read_npz, read_safetensors, write_safetensors

__all__ = [
    "folder_of", "load", "load_arrays", "mark", "marked", "newest_whole", "opened", "prune", "read_files", "resolve", "set_aside",
    "steps", "tidy", "unmark", "write",
]  # fmt: skip


def write(
    root: Path,
    step: int,
    arrays: Mapping[str, np.ndarray],
    meta: Mapping[str, object],
    keep: int | None = None,
    files: Mapping[str, bytes] | None = None,
    pieces: Pieces | None = None,
) -> None:
    """Write a checkpoint, whole and flushed to the disk, then remove the oldest ones.

    Args:
        root: folder that holds the checkpoints; created where missing.
        step: number of steps done; an earlier checkpoint of the same step is replaced.
        arrays: name -> array, any shape, of an element type in `DTYPES`.
        meta: JSON values to keep beside (epoch, metrics, seed, ...); NaN comes back as "nan". The keys `format`,
            `step`, `tensors`, `sha256`, `bytes`, `files` and `pieces` are ours.
        keep: number of checkpoints to keep, as for `prune`; None keeps all.
        files: name -> content, kept beside as they are.
        pieces: files of rows; their folder becomes that of the checkpoint.

    Raises:
        PeError: USAGE, the folder can't be written; DEVICE, the disk is full or failed; DATA, an element type is none
            of ours. The checkpoints that were there still are.
    """
    assert step >= 0, step
    assert keep is None or keep >= 1, keep
    atomic.make_folder(root)
    wanted = sum(array.nbytes for array in arrays.values())
    try:
        # The lock covers writing and pruning, so that two processes never remove each other's newest.
        with locked(root):
            name = "" if pieces else atomic.draft_name()
            draft = root / (pieces.draft.name if pieces else name)
            # What killed writers left goes first: it may be the room that this checkpoint needs.
            clean(root, but=draft.name)
            try:
                draft.mkdir(exist_ok=pieces is not None)
                _write(draft, step, arrays, meta, files or {}, pieces)
                _put(draft, root, step)
                atomic.give_name(name)
            finally:
                shutil.rmtree(str(draft), ignore_errors=True)
            if keep is not None:
                prune_locked(root, keep, step)
    except OSError as error:
        raise atomic.write_error(error, root / f"step-{step}", wanted=wanted, kept=_kept(root)) from None


def _write(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, object], files: Mapping[str, bytes], pieces: Pieces | None
) -> None:
    for name, content in files.items():
        atomic.write_plain(folder / name, content)
        # Everything is flushed before the description, and that before the name.
        atomic.sync_file(folder / name)
    digest, size = write_safetensors(folder / PARAMS, arrays)
    tensors: dict[str, object] = {name: {"dtype": array.dtype.name, "shape": array.shape} for name, array in arrays.items()}
    ours = {"format": FORMAT, "step": step, "sha256": digest, "bytes": size, "tensors": tensors}
    if files:
        ours["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    if pieces:
        for piece in pieces.files:
            # Servers wrote these files; one that was touched since would make the whole checkpoint unreadable later.
            if (folder / piece.file).stat().st_size != piece.bytes:
                raise data_error(f"{folder / piece.file}: changed since it was written")
        listed = {piece.file: piece.to_json() for piece in pieces.files}
        ours |= {"format": FORMAT_ROWS, "pieces": listed, "tensors": {**tensors, **pieces.tensors}}
    # Ours come last: nothing that a caller passes may stand for the digest or the format.
    text = strict_json.dumps({**meta, **ours}, indent=1).encode()
    if len(text) > META_LIMIT:
        raise data_error(f"{folder.parent}: {META} would have {len(text)} bytes, more than {META_LIMIT}")
    atomic.write_plain(folder / META, text + b"\n")
    atomic.sync_file(folder / META)
    atomic.sync_folder(folder)


def _put(draft: Path, root: Path, step: int) -> None:
    """Give a finished folder its name; at no moment is the step missing. Names are texts: see `steps.name_of`."""
    folder, old = f"{root}/step-{step}", f"{root}/.old-step-{step}"
    # The old folder moves aside under a name that readers know, so that a step that is written again is never missing.
    if os.path.exists(folder):  # noqa: PTH110
        os.rename(folder, old)  # noqa: PTH104
    os.rename(draft, folder)  # noqa: PTH104
    atomic.sync_folder(root)
    shutil.rmtree(old, ignore_errors=True)


def load(path: Path) -> tuple[dict[str, np.ndarray], Meta]:
    """Read a checkpoint and check it against its own description.

    Args:
        path: as for `resolve`; a tensor file alone has no meta.

    Returns:
        name -> array in the order in which they were saved; everything that meta.json holds.

    Raises:
        PeError: DATA; missing, truncated, changed since it was written, or written by a version with another format.
    """
    if resolve(path).is_file():
        return load_arrays(path), {}
    found, meta = opened(path)
    return {name: np.asarray(value) for name, value in found.items()}, meta


def opened(path: Path, *, check: bool = True) -> tuple[dict[str, Value], Meta]:
    """Read the folder of a checkpoint as `load` does, but large tables in files of rows only when their rows are asked for.

    Args:
        path: as for `resolve`.
        check: compare those files with their sha256.

    Raises:
        PeError: DATA; as for `load`.
    """
    folder = resolve(path)
    try:
        return _read(folder, check)
    except PeError as error:
        error.hint = error.hint or another_whole(folder.parent, but=folder)
        raise


def newest_whole(root: Path) -> tuple[tuple[int, dict[str, Value], Meta] | None, list[tuple[int, PeError]]]:
    """Read the newest checkpoint that is whole, as `opened` does.

    Args:
        root: folder that holds the checkpoints.

    Returns:
        Its step, arrays and description, None where there is none; and the damaged ones that are newer, with what is wrong.

    Raises:
        PeError: DATA; the folder can't be read.
    """
    damaged: list[tuple[int, PeError]] = []
    for step in reversed(steps(root)):
        try:
            # The newest may be damaged by a full disk or a copy: older ones are tried before a run gives up.
            return (step, *_read(folder_of(root, step))), damaged
        except PeError as error:
            damaged.append((step, error))
    return None, damaged


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read arrays by name, for `--init`: from anything that `load` takes, or an .npz file.

    Raises:
        PeError: DATA; as for `load`, or the suffix is unknown.
    """
    file = resolve(path)
    if file.is_dir():
        return load(file)[0]
    if file.suffix == ".npz":
        return read_npz(file)
    if file.suffix == ".safetensors":
        return read_safetensors(file)
    raise data_error(f"{path}: neither a checkpoint folder nor a .safetensors or .npz file")


def read_files(path: Path) -> dict[str, bytes]:
    """Return the files that a checkpoint keeps beside its arrays, checked against its description.

    Args:
        path: as for `resolve`; a tensor file alone has none.

    Raises:
        PeError: DATA; one is missing, too large, or changed since it was written.
    """
    folder = resolve(path)
    if folder.is_file():
        return {}
    listed = read_meta(folder)[0].get("files", {})
    if not isinstance(listed, Mapping) or not all(_is_plain(name) for name in listed):
        raise data_error(f"{folder}: {META} lists no files as a run does", another_whole(folder.parent, but=folder))
    found: dict[str, bytes] = {}
    for name, digest in listed.items():
        file = folder / name
        try:
            with open_regular(file) as stream:
                # One byte more than allowed tells that there is more, without reading all of it.
                found[name] = stream.read(FILES_LIMIT + 1)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise data_error(f"{file}: {reason}", "copy the whole folder of the checkpoint") from None
        if len(found[name]) > FILES_LIMIT:
            raise data_error(f"{file}: more than {FILES_LIMIT} bytes, which no file of a checkpoint has")
        if hashlib.sha256(found[name]).hexdigest() != digest:
            hint = another_whole(folder.parent, but=folder) or "put back the file that the run wrote"
            raise data_error(f"{file}: changed since it was written: {META} says another sha256", hint)
    return found


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w.-]{1,200}", name) is not None and not name.startswith(".")


def _read(folder: Path, check: bool = True) -> tuple[dict[str, Value], Meta]:
    meta, tensors = read_meta(folder)
    check_file(folder / PARAMS, meta)
    arrays: dict[str, Value] = dict(read_safetensors(folder / PARAMS))
    if "pieces" in meta:
        arrays |= read_pieces(folder, meta, tensors, check=check)
    for name in arrays.keys() ^ tensors.keys():
        raise data_error(f"{folder}: {META} and {PARAMS} disagree: only one of them has '{name}'")
    for name, array in arrays.items():
        said = tensors[name]
        found = {"dtype": array.dtype.name, "shape": list(array.shape)}
        if said != found:
            raise data_error(f"{folder}: {META} and {PARAMS} disagree about '{name}': {said} and {found}")
    return {name: arrays[name] for name in tensors}, meta


def _kept(root: Path) -> str:
    with contextlib.suppress(PeError):
        return f"the checkpoints of the steps {', '.join(map(str, steps(root)))} are unchanged" if steps(root) else ""
    return ""
