"""common: where files lie, and readers of data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pe_cli.paddle.dataset_files import HOME
from pe_cli.paddle.reference_names import missing

DATA_HOME = str(Path(HOME).expanduser())


def md5file(fname: Any) -> str:
    """Return the MD5 of a file as hex digits, as data sets are published with."""
    with Path(fname).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def reader(make: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of a data set's samples, which is made where it is first read."""

    def samples() -> Iterator[Any]:
        found = make()
        return (found[i] for i in range(len(found)))

    return samples


__all__ = ["DATA_HOME", "md5file", "reader"]
__getattr__ = missing("paddle.dataset.common", lambda: globals())
