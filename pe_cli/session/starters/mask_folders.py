"""Finds masks beside pictures: folders whose files have the same names, or files that are called like others with something behind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import islice, permutations
from pathlib import Path

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.pictures.decode import SUFFIXES, stamp
from pe_cli.data.pictures.mask_files import masks_among
from pe_cli.data.pictures.mask_values import COLOR, values_in
from pe_cli.data.pictures.picture_checks import Unreadable

#: Parts of what masks and their folders are called.
_WORDS = ("mask", "label", "annot", "seg", "gt", "truth", "target", "matte", "trimap")
#: Names of masks beside their pictures, * is the picture's.
_BESIDE = ("*_mask", "*-mask", "*.mask", "*Mask", "*_seg", "*_segmentation", "*_label", "*_labels", "*_gt", "*_L", "*_matte", "mask_*")
#: Share of the files of a folder that have to belong to those of another one; files that are listed, and that are inspected into.
PAIRED, LISTED, LOOKED = 0.8, 5000, 12
#: Values that the files of a folder of masks have together, at most; and the share of pixels near black or white in masks with soft edges.
FEW, SOFT, NEAR = 64, 0.9, 40
#: Values from which masks of two classes have been smoothed.
SMOOTH = 16


@dataclass(frozen=True)
class Masks:
    """Where masks lie.

    Args:
        pictures: folder.
        masks: folder; None where masks lie beside their pictures.
        pattern: name of a mask, * is that of its picture.
        soft: whether they are two classes with soft edges.
    """

    pictures: Path
    masks: Path | None
    pattern: str
    soft: bool


def find(folder: Path, *, sure: bool) -> Masks | None:
    """Return where masks lie in a folder; None where it has none.

    Args:
        folder: of the user.
        sure: the user says that there are masks, so that pictures which look like masks need no name that says so.

    Raises:
        PeError: DATA; a folder is called like one of masks, and its pictures have too many colours.
    """
    inside = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))[:8]
    stems = {entry: _stems(entry) for entry in inside}
    found: list[tuple[int, Masks]] = []
    unclear: Path | None = None
    # In both orders, because either folder of a pair may be that of the masks.
    for pictures, masks in permutations(inside, 2):
        pattern = _pattern(stems[pictures], stems[masks])
        if pattern is not None:
            named = _named(masks.name) + _named(pattern)
            told = _looks(_some(masks), sure=sure)
            if told is not None and not _named(pictures.name) and (named or _looks(_some(pictures), sure=False) is None):
                found.append((named, Masks(pictures, masks, pattern, told == "soft")))
            elif told is None and _named(masks.name) and not _named(pictures.name):
                unclear = unclear or masks
    if found:
        return max(found, key=lambda one: one[0])[1]
    if unclear is not None:
        many = f"{_values(_some(unclear))} different colours, more than {FEW}"
        raise PeError(
            f"{unclear} is called like a folder of masks, and its pictures have {many}",
            hint="JPEG changes colours: save masks as PNG. --task masks takes them for masks nonetheless, --task classes for a class",
            code=ExitCode.DATA,
        )
    return _beside(folder, sure=sure)


def _beside(folder: Path, *, sure: bool) -> Masks | None:
    files = [path.name for path in islice(folder.iterdir(), LISTED) if path.is_file() and path.suffix.lower() in SUFFIXES]
    for pattern in _BESIDE:
        pictures, masks = masks_among(sorted(files), pattern)
        names = {os.path.splitext(name)[0] for name in masks}  # noqa: PTH122 - a name of many
        pairs = sum(pattern.replace("*", os.path.splitext(name)[0], 1) in names for name in pictures)  # noqa: PTH122 - a name of many
        if pictures and pairs >= PAIRED * max(len(pictures), len(masks)):
            told = _looks([folder / name for name in masks[:LOOKED]], sure=sure)
            if told is not None:
                return Masks(folder, None, pattern, told == "soft")
    return None


def _named(name: str) -> int:
    return sum(word in name.lower() for word in _WORDS)


def _stems(folder: Path) -> set[str]:
    """Return the paths of the pictures in a folder, without their endings."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    return {os.path.splitext(path.relative_to(folder))[0] for path in islice(found, LISTED)}  # noqa: PTH122 - a path of many


def _some(folder: Path) -> list[Path]:
    found = sorted(path for path in islice(folder.rglob("*"), LISTED) if path.suffix.lower() in SUFFIXES)
    return found[:: max(1, len(found) // LOOKED)][:LOOKED]


def _pattern(pictures: set[str], masks: set[str]) -> str | None:
    """Return what masks are called, * is the name of their picture; None where too few belong together."""
    if len(pictures) < 2 or len(masks) < 2:
        return None
    names = {stem.rsplit("/", 1)[-1] for stem in masks}
    tried: Counter[str] = Counter()
    for stem in sorted(pictures)[:LOOKED]:
        name = stem.rsplit("/", 1)[-1]
        tried.update({mask.replace(name, "*", 1) for mask in names if name in mask and "*" not in mask})
    for pattern, _ in tried.most_common(4):
        made = {_placed(stem, pattern) for stem in pictures}
        if len(made & masks) >= PAIRED * max(len(pictures), len(masks)):
            return pattern
    return None


def _placed(stem: str, pattern: str) -> str:
    head, slash, name = stem.rpartition("/")
    return f"{head}{slash}{pattern.replace('*', name, 1)}"


def _looks(files: Sequence[Path], *, sure: bool) -> str | None:
    """Return whether files look like masks: hard, soft, or None."""
    values, lossy = _values(files), any(path.suffix.lower() in (".jpg", ".jpeg") for path in files)
    if (lossy or values > SMOOTH) and _soft(files):
        return "soft"
    return "hard" if sure or (not lossy and 0 < values <= FEW) else None


def _values(files: Sequence[Path]) -> int:
    """Return how many different values files have together."""
    seen: set[int] = set()
    for path in files:
        try:
            seen.update(value for value, _ in values_in(str(path), "index", None, stamp(str(path))))
        except Unreadable:
            continue
    return len(seen)


def _soft(files: Sequence[Path]) -> bool:
    """Return whether almost all pixels are nearly black or nearly white, so that two classes were smoothed."""
    near = total = 0
    for path in files:
        try:
            counts = values_in(str(path), "index", None, stamp(str(path)))
        except Unreadable:
            continue
        for value, count in counts:
            gray = np.array([(value - COLOR) >> 16, (value - COLOR) >> 8 & 255, value & 255]) if value >= COLOR else np.array([value])
            near += count * bool((gray <= NEAR).all() or (gray >= 255 - NEAR).all())
            total += count
    return total > 0 and near >= SOFT * total
