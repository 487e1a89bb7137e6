"""The order of addition: one tree, whoever holds which of its branches."""

from __future__ import annotations

import pytest

from pe_cli.kernels.math.tree_sum import order_of, tree


def written(count: int, active: range | list[int], name=str) -> str:
    """Return the sum as it is written, done by the order's own rows."""
    rows = {row: name(device) for row, device in enumerate(active)}
    found = rows.get(0, "")
    for into, left, right in order_of(count, active).merges:
        found = rows[into] = f"({rows[left]}+{rows[right]})"
    return found


def spelled(branch) -> str:
    return f"({spelled(branch[0])}+{spelled(branch[1])})" if isinstance(branch, tuple) else str(branch)


@pytest.mark.parametrize("count", range(1, 34))
def test_rows_are_added_as_the_tree_says(count: int) -> None:
    assert written(count, range(count)) == spelled(tree(count))
    assert order_of(count, range(count), in_place=True).merges == () or order_of(count, range(count), in_place=True).merges[-1][0] == 0


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("processes", range(1, 10))
def test_processes_with_a_power_of_two_of_devices_hold_branches(processes: int, devices: int) -> None:
    def process(rank: int) -> str:
        return written(devices, range(devices), lambda d: str(rank * devices + d))

    assert written(processes, range(processes), process) == written(processes * devices, range(processes * devices))


def test_rooms_are_few() -> None:
    assert [order_of(n, range(n), in_place=True).rooms for n in (1, 2, 3, 4, 8, 64)] == [0, 0, 0, 1, 2, 5]
