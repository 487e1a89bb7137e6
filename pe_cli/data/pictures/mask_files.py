"""Finds the mask that belongs to each picture, by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pe_cli.data.folder_listing import files_in
from pe_cli.data.pictures.decode import SUFFIXES
from pe_cli.data.reader_context import Origin

Unmasked = Literal["error", "skip", "keep"]


def listed(folder: Path, origin: Origin, without: Path | None = None) -> list[str]:
    """Return the paths of the pictures in a folder, relative to it and sorted.

    Args:
        folder: where to look.
        origin: of the data, for messages.
        without: a folder in it that is left out.

    Raises:
        PeError: DATA; the folder cannot be read.
    """
    found = sorted(path for path in files_in(folder, origin, linked=True) if path.lower().endswith(SUFFIXES))
    if without is None:
        return found
    real = without.resolve()
    return [path for path in found if real not in (folder / path).resolve().parents]


def paired(
    pictures: Sequence[str], masks: Sequence[str], pattern: str, unmasked: Unmasked, folders: tuple[Path, Path], origin: Origin
) -> list[tuple[str, str | None]]:
    """Return pictures, each with its mask: the file of the same path, whose name without its ending is that of `pattern`.

    Args:
        pictures: paths in the first folder.
        masks: paths in the second folder.
        pattern: name of a mask, in which * is that of its picture.
        unmasked: what a picture without a mask is; to keep it gives it None.
        folders: of pictures and of masks, for messages.
        origin: of the data, for messages.

    Raises:
        PeError: DATA; a picture has no mask or two, or a mask no picture.
    """
    of: dict[str, str] = {}
    for mask in masks:
        stem = os.path.splitext(mask)[0]  # noqa: PTH122 - a path of many
        if stem in of:
            raise origin.error(f"{folders[1] / of[stem]} and {folders[1] / mask} are masks of one picture", "take one out")
        of[stem] = mask
    found = [(path, of.get(_masked(path, pattern))) for path in pictures]
    bare = [path for path, mask in found if mask is None]
    if bare and unmasked == "error":
        hint = f"draw {'it' if len(bare) == 1 else 'them'}, or set unmasked: skip"
        raise origin.error(_bare(bare, len(pictures), pattern, folders), hint)
    used = {mask for _, mask in found}
    spare = [mask for mask in masks if mask not in used]
    if spare and unmasked == "error":
        more = f"; {len(spare) - 1:,} more masks have none" if len(spare) > 1 else ""
        raise origin.error(f"{folders[1] / spare[0]} is the mask of no picture in {folders[0]}{more}", "take it out, or set unmasked: skip")
    kept = [(path, mask) for path, mask in found if mask is not None or unmasked == "keep"]
    if not kept:
        raise origin.error(_bare(bare, len(pictures), pattern, folders), "say what masks are called, such as mask_name: '*_mask'")
    return kept


def _masked(picture: str, pattern: str) -> str:
    """Return the path that a picture's mask has, without its ending."""
    head, name = os.path.split(os.path.splitext(picture)[0])  # noqa: PTH122 - a path of many
    return os.path.join(head, pattern.replace("*", name, 1))  # noqa: PTH118 - a path of many


def _bare(bare: Sequence[str], count: int, pattern: str, folders: tuple[Path, Path]) -> str:
    more = f"; {len(bare) - 1:,} more of {count:,} pictures have none" if len(bare) > 1 else ""
    return f"{folders[0] / bare[0]} has no mask: there is no {folders[1] / _masked(bare[0], pattern)}{SUFFIXES[0]}{more}"


def masks_among(files: Sequence[str], pattern: str) -> tuple[list[str], list[str]]:
    """Return which files of one folder are pictures, and which are masks: those that are called like the mask of another.

    >>> masks_among(["a.jpg", "a_mask.png", "b_mask.png"], "*_mask")
    (['a.jpg'], ['a_mask.png', 'b_mask.png'])
    """
    before, _, after = pattern.partition("*")

    def is_mask(path: str) -> bool:
        name = os.path.splitext(os.path.basename(path))[0]  # noqa: PTH119, PTH122 - a path of many
        return name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)

    return [path for path in files if not is_mask(path)], [path for path in files if is_mask(path)]


def check_pattern(pattern: str) -> str:
    """Return the name of masks, checked.

    Raises:
        ValueError: it has no * or several, or is a path.
    """
    if pattern.count("*") != 1 or "/" in pattern:
        raise ValueError("mask_name has one * for the name of the picture, as in '*_mask', and is no path")
    return pattern
