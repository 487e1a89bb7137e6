"""The files in a folder and the folders in it, as readers of pictures and of texts find them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pe_cli.data.reader_context import Origin

#: Folders inside folders, at most.
DEEPEST = 32


def files_in(folder: Path, origin: Origin, *, linked: bool, inside: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths of files, relative to the folder, in no order; hidden ones are left out.

    Args:
        folder: where to look.
        origin: of the data, for messages.
        linked: whether files may be symbolic links; folders may not.
        inside: the folder in it that is looked at.
        depth: how many folders that lies deep.

    Raises:
        PeError: DATA; a folder cannot be read or lies too deep, or a link that is not followed.
    """
    if depth > DEEPEST:
        raise origin.error(f"{folder / inside} lies more than {DEEPEST} folders deep", "name a folder further in")
    try:
        with os.scandir(folder / inside) as entries:
            listed = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise origin.error(f"cannot read {folder / inside}: {(error.strerror or str(error)).lower()}", "check its permissions") from None
    for entry in listed:
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.is_symlink() and (entry.is_dir() or not linked):
            what = "a symbolic link to a folder" if entry.is_dir() else "a symbolic link"
            raise origin.error(f"{folder / path} is {what}, which is not followed", "copy what it leads to")
        if entry.is_dir():
            yield from files_in(folder, origin, linked=linked, inside=path, depth=depth + 1)
        else:
            yield path
