"""Which columns of which sources a model reads, and what each is used for."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ColumnUse:
    """What a model does with a column.

    Args:
        target: the model is taught it.
        dtype: of the feed that takes it.
        level: levels of the feed's sequences.
        shown: whether other columns are made of it.
    """

    target: bool = False
    dtype: str | None = None
    level: int = 0
    shown: bool = False


@dataclass(frozen=True)
class ColumnUsage:
    """The source of a feed.

    Args:
        names: fields that are joined along their last axis; mostly one.
        at: place in the config.
    """

    names: tuple[str, ...]
    at: Span | None = None

    @property
    def field(self) -> str:
        """Name of the field that the data set has for it."""
        return joined_name(self.names)


def joined_name(names: Sequence[str]) -> str:
    """Return the name of a field that several columns make together."""
    return " + ".join(names)
