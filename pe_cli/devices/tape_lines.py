"""Calls that are resolved for their places on a tape: addresses, tables, and the words that zero-copy feeds patch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.checked_tape import Allowed
from pe_cli.devices.nested_tapes import NestedTapes
from pe_cli.devices.protocol import Work
from pe_cli.devices.tape import Instruction
from pe_cli.devices.zero_copy_feeds import Entry, Notes


class Line:
    """A call in its place on a tape, resolved.

    Attributes:
        instruction: it.
        notes, entries: the words that are addresses of buffers.
        tables, nested: memory that its arguments are addresses of.
        allowed: the memory that it may touch, in the mode that checks.
    """

    __slots__ = ("allowed", "entries", "instruction", "nested", "notes", "tables")
    instruction: Instruction

    def __init__(self) -> None:
        self.notes: Notes = ()
        self.entries: tuple[Entry, ...] = ()
        self.tables: tuple[np.ndarray[Any, Any], ...] = ()
        self.nested: tuple[NestedTapes, ...] = ()
        self.allowed: Allowed | None = None


@dataclass(frozen=True)
class Laid:
    """A work in its place on a tape.

    Args:
        work: which it is.
        lines: its calls.
        real: of each, whether it is a call of the work and not room for another one.
    """

    work: Work
    lines: Sequence[Line]
    real: tuple[bool, ...]
