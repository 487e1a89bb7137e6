"""The WMT data sets: sentences in two languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.dataset_files import as_data, lines, local, member, members, of_modes
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.io import Dataset
from pe_cli.paddle.text.vocabulary import UNKNOWN

BEGIN, END = "<s>", "<e>"
Numbers = dict[str, int]
Pair = tuple[list[int], list[int], list[int]]
#: WMT14: number of unknown words, and the most words of a sentence, with the marks of the first language.
UNKNOWN_14, LONGEST = 2, 80
#: WMT16: words of each language.
TOTALS = {"en": 11250, "de": 19220}


def turned(numbers: Numbers) -> dict[int, str]:
    """Return number -> word."""
    return {i: word for word, i in numbers.items()}


def archive_14(given: Any = None) -> Path:
    """Return the archive of WMT14: the given one, or the one where the original keeps it."""
    return local(given, "wmt14", "wmt14.tgz")


def archive_16(given: Any = None) -> Path:
    """Return the archive of WMT16: the given one, or the one where the original keeps it."""
    return local(given, "wmt16", "wmt16.tar.gz")


def _two(line: bytes) -> list[str]:
    return line.decode("utf-8").strip().split("\t")


def numbers_14(path: Path, size: int) -> tuple[Numbers, Numbers]:
    """Return the numbers of the first words of both languages.

    Raises:
        FluidValueError: the archive is damaged, or has not one dictionary of each; a ValueError.
    """
    found: dict[str, Numbers] = {}
    with as_data(path):
        for name, file in members(path, lambda at: at.endswith(("src.dict", "trg.dict"))):
            language = name[-8:-5]
            if language in found:
                raise FluidValueError(f"{path} has two files {language}.dict")
            found[language] = {line.decode("utf-8").strip(): i for i, line in zip(range(size), lines(file), strict=False)}
    if len(found) != 2:
        raise FluidValueError(f"{path} has no files src.dict and trg.dict")
    if not {BEGIN, END} <= found["trg"].keys():
        raise FluidValueError(f"dict_size is {size}, and {path} has {BEGIN} and {END} behind so many words", hint="a larger one")
    return found["src"], found["trg"]


def pairs_14(path: Path, part: str, source: Numbers, target: Numbers) -> Iterator[Pair]:
    """Yield numbers of a sentence, of its translation behind a mark, and of the same before one; none of more than 80 words."""
    with as_data(path):
        for _, file in members(path, lambda at: at.endswith(f"{part}/{part}")):
            for line in lines(file):
                texts = _two(line)
                if len(texts) != 2:
                    continue
                one = [source.get(word, UNKNOWN_14) for word in [BEGIN, *texts[0].split(), END]]
                other = [target.get(word, UNKNOWN_14) for word in texts[1].split()]
                if max(len(one), len(other)) <= LONGEST:
                    yield one, [target[BEGIN], *other], [*other, target[END]]


def numbers_16(path: Path, size: int, language: str) -> Numbers:
    """Return the numbers of marks and of the words of a language, those first that occur most often, and first, to train.

    Raises:
        FluidValueError: the archive is damaged, or the language is none of both; a ValueError.
    """
    if language not in TOTALS:
        raise FluidValueError(f"the language is {language!r}", hint="en or de")
    column = list(TOTALS).index(language)
    counts: Counter[str] = Counter()
    with as_data(path):
        for line in member(path, "wmt16/train"):
            texts = _two(line)
            if len(texts) == 2:
                counts.update(texts[column].split())
    # Of words that occur equally often, the one that came first has the smaller number: no order of a hash decides.
    words = [BEGIN, END, UNKNOWN, *(word for word, _ in counts.most_common())]
    return {word: i for i, word in enumerate(words[: max(3, size)])}


def pairs_16(path: Path, part: str, source: Numbers, target: Numbers, language: str) -> Iterator[Pair]:
    """Yield numbers of a sentence between marks, of its translation behind a mark, and of the same before one."""
    column = list(TOTALS).index(language)
    # The marks come first in both dictionaries, so their numbers serve both languages.
    begin, end, unknown = (source[mark] for mark in (BEGIN, END, UNKNOWN))
    with as_data(path):
        for line in member(path, f"wmt16/{part}"):
            texts = _two(line)
            if len(texts) == 2:
                one = [source.get(word, unknown) for word in texts[column].split()]
                other = [target.get(word, unknown) for word in texts[1 - column].split()]
                yield [begin, *one, end], [begin, *other], [*other, end]


class _Pairs(Dataset):
    """Numbers of sentences in two languages: int64 [words] of the first, of the second behind a mark, and of the second before one."""

    src_dict: Numbers
    trg_dict: Numbers
    _pairs: list[Pair]

    def __getitem__(self, idx: int) -> tuple[Any, Any, Any]:
        one, other, later = (np.array(row, np.int64) for row in self._pairs[idx])
        return one, other, later

    def __len__(self) -> int:
        return len(self._pairs)


class WMT14(_Pairs):
    """Sentences in English and French, as numbers; see `_Pairs`.

    Args:
        data_file: archive of all parts; default: where the original keeps it.
        mode: train, test or gen.
        dict_size: words of each language; others are unknown.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: the file is not there or damaged, or another argument is none of those; a ValueError.

    Source:
        Bojar et al. 2014, "Findings of the 2014 workshop on statistical machine translation".
    """

    def __init__(self, data_file: Any = None, mode: str = "train", dict_size: int = -1, download: bool = True) -> None:
        self.mode, self.dict_size = of_modes(mode, "train", "test", "gen"), _size(dict_size, "dict_size")
        path = archive_14(data_file)
        self.data_file = str(path)
        self.src_dict, self.trg_dict = numbers_14(path, dict_size)
        self._pairs = list(pairs_14(path, self.mode, self.src_dict, self.trg_dict))

    def get_dict(self, reverse: bool = False) -> tuple[Any, Any]:
        """Return the numbers of the words of both languages, or the words of the numbers."""
        return (turned(self.src_dict), turned(self.trg_dict)) if reverse else (self.src_dict, self.trg_dict)


class WMT16(_Pairs):
    """Sentences in English and German, as numbers; see `_Pairs`.

    Args:
        data_file: archive of all parts; default: where the original keeps it.
        mode: train, test or val.
        src_dict_size: words of the first language, with three marks; others are unknown.
        trg_dict_size: of the second.
        lang: the first language, en or de.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: the file is not there or damaged, or another argument is none of those; a ValueError.

    Source:
        Elliott et al. 2016, "Multi30K: multilingual English-German image descriptions".
    """

    def __init__(
        self,
        data_file: Any = None,
        mode: str = "train",
        src_dict_size: int = -1,
        trg_dict_size: int = -1,
        lang: str = "en",
        download: bool = True,
    ) -> None:
        self.mode, self.lang = of_modes(mode, "train", "test", "val"), lang
        self.src_dict_size, self.trg_dict_size = _size(src_dict_size, "src_dict_size"), _size(trg_dict_size, "trg_dict_size")
        path = archive_16(data_file)
        self.data_file = str(path)
        self.src_dict = numbers_16(path, src_dict_size, lang)
        self.trg_dict = numbers_16(path, trg_dict_size, other(lang))
        self._pairs = list(pairs_16(path, self.mode, self.src_dict, self.trg_dict, lang))

    def get_dict(self, lang: str, reverse: bool = False) -> dict[Any, Any]:
        """Return the numbers of the words of a language, en or de, or the words of the numbers."""
        numbers = self.src_dict if lang == self.lang else self.trg_dict
        return turned(numbers) if reverse else numbers


def other(language: str) -> str:
    """Return the other language of WMT16."""
    return "de" if language == "en" else "en"


def _size(size: Any, name: str) -> int:
    if not isinstance(size, int) or size <= 0:
        raise FluidValueError(f"{name} is {size!r}", hint="how many words have numbers of their own, above 0")
    return size
