"""The order in which values of several devices are added: a balanced binary tree over the devices' numbers.

Where their number is no power of two, the first ones are added in pairs, so many that a power of two is left. Devices without
samples are left out: what they would be added to stays as it is. A process whose number of devices is a power of two holds whole branches
of the tree, so that its own sum is one that the tree has, however the devices are shared out among processes.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.language import SIZE, helper, pointer

#: Elements at a time: they stay in the first cache while they are added up.
BLOCK = 2048
#: A device, or two branches.
Branch = int | tuple["Branch", "Branch"]


def tree(count: int) -> Branch:
    """Return the tree over so many devices, at least 1.

    >>> tree(4), tree(6)
    (((0, 1), (2, 3)), (((0, 1), (2, 3)), (4, 5)))
    """
    pairs = count - (1 << (count.bit_length() - 1))
    row: list[Branch] = [(2 * i, 2 * i + 1) for i in range(pairs)]
    row += range(2 * pairs, count)
    while len(row) > 1:
        row = [(row[i], row[i + 1]) for i in range(0, len(row), 2)]
    return row[0]


@dataclass(frozen=True)
class Order:
    """Additions of rows, for `add_rows`.

    Args:
        merges: (into, first, second) rows in order: those of the devices that have samples, then those of the room. The last is the sum.
        rooms: rows of the room that are used.
    """

    merges: tuple[tuple[int, int, int], ...] = ()
    rooms: int = 0

    @property
    def words(self) -> tuple[int, ...]:
        """What a kernel is told: the number of merges, then their rows."""
        return len(self.merges), *(row for merge in self.merges for row in merge)


def order_of(count: int, active: Collection[int], *, in_place: bool = False) -> Order:
    """Return the additions that sum the rows of the active devices among a number of devices.

    Args:
        count: devices.
        active: those that have a row, in ascending order.
        in_place: the first row may be overwritten, and is the sum at last; else nothing but the room is written.
    """
    rows = {device: row for row, device in enumerate(active)}
    merges: list[tuple[int, int, int]] = []
    free: list[int] = []
    used = 0

    def room(left: int, right: int) -> int:
        nonlocal used
        if in_place and left == 0:
            into = 0
        elif left >= len(rows):
            into = left
        elif right >= len(rows):
            return right
        elif free:
            return free.pop()
        else:
            used += 1
            return len(rows) + used - 1
        if right >= len(rows):
            free.append(right)
        return into

    def walk(branch: Branch) -> int | None:
        if not isinstance(branch, tuple):
            return rows.get(branch)
        left, right = walk(branch[0]), walk(branch[1])
        if left is None or right is None:
            return right if left is None else left
        into = room(left, right)
        merges.append((into, left, right))
        return into

    walk(tree(count))
    return Order(tuple(merges), used)


def fold(count: int, values: Mapping[int, Any]) -> Any:
    """Return the sum of what some of so many devices have, at least one, in the order of the tree.

    >>> fold(4, {0: 1e16, 1: 1.0, 2: 1.0, 3: 1.0})
    1.0000000000000002e+16
    """
    rows = dict(enumerate(values.values()))
    for into, left, right in _merges(count, tuple(values)):
        rows[into] = rows[left] + rows[right]
    return rows[0]


@functools.lru_cache(maxsize=256)
def _merges(count: int, active: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return the additions of `fold`, which every step does again."""
    return order_of(count, active, in_place=True).merges


@helper
def row_at(table, base, rows, row, low, room):
    """Return the address of a row: one of a table, from its element `low` on, or one of the room."""
    return table[base + row] + SIZE * low if row < rows else room + SIZE * BLOCK * (row - rows)


@helper
def add_rows(table, base, rows, order, low, n, room):
    """Add up n elements of rows from low on, and return the address of the sum: in the room, or the row that is left where there is one.

    Args:
        table: addresses of rows, the first at index base.
        rows: how many.
        order: words of an `Order`.
        room: address of BLOCK elements for each row that the order uses.
    """
    found = row_at(table, base, rows, 0, low, room)
    for m in range(order[0]):
        found = row_at(table, base, rows, order[1 + 3 * m], low, room)
        into, x = pointer(found), pointer(row_at(table, base, rows, order[2 + 3 * m], low, room))
        y = pointer(row_at(table, base, rows, order[3 + 3 * m], low, room))
        for i in range(n):
            into[i] = x[i] + y[i]
    return found
