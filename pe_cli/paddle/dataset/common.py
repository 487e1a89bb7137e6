"""common: where files lie, and readers of data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pe_cli.core.errors import ExitCode
from pe_cli.paddle.dataset_files import HOME
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.reference_names import missing

DATA_HOME = str(Path(HOME).expanduser())


def md5file(fname: Any) -> str:
    """Return the MD5 of a file as hex digits, as data sets are published with."""
    with Path(fname).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """Return the path of a file that lies where the original would have put it; nothing is downloaded.

    Args:
        url: where the original gets it; its last part is the name of the file.
        module_name: folder below DATA_HOME.
        md5sum: of the file, as hex digits.
        save_name: another name of the file.

    Raises:
        FluidValueError: it is not there, or has another MD5; a ValueError.
    """
    path = Path(DATA_HOME) / module_name / (save_name or url.rpartition("/")[2])
    if not path.is_file():
        raise FluidValueError(f"there is no file {path}, and nothing is downloaded", hint=f"put {url} there", code=ExitCode.DATA)
    found = md5file(path)
    if found != md5sum:
        raise FluidValueError(f"{path} has the MD5 {found}, and {md5sum} is wanted", hint=f"put {url} there", code=ExitCode.DATA)
    return str(path)


def reader(make: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of a data set's samples, which is made where it is first read."""

    def samples() -> Iterator[Any]:
        found = make()
        return (found[i] for i in range(len(found)))

    return samples


__all__ = ["DATA_HOME", "download", "md5file", "reader"]
__getattr__ = missing("paddle.dataset.common", lambda: globals())
