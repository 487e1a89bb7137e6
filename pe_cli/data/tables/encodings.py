"""Finds out the encoding of a text that is no UTF-8, by which letters its bytes would be and where these stand."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

from pe_cli.core.lazy_dataclass import dataclass

#: Bytes of a text that its letters are looked up in; those of lines with a byte that is no ASCII.
SAMPLE = 1 << 18
#: Share by which the best encoding must be better than the next that reads the text differently.
MARGIN = 0.05
#: Signs that stand beside words in any language.
SIGNS = frozenset("€£„“”…°§«»·²³µ©®ºª¿¡½¼™\u201a\u2018\u2019\u2013\u2014\u00b4\u00d7")
_WESTERN = "äöüßàâçèéêëîïôùûÿæœáíóúñãõåøìò"
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ"
_GREEK = "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ"
#: Encoding -> letters of the languages that are written in it; of those with several bytes per letter, ranges of characters.
LETTERS: dict[str, str] = {
    "cp1252": _WESTERN,
    "cp1250": "äöüßąćęłńóśźżáčďéěíňřšťúůýžőűđăâîşţ",
    "cp1251": _CYRILLIC,
    "cp1253": _GREEK,
    "cp1254": "çğıöşüâî",
    "koi8-r": _CYRILLIC,
    "mac-roman": _WESTERN,
    "cp850": _WESTERN,
}
#: What is taken from encodings of several bytes per letter where there are fewer letters than these, and from encodings that hardly
#: anybody writes today.
CHANCE, LETTERS_ENOUGH = 0.3, 4
RARE = {"mac-roman": 0.15, "cp850": 0.15}
_WIDE = {"shift_jis": "぀-ヿ一-龯", "euc_jp": "぀-ヿ一-龯", "gb18030": "一-龯", "big5": "一-龯", "euc_kr": "가-힣"}


@dataclass(frozen=True)
class Detected:
    """An encoding, and what it was made from.

    Args:
        encoding: Python's name; None where the text cannot be told.
        shown: words that the text has in it.
        others: encodings that read the text differently and are as good, with the same words.
        line: of the first byte that is no UTF-8.
        mixed: whether the text has letters of UTF-8, too: its encoding changes in the middle.
    """

    encoding: str | None
    shown: tuple[str, ...]
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()
    line: int = 1
    mixed: bool = False


def detect(chunks: Iterable[bytes]) -> Detected | None:
    """Return the encoding of a text; None where it is UTF-8, or has a byte-order mark.

    Args:
        chunks: of its bytes, from the first on; no more is taken than is needed.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, good, sample, odd = 1, 0, bytearray(), False
    for i, chunk in enumerate(chunks):
        if i == 0 and chunk.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return None
        # Text of two bytes per letter has zeros at every second place.
        if i == 0 and chunk[:200].count(0) * 3 > len(chunk[:200]):
            name = "utf-16-le" if chunk[:200:2].count(0) < chunk[1:200:2].count(0) else "utf-16-be"
            return Detected(name, _words(chunk[:2000].decode(name, "replace"), ascii_too=True))
        if not odd:
            # UTF-8 first: text of another encoding hardly ever happens to be valid.
            try:
                text = decoder.decode(chunk)
                good += 0 if chunk.isascii() else _odd(text)
                lines += text.count("\n")
                continue
            except UnicodeDecodeError as error:
                before = error.object[: error.start].decode()
                good += _odd(before)
                lines, odd = lines + before.count("\n"), True
        for line in chunk.splitlines(keepends=True):
            if not line.isascii() and len(sample) < SAMPLE:
                sample += line
        if len(sample) >= SAMPLE:
            break
    return _told(bytes(sample), lines, good) if odd else None


def _odd(text: str) -> int:
    """Return how many characters are no ASCII."""
    return len(text) - len(text.encode("ascii", "ignore"))


def remedy(found: Detected | None) -> str:
    """Return what to do with a text that is no UTF-8."""
    if found is None or (found.encoding is None and not found.mixed):
        return "set encoding: to the one that it was saved in, such as cp1252 or latin-1, or save it as UTF-8"
    if found.mixed:
        said = f"the text before line {found.line} is UTF-8, so its encoding changes in the middle"
        return f"{said}: recode the parts that were joined, each from its own"
    tries = [f"encoding: {name}{_as(words)}" for name, words in ((str(found.encoding), found.shown), *found.others[:2])]
    return f"set {' or '.join(tries)}; or save it as UTF-8"


