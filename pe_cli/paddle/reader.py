"""`paddle.reader`: functions that combine, shuffle and batch readers."""

from __future__ import annotations

from pe_cli.paddle.fluid.decorators import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)

__all__ = [
    "ComposeNotAligned", "buffered", "cache", "chain", "compose", "firstn", "map_readers", "multiprocess_reader", "shuffle", "xmap_readers",
]  # fmt: skip
