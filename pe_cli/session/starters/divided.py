"""Folders and files that are divided into training, evaluation and test already, by what they are called."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli.config.paths import PATHS
from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.array_dataset import is_table
from pe_cli.data.registry import open_reader
from pe_cli.data.row_split import split_rows
from pe_cli.session.starters.training_plan import shares

if TYPE_CHECKING:
    from pe_cli.data.raw_cells import Table
    from pe_cli.session.starters.files import Settings

#: What parts are called, by their use; names such as train2017 and instances_val2017.json have them in them.
WORDS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "eval": ("val", "valid", "validation", "dev", "eval"),
    "test": ("test", "testing"),
}
_USE = {word: use for use, words in WORDS.items() for word in words}
_WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(_USE, key=len, reverse=True))})(?![a-z])", re.IGNORECASE)
#: Entries of a folder that are looked at.
LOOKED = 1000


@dataclass(frozen=True)
class Division:
    """How the rows of a starter are divided.

    Args:
        sections: of `data`: source, or train, eval and test -> reader and options.
        split: of the source; empty where its parts are sections of their own.
        rows: of the training part.
        said: what parts there are, for the screen and the config; empty where the starter divides them.
        others: what was opened besides the training part.
    """

    sections: Mapping[str, Mapping[str, Any]]
    split: Mapping[str, Any]
    rows: int
    said: str = ""
    others: Sequence[Table] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """The same as lines, none where nothing is said."""
        return (self.said,) if self.said else ()


def uses_of(names: Iterable[str]) -> dict[str, str]:
    """Return use -> name, of names that are the same but for the word for it; empty without training, or with that alone.

    >>> uses_of(["train", "valid", "test", "README"]), uses_of(["instances_train2017.json", "instances_val2017.json"])["eval"]
    ({'train': 'train', 'eval': 'valid', 'test': 'test'}, 'instances_val2017.json')
    >>> uses_of(["train", "plane"]), uses_of(["cat", "dog"])
    ({}, {})
    """
    alike: dict[str, dict[str, str]] = {}
    for name in names:
        found = list(_WORD.finditer(name))
        # Two such words in a name, as in train_val, do not tell one use.
        if len(found) == 1:
            rest = name[: found[0].start()] + "*" + name[found[0].end() :]
            alike.setdefault(rest, {}).setdefault(_USE[found[0][0].lower()], name)
    several = (parts for parts in alike.values() if "train" in parts and len(parts) > 1)
    return dict(sorted(max(several, key=len, default={}).items(), key=lambda part: list(WORDS).index(part[0])))


def folders_in(folder: Path) -> dict[str, str]:
    """Return use -> folder in it, of a folder that is divided at its top; empty for others."""
    inside = [entry.name for entry in sorted(folder.iterdir())[:LOOKED] if entry.is_dir() and not entry.name.startswith(".")]
    found = uses_of(inside)
    # a folder of classes may well have one that is called test
    return found if len(inside) - len(found) <= 1 else {}


def narrowed(settings: Settings, names: Iterable[str]) -> Settings:
    """Return settings whose source is the training part of a folder; the same where names in it do not divide it."""
    found = {} if settings.whole else uses_of(names)
    return replace(settings, source=settings.source / found["train"], whole=settings.source) if found else settings


def divided(settings: Settings, source: dict[str, Any], table: Table, by: Mapping[str, str] = MappingProxyType({})) -> Division:
    """Return how rows are divided: as their folders and files are called, or by a draw.

    Args:
        settings: of the user; `whole` is the folder that is divided.
        source: reader and options of the training part, or of all rows.
        table: opened from it.
        by: stratify, a column whose values have the same shares in every part of a draw; or group, one whose rows stay in one part.

    Raises:
        PeError: DATA; the part for evaluation cannot be read.
    """
    sections: dict[str, dict[str, Any]] = {}
    others: list[Table] = []
    told = [f"{len(table):,} to train"]
    for use in ("eval", "test") if settings.whole else ():
        found = _part(settings, source, use, table)
        if isinstance(found, str):
            told.append(f"{use} is left out, {found}")
        elif found is not None:
            sections[use], other = found
            others.append(other)
            told.append(f"{len(other):,} to {'evaluate' if use == 'eval' else use}")
    said = f"divided as folders and files are called: {', '.join(told)}" if len(told) > 1 else ""
    if "eval" in sections:
        return Division({"train": source, **sections}, {}, len(table), said, others)
    split: dict[str, Any] = {**shares(len(table)), **by, "seed": 1}
    if sections:
        split.pop("test", None)
    said += "; those to evaluate with are drawn from those to train" if said else ""
    rows = len(split_rows(table, np.arange(len(table), dtype=np.int64), SplitSection.model_validate(split))["train"])
    return Division({"source": source, **sections}, split, rows, said, others)


def _part(settings: Settings, source: Mapping[str, Any], use: str, table: Table) -> tuple[dict[str, Any], Table] | str | None:
    """Return the source of another part and what it opens; why it is left out, or None where there is none.

    Raises:
        PeError: DATA; it is for evaluation, and cannot be read.
    """
    assert settings.whole is not None
    whole = settings.whole.absolute()
    paths = {key: path for key, value in source.items() if key in PATHS and (path := _inside(settings, value)) is not None}
    moved = {key: _swapped(whole, path, use) for key, path in paths.items()}
    if not paths or None in moved.values() or moved == paths:
        return None
    there = {key: whole / str(path) for key, path in moved.items()}
    options = {key: value for key, value in source.items() if key != "reader"} | {key: str(path) for key, path in there.items()}
    try:
        found, lenient = _opened(str(source["reader"]), options, whole)
    except PeError as error:
        if use == "eval":
            raise
        return error.message
    assert is_table(found), "readers of tables, pictures and texts give tables"
    if set(found.names) != set(table.names):
        gone = next(name for name in table.names if name not in found.names) if set(table.names) - set(found.names) else ""
        what = f"has no {gone}" if gone else "has other columns"
        if use == "eval":
            said = f"{next(iter(there.values()))} {what}, unlike what is to train"
            raise PeError(said, hint=f"name what is to train: --from {settings.source}", code=ExitCode.DATA)
        return f"it {what}"
    return {**source, **lenient, **{key: os.path.relpath(path, settings.base) for key, path in there.items()}}, found


#: Options that leave out what is wrong, where an error names them.
_LENIENT = (("broken", "skip"), ("outside", "clip"), ("unmasked", "skip"))


def _opened(reader: str, options: dict[str, Any], whole: Path) -> tuple[Any, dict[str, str]]:
    """Return what a reader opens, and the options that leave out what is wrong, where an error named them.

    Raises:
        PeError: DATA; it cannot be read.
    """
    more: dict[str, str] = {}
    while True:
        try:
            return open_reader(reader, {**options, **more}, whole), more
        except PeError as error:
            # Each option is set once, so the loop ends.
            named = (pair for pair in _LENIENT if f"{pair[0]}: {pair[1]}" in (error.hint or "") and pair[0] not in {**options, **more})
            option = next(named, None)
            if option is None:
                raise
            more[option[0]] = option[1]


def _inside(settings: Settings, value: Any) -> PurePosixPath | None:
    """Return a path of a source as it is inside of the folder that is divided; None for others."""
    assert settings.whole is not None
    whole = settings.whole.absolute()
    if not isinstance(value, str):
        return None
    path = PurePosixPath(os.path.normpath(settings.base / value))
    at = PurePosixPath(os.path.normpath(whole))
    return path.relative_to(at) if path.is_relative_to(at) else None


def _swapped(whole: Path, path: PurePosixPath, use: str) -> PurePosixPath | None:
    """Return a path with the word for another use in each of its parts that has one for training; None where it is not there."""
    made = PurePosixPath()
    for part in path.parts:
        found = _WORD.search(part)
        tries = [part]
        if found and _USE[found[0].lower()] == "train":
            tries = [part[: found.start()] + word + part[found.end() :] for word in WORDS[use]]
        there = next((one for one in tries if (whole / made / one).exists()), None)
        if there is None:
            return None
        made /= there
    return made
