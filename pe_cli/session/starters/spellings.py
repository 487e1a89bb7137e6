"""Finds classes that are written in several ways: with other capitals, blanks or invisible characters, or as 1 and 1.0."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.columns.bool import PAIRS
from pe_cli.data.raw_cells import Codes
from pe_cli.session.starters.names import said

#: Letters from which a text with other capitals is the same word: shorter ones may be codes, such as the alleles Aa and aA.
LETTERS = 3
#: Other texts that are written into a config at most, and those of a class that are shown.
MOST, SHOWN = 100, 3
#: Texts that are looked at: columns of more are no classes.
TRIED = 20_000
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,14})(\.\d{1,6})?")
_WORDS = frozenset(word for pair in (*PAIRS, ("yes", "no"), ("on", "off")) for word in pair if len(word) > 1)


@dataclass(frozen=True)
class Spellings:
    """Texts that are one class.

    Args:
        same: class -> other texts that are the same.
        alike: classes that differ in capitals alone, and may be others.
        many: other texts that are the same, where they are too many for a config.
    """

    same: Mapping[str, tuple[str, ...]]
    alike: tuple[tuple[str, ...], ...] = ()
    many: int = 0

    @property
    def meant(self) -> dict[str, str]:
        """Other text -> its class."""
        return {word: name for name, words in self.same.items() for word in words}

    @property
    def written(self) -> dict[str, dict[str, list[str]]]:
        """The option of a column; empty where nothing is written in several ways."""
        return {"spellings": {name: list(words) for name, words in self.same.items()}} if self.same else {}

    def merged(self, codes: Codes) -> Codes:
        """Return cells with one text for each class."""
        return codes.merged(self.meant)

    def note(self, name: str, apart: str) -> str:
        """Return what is said on the screen; nothing where there is nothing to say.

        Args:
            name: of the column.
            apart: option that keeps the texts apart.
        """
        if self.same:
            shown = "; ".join(f"{_listed([one, *words])} for {said(one, 24)!r}" for one, words in list(self.same.items())[:SHOWN])
            count = sum(map(len, self.same.values()))
            more = f" and {len(self.same) - SHOWN:,} more" if len(self.same) > SHOWN else ""
            what = f"'{said(name, 30)}' writes classes in several ways, which are taken for one each ({count:,} more texts): {shown}{more}"
            return f"{what}; {apart} keeps them apart"
        if self.many:
            what = f"'{said(name, 30)}' writes classes in several ways, {self.many:,} texts in all"
            return f"{what}, too many for a config: correct the cells"
        if self.alike:
            what = f"'{said(name, 30)}' has classes that differ in capitals alone, such as {_listed(self.alike[0])}"
            return f"{what}: where they are one, correct the cells"
        return ""


def _listed(words: Sequence[str]) -> str:
    return ", ".join(ascii(word) if any(not c.isprintable() or unicodedata.combining(c) for c in word) else repr(said(word, 24))
                     for word in words[: SHOWN + 1])  # fmt: skip


def spellings_of(words: Sequence[str], counts: NDArray[np.int64] | Sequence[int]) -> Spellings:
    """Return which texts of a column are one class.

    Args:
        words: distinct texts.
        counts: rows that have each.

    >>> spellings_of(["Yes", "yes", "no", "1", "1.0"], [3, 2, 5, 1, 1]).same
    {'Yes': ('yes',), '1': ('1.0',)}
    >>> spellings_of(["Aa", "aA", "AA"], [3, 2, 5]).alike
    (('AA', 'Aa', 'aA'),)
    """
    if len(words) > TRIED:
        return Spellings({})
    groups: dict[str, list[tuple[int, str]]] = {}
    for word, count in zip(words, list(counts), strict=True):
        groups.setdefault(_plain(word).lower(), []).append((int(count), word))
    same: dict[str, tuple[str, ...]] = {}
    alike = []
    for key, found in groups.items():
        if len(found) == 1:
            continue
        exact: dict[str, list[tuple[int, str]]] = {}
        for pair in found:
            exact.setdefault(key if _is_word(key) else _plain(pair[1]), []).append(pair)
        for several in exact.values():
            # A plain form goes first, then the more frequent one; the text itself decides ties, so the order of the rows does not matter.
            best, *others = (word for _, word in sorted(several, key=lambda pair: (pair[1] != _plain(pair[1]), -pair[0], pair[1])))
            if others:
                same[best] = tuple(others)
        if len(exact) > 1:
            alike.append(tuple(word for _, word in sorted(found, key=lambda pair: -pair[0])))
    total = sum(map(len, same.values()))
    return Spellings(same, tuple(alike)) if total <= MOST else Spellings({}, tuple(alike), total)


def _plain(word: str) -> str:
    """Return a text with its characters composed, without invisible ones and with one blank at a time; of a number its shortest form."""
    composed = unicodedata.normalize("NFC", word)
    text = " ".join("".join(c for c in composed if unicodedata.category(c) != "Cf").split())
    return text.rstrip("0").rstrip(".") if _NUMBER.fullmatch(text) and "." in text else text


def _is_word(key: str) -> bool:
    """Whether a text means the same in other capitals."""
    return sum(c.isalpha() for c in key) >= LETTERS or key in _WORDS
