"""Tells the format of a table by the name of its file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Format = Literal["auto", "csv", "tsv", "jsonl", "parquet", "arrow"]
#: Formats by the end of a file's name, without that of a packed one.
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
#: Ends of the names of packed files.
PACKED = (".gz", ".zst", ".zstd")


def named_format(name: str) -> Format:
    """Return the format that the end of a file's name says, before that of a packed file; auto where it says none.

    >>> named_format("people.CSV.gz"), named_format("people.txt")
    ('csv', 'auto')
    """
    name = name.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    return SUFFIXES.get(Path(name).suffix, "auto")
