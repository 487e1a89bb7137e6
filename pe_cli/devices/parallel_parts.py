"""Splits tasks into parts that may run at the same time, and schedules each part by itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.native_loops import ANYONE
from pe_cli.kernels.calls import Call


@dataclass(frozen=True)
class Piece:
    """Neighbouring instructions that one thread runs.

    Args:
        home: thread that prefers it; `ANYONE` for none.
        begin, end: instructions of the tape.
        waits: earlier pieces that must be done before.
    """

    home: int
    begin: int
    end: int
    waits: frozenset[int]


def in_order(calls: Sequence[Call]) -> list[Call]:
    """Return a work's calls with those of each part side by side."""
    out: list[Call] = []
    for numbered, group in itertools.groupby(calls, key=lambda c: c.part is not None):
        found = list(group)
        out += sorted(found, key=lambda c: c.part or 0) if numbered else found
    return out


def settle(places: Sequence[int | None], calls: Sequence[Call]) -> list[Call | None] | None:
    """Return for the places of a work's calls those of another batch that come there; None where they can't.

    Args:
        places: the number of the part that each place is for, None for no part, as `in_order` has them.
        calls: of the other batch; `in_order`. Their order stays: what has no number comes alone, also to places of a first part, and
            numbered neighbours come to places of as many parts.
    """
    found: list[Call | None] = [None] * len(places)
    rows = _runs(places)
    for numbered, group in itertools.groupby(calls, key=lambda c: c.part is not None):
        left = list(group)
        parts = [list(part) for _, part in itertools.groupby(left, key=lambda c: c.part)]
        if numbered and len(parts) > 1:
            while rows and not _fits(rows[0], parts):
                del rows[0]
            for place, part in zip(rows[0] if rows else (), parts, strict=False):
                found[place.start : place.start + len(part)] = part
            left = [] if rows else left
            del rows[:1]
        while left and rows:
            first = rows[0][0]
            count = min(len(left), len(first))
            found[first.start : first.start + count], left = left[:count], left[count:]
            rows[0] = [first[count:]]  # what comes next waits for this: not beside it
            if not rows[0][0]:
                del rows[0]
        if left:
            return None
    return found


def _runs(places: Sequence[int | None]) -> list[list[range]]:
    """Return the places that are worked on one after the other: a range for no part, else one for each part."""
    rows: list[list[range]] = []
    begin = 0
    for numbered, group in itertools.groupby(places, key=lambda part: part is not None):
        row = []
        for _, part in itertools.groupby(group):
            end = begin + len(list(part))
            row.append(range(begin, end))
            begin = end
        assert numbered or len(row) == 1
        rows.append(row)
    return rows


def _fits(row: Sequence[range], parts: Sequence[Sequence[Call]]) -> bool:
    return 1 < len(parts) <= len(row) and all(len(part) <= len(place) for place, part in zip(row, parts, strict=False))


def pieces(
    homes: Sequence[int],
    calls: Sequence[Sequence[Call]],
    waits: Sequence[frozenset[int]],
    apart: Sequence[int] | None = None,
    threads: int = 1,
) -> list[Piece]:
    """Cut works into pieces: the parts of a group wait for what is before the group, and what is behind it for all of them.

    Where several threads serve one home, what is no part is anyone's: the thread that made it ready goes on with it.

    Args:
        homes: of each work.
        calls: of each work, as `in_order` gives them; they lie on the tape one work after the other.
        waits: works that each work waits for.
        apart: how far the homes of a work's neighbouring parts lie apart, from its own on; default: not at all.
        threads: in all; behind the last home comes the first.
    """
    out: list[Piece] = []
    last: list[frozenset[int]] = []  # the pieces of each work that nothing else of it waits for
    at = 0
    shared = threads > 1 and len(set(homes)) == 1
    for home, row, found, step in zip(homes, calls, waits, apart or [0] * len(homes), strict=True):
        before = frozenset().union(*(last[w] for w in found)) if found else frozenset()
        whole = ANYONE if shared else home
        if not row:
            # A work without calls still orders those around it.
            out.append(Piece(whole, at, at, before))
            before = frozenset({len(out) - 1})
        for numbered, group in itertools.groupby(row, key=lambda c: c.part is not None):
            first = len(out)
            for number, part in itertools.groupby(group, key=lambda c: c.part):
                end = at + len(list(part))
                # The same number goes to the same thread in every work, as what that part wrote before is in its caches.
                to = whole if number is None else (home + step * number) % threads if step else home
                out.append(Piece(to, at, end, before))
                at = end
            assert numbered or len(out) == first + 1
            before = frozenset(range(first, len(out)))
        last.append(before)
    return out
