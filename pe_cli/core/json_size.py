"""Counts what a JSON text holds before it is parsed: parsed values may take a hundred times the memory of their text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

_BLOCK = 256 << 10
_MARKS = b'{}[],:"'
_OTHERS = bytes(set(range(256)) - set(_MARKS))


@dataclass(frozen=True)
class Counted:
    """What a body of JSON has.

    Args:
        objects: and lists.
        members: of objects.
        outer: members of the outermost object.
        values: of all kinds, at least.
        depth: lists and objects in one another.
    """

    objects: int
    members: int
    outer: int
    values: int
    depth: int


# Parsing first and counting then would be too late: a body of a megabyte may take a hundred of memory.
def count(body: bytes | bytearray) -> Counted:
    r"""Count what a text of JSON has without reading it; of what is no JSON, up to where that is seen, at least as much.

    >>> count(b'{"rows": [{"a": 1, "b": "{,:\""}]}')
    Counted(objects=2, members=3, outer=1, values=7, depth=3)
    """
    if b"\\" in body:  # which stands in texts only
        # Escaped quotes and backslashes go, so that every quote that is left begins or ends a text.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(body.translate(None, _OTHERS), np.uint8)
    found, level, deepest, inside, outer = np.zeros(256, np.int64), 0, 0, 0, 0
    # Block by block, so that counting takes a bounded amount of memory itself.
    for start in range(0, len(marks), _BLOCK):
        part = marks[start : start + _BLOCK]
        quotes = part == ord('"')
        within = np.cumsum(quotes, dtype=np.int32) + inside
        inside = int(within[-1]) & 1
        part = part[(within & 1 == 0) & ~quotes]
        found += np.bincount(part, minlength=256)
        steps = np.cumsum(_steps(part), dtype=np.int32) + level
        if len(steps):
            deepest, level = max(deepest, int(steps.max())), int(steps[-1])
            # A colon at depth 1 is a key of the outermost object: what a server's limits on rows are about.
            outer += int(((part == ord(":")) & (steps == 1)).sum())
    objects, members = int(found[ord("{")]), int(found[ord(":")])
    return Counted(objects, members, outer, objects + members + int(found[ord("[")] + found[ord(",")]), deepest)


def _steps(marks: NDArray[np.uint8]) -> NDArray[np.int8]:
    opens, closes = (marks == ord("{")) | (marks == ord("[")), (marks == ord("}")) | (marks == ord("]"))
    steps: NDArray[np.int8] = opens.astype(np.int8) - closes.astype(np.int8)
    return steps
