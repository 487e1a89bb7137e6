"""The CoNLL-2005 data set: the roles of the words of a sentence, for each of its verbs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.dataset_files import as_data, lines, local, members
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.io import Dataset

FOLDER = "conll05st"
Numbers = dict[str, int]
#: Number of words that no dictionary has.
UNKNOWN = 0
_WORDS, _ROLES = "conll05st-release/test.wsj/words/test.wsj.words.gz", "conll05st-release/test.wsj/props/test.wsj.props.gz"


def archive(given: Any = None) -> Path:
    """Return the archive: the given one, or the one where the original keeps it."""
    return local(given, FOLDER, "conll05st-tests.tar.gz")


def beside(given: Any, name: str) -> Path:
    """Return a file beside the archive: the given one, or one where the original keeps it."""
    return local(given, FOLDER, name, f"{FOLDER}%2F{name}")


def _text(path: Path) -> list[str]:
    with as_data(path), path.open("rb") as file:
        return [line.decode("utf-8").strip() for line in lines(file)]


def numbers(path: Path) -> dict[str, int]:
    """Return the number of the line of every word."""
    return {word: i for i, word in enumerate(_text(path))}


def labels(path: Path) -> dict[str, int]:
    """Return the numbers of labels, begin and inside of each role in the order in which roles occur, and last that of none."""
    roles = dict.fromkeys(label[2:] for label in _text(path) if label.startswith(("B-", "I-")))
    return {label: i for i, label in enumerate([*(f"{at}-{role}" for role in roles for at in "BI"), "O"])}


def _columns(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield a word and its columns, and an empty word with none behind every sentence."""
    with as_data(path), ExitStack() as stack:
        texts: dict[str, list[bytes]] = {}
        for name, file in members(path, lambda at: at.removeprefix("./") in (_WORDS, _ROLES)):
            texts[name.removeprefix("./")] = list(lines(stack.enter_context(gzip.open(file))))  # type: ignore[arg-type]
        if len(texts) != 2 or len(texts[_WORDS]) != len(texts[_ROLES]):
            raise FluidValueError(f"{path} has no lines of words with as many of roles")
        for word, roles in zip(texts[_WORDS], texts[_ROLES], strict=True):
            yield word.decode("utf-8").strip(), roles.decode("utf-8").split()


def _labelled(column: list[str], path: Path) -> list[str]:
    """Return the labels of a column of brackets: (A0* begins a role that a later *) ends."""
    found, role, inside = [], "O", False
    for cell in column:
        if "(" in cell:
            # A role of one word, as (V*), ends where it begins.
            role, inside = cell[1 : cell.find("*")], ")" not in cell
            found.append(f"B-{role}")
        elif cell in ("*", "*)"):
            found.append(f"I-{role}" if inside or cell == "*)" else "O")
            inside = inside and cell == "*"
        else:
            raise FluidValueError(f"{path} has the role '{cell}'", hint="roles are like (A0*, *, *) and (V*)")
    return found


def sentences(path: Path) -> Iterator[tuple[list[str], str, list[str]]]:
    """Yield words, a verb and a label for every word, once for each verb of a sentence.

    Raises:
        FluidValueError: the archive is damaged, or a role is none; a ValueError.
    """
    words: list[str] = []
    rows: list[list[str]] = []
    for word, roles in chain(_columns(path), [("", [])]):
        if roles:
            words.append(word)
            rows.append(roles)
        elif rows:
            if len({len(row) for row in rows}) > 1:
                raise FluidValueError(f"{path} has a sentence whose words have different numbers of columns: {' '.join(words)[:80]}")
            first, *columns = ([row[i] for row in rows] for i in range(len(rows[0])))
            verbs = [verb for verb in first if verb != "-"]
            if len(verbs) != len(columns):
                raise FluidValueError(f"{path} has {len(verbs)} verbs and {len(columns)} columns of roles for: {' '.join(words)[:80]}")
            yield from ((words, verb, _labelled(column, path)) for verb, column in zip(verbs, columns, strict=True))
            words, rows = [], []


def sample(told: tuple[list[str], str, list[str]], of_words: Numbers, of_verbs: Numbers, of_labels: Numbers) -> tuple[list[Any], ...]:
    """Return nine lists of numbers, one for each word: words; the two before the verb, the verb and the two behind; verb; mark; labels.

    Args:
        told: what `sentences` yields.
        of_words, of_verbs, of_labels: their numbers.

    Raises:
        FluidValueError: no word is the verb; a ValueError.
    """
    sentence, verb, roles = told
    if "B-V" not in roles:
        raise FluidValueError(f"no word is the verb of: {' '.join(sentence)[:80]}")
    at, size = roles.index("B-V"), len(sentence)

    def near(offset: int) -> list[int]:
        place = at + offset
        # Beyond its ends, a sentence goes on with words for that.
        word = "bos" if place < 0 else "eos" if place >= size else sentence[place]
        return [of_words.get(word, UNKNOWN)] * size

    marks = [int(abs(i - at) <= 2) for i in range(size)]
    around = [near(offset) for offset in range(-2, 3)]
    numbered = [of_words.get(word, UNKNOWN) for word in sentence]
    return numbered, *around, [of_verbs.get(verb)] * size, marks, [of_labels.get(role) for role in roles]


class Conll05st(Dataset):
    """Nine rows of numbers, int64 [words] each; see `sample`. Only sentences for test are free, and they serve to train, too.

    Args:
        data_file: archive of the sentences; default: where the original keeps it, as for the other files.
        word_dict_file: text, a word in each line.
        verb_dict_file: text, a verb in each line.
        target_dict_file: text, a label in each line.
        emb_file: of trained vectors of words, whose path `get_embedding` returns.
        download: taken for the original's sake; nothing is downloaded.

    Attributes:
        word_dict, predicate_dict: number of each word, of each verb.
        label_dict: number of each label; the original has another order in every process.

    Raises:
        FluidValueError: a file is not there or damaged; a ValueError.

    Source:
        Carreras and Màrquez 2005, "Introduction to the CoNLL-2005 shared task: semantic role labeling".
    """

    def __init__(
        self,
        data_file: Any = None,
        word_dict_file: Any = None,
        verb_dict_file: Any = None,
        target_dict_file: Any = None,
        emb_file: Any = None,
        download: bool = True,
    ) -> None:
        path = archive(data_file)
        self.data_file = str(path)
        self.word_dict = numbers(beside(word_dict_file, "wordDict.txt"))
        self.predicate_dict = numbers(beside(verb_dict_file, "verbDict.txt"))
        self.label_dict = labels(beside(target_dict_file, "targetDict.txt"))
        self._embedding = emb_file
        self._samples = list(sentences(path))

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        found = sample(self._samples[idx], self.word_dict, self.predicate_dict, self.label_dict)
        return tuple(np.array(row) for row in found)

    def __len__(self) -> int:
        return len(self._samples)

    def get_dict(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return the numbers of words, verbs and labels."""
        return self.word_dict, self.predicate_dict, self.label_dict

    def get_embedding(self) -> str:
        """Return the path of trained vectors of words.

        Raises:
            FluidValueError: it is not there; a ValueError.
        """
        return str(beside(self._embedding, "emb"))
