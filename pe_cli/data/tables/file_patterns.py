"""Files by name or by pattern."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pe_cli.config.paths import is_url
from pe_cli.core.errors import did_you_mean
from pe_cli.data.reader_context import Origin
from pe_cli.data.remote.stores import shown

_PATTERN = re.compile(r"[*?\[]")


def find_files(names: str | Sequence[str], origin: Origin) -> list[Path]:
    """Return the files that names and patterns mean; those elsewhere are fetched. See `find_shards`."""
    return [origin.find(found) if isinstance(found, str) else found for found in find_shards(names, origin)]


def find_shards(names: str | Sequence[str], origin: Origin) -> list[Path | str]:
    """Return the files that names and patterns mean, those of one pattern sorted by path; of files elsewhere their addresses.

    In a pattern `*`, `?` and `[...]` stand for characters of one name, and `**` for folders of any depth. A pattern looks only at
    files and folders that are no symbolic links; a file that is named outright may be one. A name that exists is no pattern.

    Args:
        names: relative to the origin's folder, or addresses of files elsewhere.
        origin: finds files and gives errors their place.

    Raises:
        PeError: DATA; a file is missing, is a folder or may not be read, a pattern matches no file, or a file is named twice.
    """
    found: dict[Path | str, str] = {}
    for name in [names] if isinstance(names, str) else names:
        for path in _meant(name, origin):
            if path in found:
                what = f"{shown(str(path))} is read twice"
                what += "" if found[path] == name else f", by '{shown(found[path])}' and '{shown(name)}'"
                raise origin.error(what, "name every file once")
            found[path] = name
    return list(found)


def _meant(name: str, origin: Origin) -> Sequence[Path | str]:
    """Return what a name or a pattern means."""
    if is_url(name):
        with origin.fetching(name):
            return origin.remote.match(name)
    outright = not _PATTERN.search(name) or os.path.lexists(origin.base / os.path.expanduser(name))  # noqa: PTH111
    return [origin.find(name)] if outright else _matching(name, origin)


def _matching(pattern: str, origin: Origin) -> list[Path]:
    """Return the readable files that a pattern matches."""
    parts = Path(os.path.expanduser(pattern)).parts  # noqa: PTH111 - Path's raises where there is no such user
    fixed = next(i for i, part in enumerate(parts) if _PATTERN.search(part))
    folder = origin.base.joinpath(*parts[:fixed])
    if ".." in parts[fixed:]:
        raise origin.error(f"pattern '{pattern}' goes up behind its first *", "write .. before it only")
    found = sorted(set(_walk(folder, parts[fixed:])))
    if not found:
        raise origin.error(f"no file matches '{pattern}'", _remedy(folder, parts[fixed:], pattern, origin))
    return [origin.find(str(path.absolute())) for path in found]


def _walk(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that a pattern matches; symbolic links are left out."""
    if parts[0] == "**":
        if len(parts) > 1:
            yield from _walk(folder, parts[1:])
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _walk(Path(entry.path), parts)
            elif len(parts) == 1 and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
        return
    for entry in _entries(folder):
        if not fnmatch.fnmatchcase(entry.name, parts[0]) or (
            entry.name.startswith(".") and not parts[0].startswith(".")
        ):
            continue
        if len(parts) > 1 and entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), parts[1:])
        elif len(parts) == 1 and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remedy(folder: Path, parts: Sequence[str], pattern: str, origin: Origin) -> str:
    """Return a hint with a path that may have been meant."""
    missing = folder
    while not missing.exists() and missing.parent.is_dir() is False and missing.parent != missing:
        missing = missing.parent
    if not missing.exists():
        close = did_you_mean(missing.name, sorted(entry.name for entry in _entries(missing.parent)))
        return close or f"there is no folder {missing}"
    entries = _entries(folder)
    names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    if any(entry.is_symlink() and fnmatch.fnmatchcase(entry.name, parts[0]) for entry in entries):
        return "a pattern leaves symbolic links out; name such files one by one"
    if names:
        return (
            did_you_mean(parts[0], names) or f"in {folder} there are {', '.join(names[:5])}{', ...' * (len(names) > 5)}"
        )
    if Path(pattern).is_absolute():
        return f"{folder} is empty"
    return f"{folder} is empty; relative paths start at the config file's folder, {origin.base.absolute()}"
