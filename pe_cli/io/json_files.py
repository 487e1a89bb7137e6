"""Reads JSON files of a run, which a kill or a power failure may have truncated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pe_cli.io import strict_json
from pe_cli.io.regular_files import open_regular, read_regular
from pe_cli.io.tensors import data_error


def lines(path: Path) -> Iterator[dict[str, object]]:
    """Yield the objects of a file that has one JSON value per line; a torn line and what is no object are left out.

    Raises:
        PeError: DATA; the file can't be read.
    """
    try:
        with open_regular(path) as found:
            for line in found:
                with contextlib.suppress(ValueError):
                    value = strict_json.loads(line)
                    if isinstance(value, dict):
                        yield value
    except OSError as error:
        raise data_error(f"{path}: {(error.strerror or str(error)).lower()}") from None


def mapping(path: Path) -> dict[str, object]:
    """Return the one object of a file.

    Raises:
        PeError: DATA; the file is missing or damaged.
    """
    try:
        value = strict_json.loads(read_regular(path))
    except OSError as error:
        raise data_error(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise data_error(f"{path}: not whole JSON: {error}") from None
    if not isinstance(value, dict):
        raise data_error(f"{path}: not a JSON object")
    return value
