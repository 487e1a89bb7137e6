"""What reads texts that may be packed, and descriptions of feeds."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from pe_cli.data import open_reader
from pe_cli.paddle.fluid.data_feed_desc import DataFeedDesc
from tests.fuzz.targets import refused, target

#: Bytes of what a file of a few kilobytes may unpack to and be read as; text may have 256 MiB.
ROOM = 1 << 28


@target
def packed_text(data: bytes, folder: Path) -> None:
    """A file of text, one row per line, or a table."""
    (folder / "f").write_bytes(data)
    encoding = ("auto", "auto", "latin-1", "utf-16")[zlib.crc32(data) % 4]
    with refused(folder, ROOM):
        found = open_reader("text", {"files": "f", "encoding": encoding}, folder)
        texts = found.cells(found.names[0]).strings()
        assert len(texts) == len(found)
    with refused(folder, ROOM):
        table = open_reader("table", {"files": "f", "format": "csv", "encoding": encoding}, folder)
        table.prepare(table.names, ())
        assert np.isfinite(table.cells(table.names[0]).numbers().values).sum() <= len(table)


@target
def feed_description(data: bytes, folder: Path) -> None:
    """A description of slots that a script reads."""
    (folder / "f.proto").write_bytes(data)
    with refused(folder):
        found = DataFeedDesc(folder / "f.proto")
        assert isinstance(found.desc(), str)
        assert found.batch_size >= 1 or found.slots is not None
