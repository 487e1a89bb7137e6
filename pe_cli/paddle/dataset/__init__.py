"""dataset: readers of 1.x over files that are there, in the folder where the original keeps them; nothing is downloaded."""

from __future__ import annotations

from pe_cli.paddle.dataset import (
    cifar,
    common,
    conll05,
    image,
    imdb,
    imikolov,
    mnist,
    movielens,
    uci_housing,
    voc2012,
    wmt14,
    wmt16,
)
from pe_cli.paddle.reference_names import missing

__all__ = ["cifar", "common", "conll05", "image", "imdb", "imikolov", "mnist", "movielens", "uci_housing", "voc2012", "wmt14", "wmt16"]
__getattr__ = missing("paddle.dataset", lambda: globals())
