"""What reads the archives of data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.text import WMT14, WMT16, Conll05st, Imdb, Imikolov, Movielens, UCIHousing
from pe_cli.paddle.text import conll05 as roles
from pe_cli.paddle.vision import archives
from pe_cli.paddle.vision.datasets import MNIST, VOC2012, Cifar10
from tests.fuzz.targets import refused, target

#: Bytes that an archive of a few kilobytes may take: a document of a data set has 64 MiB at most, and stands there packed and unpacked.
ROOM = 1 << 28
assert Conll05st


def _every(samples: Any) -> None:
    for i in range(min(len(samples), 3)):
        found = samples[i]
        assert isinstance(found, tuple)


def _beside(path: Path) -> Path:
    """Return a file of as many labels as there may be pictures."""
    other = path.with_name("labels.idx")
    other.write_bytes(b"\0\0\x08\1\0\0\0\2\1\1")
    return other


_READ: dict[bytes, Callable[[Path], Any]] = {
    b"imdb": lambda path: Imdb(path, cutoff=0),
    b"imikolov": lambda path: Imikolov(path, "NGRAM", 2, min_word_freq=0),
    b"wmt14": lambda path: WMT14(path, dict_size=4),
    b"wmt16": lambda path: WMT16(path, src_dict_size=4, trg_dict_size=4),
    b"movielens": lambda path: Movielens(path),
    b"cifar": lambda path: Cifar10(path),
    b"voc": lambda path: VOC2012(path),
    b"mnist": lambda path: MNIST(path, _beside(path)),
    b"housing": lambda path: UCIHousing(path),
}
_LISTED: dict[bytes, Callable[[Path], Iterable[Any]]] = {
    b"conll05": roles.sentences,
    b"matlab": lambda path: np.asarray(archives._matrix(path, "labels")).tolist(),
    b"words": lambda path: roles.numbers(path),
}


@target
def archive(data: bytes, folder: Path) -> None:
    """A file of a data set, whose name is the first line."""
    name, _, contents = data.partition(b"\n")
    path = folder / "archive"
    path.write_bytes(contents)
    with refused(folder, ROOM):
        if name in _LISTED:
            list(_LISTED[name](path))
        else:
            _every(_READ.get(name, _READ[b"cifar"])(path))
