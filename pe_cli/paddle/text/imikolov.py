"""Sentences of the Penn Treebank, for language models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.dataset_files import local, member, of_modes
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.io import Dataset
from pe_cli.paddle.text.vocabulary import UNKNOWN, numbered

BEGIN, END = "<s>", "<e>"


def archive(given: Any = None) -> Path:
    """Return the archive: the given one, or the one where the original keeps it."""
    return local(given, "imikolov", "simple-examples.tgz", "imikolov%2Fsimple-examples.tgz")


def sentences(path: Path, part: str) -> Iterator[list[bytes]]:
    """Yield the words of every sentence of a part: train, valid or test."""
    return (line.strip().split() for line in member(path, f"simple-examples/data/ptb.{part}.txt"))


def words(path: Path, min_word_freq: int) -> dict[Any, int]:
    """Return the number of every word, as bytes, that occurs more often than so, and of the marks of begin, end and what is unknown."""
    counts: Counter[Any] = Counter()
    for part in ("train", "valid"):
        for sentence in sentences(path, part):
            counts.update([*sentence, BEGIN, END])
    return numbered(counts, min_word_freq)


def samples(path: Path, part: str, numbers: dict[Any, int], size: int, grams: bool) -> Iterator[tuple[Any, ...]]:
    """Yield numbers of words: those of every window, or of sentences one behind a mark and one before it.

    Args:
        path: archive.
        part: train, valid or test.
        numbers: of words and marks.
        size: of a window; of sentences the longest that counts, 0 for any.
        grams: windows, not sentences.

    Raises:
        FluidValueError: a window has no size; a ValueError.
    """
    if grams and size < 0:
        raise FluidValueError(f"the size of a window is {size}", hint="how many words follow one another in a sample")
    unknown = numbers[UNKNOWN]
    for sentence in sentences(path, part):
        found = [numbers.get(word, unknown) for word in sentence]
        begin, end = numbers.get(BEGIN, unknown), numbers.get(END, unknown)
        if grams:
            marked = [begin, *found, end]
            # Windows lie one word apart, so that every word but the first few is the last of one.
            yield from (tuple(marked[i - size : i]) for i in range(size, len(marked) + 1))
        elif size <= 0 or len(found) + 1 <= size:
            yield [begin, *found], [*found, end]


class Imikolov(Dataset):
    """Numbers of words, int64: each of a window, or those of a sentence [words + 1] and of the same one word later.

    Args:
        data_file: archive of all parts; default: where the original keeps it.
        data_type: NGRAM for windows, SEQ for sentences.
        window_size: words of a window; of a sentence, with the mark before it, at most so many, where it is above 0.
        mode: train or test.
        min_word_freq: words that occur no more often than so are unknown.
        download: taken for the original's sake; nothing is downloaded.

    Attributes:
        word_idx: number of every word, as bytes, and of `<s>`, `<e>` and `<unk>`.

    Raises:
        FluidValueError: the file is not there or damaged, or another argument is none of those; a ValueError.

    Source:
        Mikolov et al. 2010, "Recurrent neural network based language model".
    """

    def __init__(
        self,
        data_file: Any = None,
        data_type: str = "NGRAM",
        window_size: int = -1,
        mode: str = "train",
        min_word_freq: int = 50,
        download: bool = True,
    ) -> None:
        if data_type.upper() not in ("NGRAM", "SEQ"):
            raise FluidValueError(f"data_type is {data_type!r}", hint="NGRAM or SEQ")
        self.mode, self.data_type, self.window_size = of_modes(mode, "train", "test"), data_type.upper(), window_size
        path = archive(data_file)
        self.data_file = str(path)
        self.word_idx = words(path, min_word_freq)
        self.data = list(samples(path, self.mode, self.word_idx, window_size, self.data_type == "NGRAM"))

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(np.array(part, np.int64) for part in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)
