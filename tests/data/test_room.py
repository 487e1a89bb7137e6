"""Columns stay in memory as long as all of them together take little of it, and lie in files from then on."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import spill_storage as module
from pe_cli.data.spill_storage import room


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process 8,000 bytes: 1,000 for a column, 2,000 for all."""
    monkeypatch.setattr(module, "memory_of_one", lambda: 8000)
    monkeypatch.setattr(module, "_HELD", module._Held())


def in_file(array: np.ndarray) -> bool:
    return isinstance(array, np.memmap)


@pytest.mark.usefixtures("little")
def test_all_columns_together_have_a_share():
    columns = [room((100,), "float64") for _ in range(5)]
    assert [in_file(column) for column in columns] == [False, False, True, True, True]
    for i, column in enumerate(columns):
        assert not column.any()
        column[:] = i
    assert [column[99] for column in columns] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("little")
def test_what_is_gone_makes_room_also_where_a_part_of_it_lived_on():
    first = room((125,), "float64")
    part = first[3:5]
    second = room((125,), "float64")
    assert not in_file(first)
    assert not in_file(second)
    del first
    gc.collect()
    assert in_file(room((1,), "uint8")), "a part holds the whole"
    del part
    gc.collect()
    assert not in_file(room((125,), "float64"))


@pytest.mark.usefixtures("little")
def test_a_large_column_lies_in_a_file_by_itself():
    assert in_file(room((1001,), "uint8"))
    assert not in_file(room((1000,), "uint8"))


@pytest.mark.usefixtures("little")
def test_a_disk_without_room_is_named(monkeypatch: pytest.MonkeyPatch, disk):
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    with pytest.raises(PeError, match="no room for the column of 8,000,000 bytes") as found:
        room((1_000_000,), "float64", "the column")[:] = 1
    assert found.value.code == ExitCode.DEVICE


@pytest.mark.usefixtures("little")
def test_a_config_says_how_much_memory_columns_take():
    module.bound_memory(400)
    assert [in_file(room((size,), "uint8")) for size in (200, 201)] == [False, True]
    module.bound_memory(None)
    assert not in_file(room((1000,), "uint8"))
