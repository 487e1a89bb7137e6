"""The IMDB data set: opinions on films, positive and negative ones."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.dataset_files import as_data, local, members, of_modes, whole
from pe_cli.paddle.io import Dataset
from pe_cli.paddle.text.vocabulary import UNKNOWN, numbered

#: Films' opinions as they are published, whose words are those of both modes.
ALL = "aclImdb/(train|test)/(pos|neg)/.*\\.txt$"
_MARKS = string.punctuation.encode()


def archive(given: Any = None) -> Path:
    """Return the archive: the given one, or the one where the original keeps it."""
    return local(given, "imdb", "aclImdb_v1.tar.gz", "imdb%2FaclImdb_v1.tar.gz")


def documents(path: Path, pattern: Any) -> Iterator[list[bytes]]:
    """Yield the words of every text whose name fits a pattern: in small letters, without punctuation."""
    compiled = re.compile(pattern)
    with as_data(path):
        for _, file in members(path, lambda name: compiled.match(name) is not None):
            yield whole(file).rstrip(b"\n\r").translate(None, _MARKS).lower().split()


def words(path: Path, cutoff: int, pattern: Any = ALL) -> dict[Any, int]:
    """Return the number of every word, as bytes, that occurs more than cutoff times; of all others that of `<unk>`."""
    return numbered(Counter(chain.from_iterable(documents(path, pattern))), cutoff)


def opinions(path: Path, mode: str, numbers: dict[Any, int]) -> Iterator[tuple[list[int], int]]:
    """Yield numbers of words with 0 for a positive opinion, then those with 1 for a negative one."""
    unknown = numbers[UNKNOWN]
    for label, kind in enumerate(("pos", "neg")):
        for text in documents(path, f"aclImdb/{mode}/{kind}/.*\\.txt$"):
            yield [numbers.get(word, unknown) for word in text], label


class Imdb(Dataset):
    """Numbers of an opinion's words, int64 [words], and its label, int64 [1]: 0 for a positive one, 1 for a negative one.

    Args:
        data_file: archive of both modes; default: where the original keeps it.
        mode: train or test.
        cutoff: words that occur no more often than so are unknown.
        download: taken for the original's sake; nothing is downloaded.

    Attributes:
        word_idx: number of every word, as bytes, and of `<unk>`.

    Raises:
        FluidValueError: the file is not there or damaged, or mode is another word; a ValueError.

    Source:
        Maas et al. 2011, "Learning word vectors for sentiment analysis".
    """

    def __init__(self, data_file: Any = None, mode: str = "train", cutoff: int = 150, download: bool = True) -> None:
        self.mode = of_modes(mode, "train", "test")
        path = archive(data_file)
        self.data_file = str(path)
        self.word_idx = words(path, cutoff)
        found = list(opinions(path, self.mode, self.word_idx))
        self.docs, self.labels = [text for text, _ in found], [label for _, label in found]

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        return np.array(self.docs[idx], np.int64), np.array([self.labels[idx]], np.int64)

    def __len__(self) -> int:
        return len(self.docs)