def _as(words: tuple[str, ...]) -> str:
    return f" (it reads {', '.join(repr(word) for word in words)} then)" if words else ""


def _told(sample: bytes, line: int, good: int) -> Detected:
    """Return what a text is that is no UTF-8.

    Args:
        sample: lines with bytes that are no ASCII.
        line: of the first byte that is no UTF-8.
        good: letters of UTF-8 in front of it.
    """
    runs = re.findall(rb"[\x80-\xff]+", sample)
    valid = sum(_is_utf8(run) for run in runs)
    # Valid runs beside invalid ones: two files were joined.
    if good and (valid or good > len(runs)) and (valid + good) * 5 > len(runs):
        return Detected(None, (), line=line, mixed=True)
    found = sorted(
        ((score, -i, name, text) for i, name in enumerate([*LETTERS, *_WIDE]) if (text := _decoded(sample, name)) is not None
         for score in [_score(name, text) - RARE.get(name, 0.0)]), reverse=True,
    )  # fmt: skip
    if not found or found[0][0] <= 0:
        return Detected(None, (), line=line)
    best = found[0]
    rest = [(name, _words(text)) for score, _, name, text in found[1:] if score > best[0] - MARGIN and text != best[3]]
    return Detected(best[2], _words(best[3]), tuple(rest), line)


def _is_utf8(run: bytes) -> bool:
    try:
        run.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(sample: bytes, encoding: str) -> str | None:
    try:
        return sample.decode(encoding)
    except UnicodeDecodeError:
        return None


def _score(encoding: str, text: str) -> float:
    """Return how much a text looks as if it was written: 1 where every letter is one of the encoding's languages, in its place."""
    of_letter = _of_wide if encoding in _WIDE else _of_letter
    total, count = 0.0, 0
    for match in re.finditer(r"[^\x00-\x7f]+", text):
        before = text[match.start() - 1] if match.start() else " "
        behind = text[match.end()] if match.end() < len(text) else " "
        for i, c in enumerate(match[0]):
            count += 1
            total += of_letter(encoding, before, c, match[0][i + 1] if i + 1 < len(match[0]) else behind)
            before = c
    return total / max(1, count) - (CHANCE if encoding in _WIDE and count < LETTERS_ENOUGH else 0.0)


def _of_letter(encoding: str, before: str, c: str, behind: str) -> float:
    """Return what a letter of one byte counts, between two others."""
    alone = not any(x.isalpha() and x not in SIGNS for x in (before, behind))
    if c.lower() in LETTERS[encoding]:
        # Letters of two alphabets in one word come of a wrong encoding.
        joined = LETTERS[encoding] in (_CYRILLIC, _GREEK) and any(x.isascii() and x.isalpha() for x in (before, behind))
        odd_case = c != c.lower() and before.islower()
        return -1.0 if joined or odd_case else 0.5 if alone else 1.0
    if c in SIGNS or c == "\xa0":
        return -1.0 if before.isalpha() and behind.isalpha() and c != "\u2019" else 1.0
    return -1.0


def _of_wide(encoding: str, before: str, c: str, behind: str) -> float:
    """Return what a letter of several bytes counts: rare ones little, and those of Chinese less where a language has letters of its own."""
    del before, behind
    if "\u3000" <= c <= "\u303f" or "\uff01" <= c <= "\uff5e":
        return 0.5
    if not re.match(f"[{_WIDE[encoding]}]", c):
        return -1.0
    if encoding in ("shift_jis", "euc_jp"):
        return 1.0 if "\u3040" <= c <= "\u30ff" else 0.6
    lead = c.encode(encoding)[0]
    common = {"gb18030": 0xB0 <= lead <= 0xF7 and c.encode(encoding)[1] >= 0xA1, "big5": 0xA4 <= lead <= 0xC6}.get(encoding, True)
    return 0.2 if not common else 1.0 if encoding == "euc_kr" else 0.9


def _words(text: str, ascii_too: bool = False) -> tuple[str, ...]:
    """Return the first three words of a text with a letter that is no ASCII."""
    words = re.findall(r"\w+" if ascii_too else r"\w*[^\W\x00-\x7f]\w*", text)
    return tuple(dict.fromkeys(word[:24] for word in words))[:3]
