"""Sizes in bytes: `256 MB`, `1.5 GiB`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from pe_cli.core.lazy_dataclass import dataclass

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TEXT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) *(KB|MB|GB|TB|KiB|MiB|GiB|TiB)")


@dataclass(frozen=True)
class ByteSize:
    """A size.

    Args:
        bytes: at least 1.
        text: as written.
    """

    bytes: int
    text: str

    def __str__(self) -> str:
        return self.text


def parse_size(value: object) -> ByteSize:
    """Return the size that a config writes.

    Raises:
        ValueError: not of the form `256 MB`; the sentence goes on after the name of the key.

    >>> parse_size("1.5 GB").bytes, parse_size("2 MiB").bytes
    (1500000000, 2097152)
    """
    if isinstance(value, ByteSize):
        return value
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if found is None or size < 1:
        raise ValueError("must be a size like '256 MB' or '10 GB'", "units are KB, MB, GB, TB, and KiB, MiB, GiB, TiB in powers of 1024")
    return ByteSize(size, found[0])


SizeField = Annotated[
    ByteSize,
    PlainValidator(parse_size),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": f"^{_TEXT.pattern}$", "examples": ["256 MB", "10 GB"]}),
]
