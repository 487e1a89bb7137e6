"""text: data sets of tables and texts, read from files that are there; nothing is downloaded."""

from __future__ import annotations

from pe_cli.paddle.names import missing
from pe_cli.paddle.text.housing import UCIHousing

__all__ = ["UCIHousing"]
__getattr__ = missing("paddle.text", lambda: globals())
