"""Streams of files elsewhere: more of them than the cache holds, each fetched when its rows are needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import open_reader
from pe_cli.data.remote.file_cache import RemoteFiles
from pe_cli.data.tables.stream import StreamTable
from tests.data.remote.conftest import _no_pauses
from tests.data.remote.file_server import Served, served

__all__ = ["_no_pauses", "served"]


def shards(served: Served, count: int = 4) -> list[str]:
    """Put tables of 100 rows on the server; return their addresses."""
    for i in range(count):
        rows = "".join(f"{100 * i + k},word{k % 7}\n" for k in range(100))
        served.files[f"/part-{i}.csv"] = f"a,b\n{rows}".encode()
    return [f"{served.address}/part-{i}.csv" for i in range(count)]


def stream(served: Served, folder: Path, urls: list[str], most: int) -> StreamTable:
    """Open the tables as a stream, with a cache of a size."""
    table = open_reader("table", {"files": urls, "stream": True}, folder, remote=RemoteFiles(most, folder / "cache"))
    assert isinstance(table, StreamTable)
    return table


def test_more_shards_than_the_cache_holds_are_read(served: Served, tmp_path: Path) -> None:
    urls = shards(served)
    most = 2 * len(served.files["/part-0.csv"]) + 500
    table = stream(served, tmp_path, urls, most)
    assert len(table) == 400
    for _ in range(2):
        for i in range(len(table.stretches) - 1):
            piece = table.piece(i)
            assert piece.cells("a").numbers().values.tolist() == list(range(100 * i, 100 * i + 100))
            held = sum(path.stat().st_size for path in (tmp_path / "cache").glob("*/*.csv"))
            assert held <= most
    assert len([path for path, status, _ in served.asked if status == 200]) > 8, "fetched again when they are needed again"


def test_a_shard_that_goes_away_is_told_when_it_is_needed(served: Served, tmp_path: Path) -> None:
    urls = shards(served)
    table = stream(served, tmp_path, urls, len(served.files["/part-0.csv"]) + 500)
    del served.files["/part-1.csv"]
    with pytest.raises(PeError, match=r"part-1\.csv: the server answers 404") as found:
        table.piece(1).cells("a").numbers()
    assert found.value.code == ExitCode.DATA


def test_an_address_that_is_listed_twice_is_told(served: Served, tmp_path: Path) -> None:
    urls = shards(served, 1)
    with pytest.raises(PeError, match="is read twice"):
        stream(served, tmp_path, [*urls, *urls], 10_000)
