"""Tables that are read as a stream: the same samples as of a table that is read as a whole, whatever the format and the order."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pe_cli.config.spec import Preparation
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import Feed, Loader, open_reader
from pe_cli.data.array_dataset import is_table
from pe_cli.data.column import discover
from pe_cli.data.column_usage import ColumnUsage, ColumnUse
from pe_cli.data.fields import FieldDataset
from pe_cli.data.prepare import Prepared
from pe_cli.data.tables import csv, jsonl, stream

ROWS = 3000
WORDS = ["red", "green", "blue"]


def values() -> dict[str, list[Any]]:
    """Return a table's columns, with missing cells."""
    number = [None if i % 50 == 7 else i * 0.5 for i in range(ROWS)]
    return {"x": number, "colour": [WORDS[i * i % 3] for i in range(ROWS)], "tags": [" ".join(WORDS[: i % 4]) for i in range(ROWS)]}


def write(path: Path, kind: str, columns: dict[str, list[Any]]) -> None:
    """Write a file of a kind."""
    if kind == "csv":
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    elif kind == "jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path, row_group_size=170)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.table(columns).schema) as writer:
            writer.write_table(pa.table(columns), max_chunksize=170)


def shards(folder: Path, kind: str, count: int = 3) -> list[str]:
    """Write a table in several files of a kind; return their names."""
    every, names = values(), []
    for i in range(count):
        names.append(f"part-{i}.{kind}")
        first, last = ROWS * i // count, ROWS * (i + 1) // count
        write(folder / names[-1], kind, {name: cells[first:last] for name, cells in every.items()})
    return names


def samples(folder: Path, options: dict[str, Any]) -> FieldDataset:
    """Return the samples of a table, encoded."""
    table = open_reader("table", options, folder)
    assert is_table(table)
    uses = {name: ColumnUse() for name in ("x", "colour", "tags")}
    columns = {"x": ("number", {"missing": "median", "scale": "standard"}), "colour": ("category", {}), "tags": ("text", {})}
    prepared = Prepared({}, Preparation(), folder, uses)
    prepared.sources.data = {"train": None}  # type: ignore[dict-item]
    prepared.sources.table = lambda use: table  # type: ignore[method-assign]
    prepared.sources.rows = lambda use: None  # type: ignore[method-assign]
    prepared._declared = {name: (kind, discover()[kind].options.model_validate(given)) for name, (kind, given) in columns.items()}
    fields = prepared.encoded(table, [ColumnUsage((name,)) for name in uses], "train")
    return FieldDataset(fields)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stretches be small, and several of them fit into memory at a time."""
    monkeypatch.setattr(csv, "STRETCH_BYTES", 4096)
    monkeypatch.setattr(jsonl, "CHUNK", 4096)
    monkeypatch.setattr("pe_cli.data.stream_fields.most_of_one", lambda: 20_000)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_a_stream_gives_the_samples_of_the_table(kind: str, tmp_path: Path) -> None:
    names = shards(tmp_path, kind)
    whole, streamed = (samples(tmp_path, {"files": names, "stream": on, "skip": 5, "limit": 2900}) for on in (False, True))
    pieces = streamed.columns["x"].pieces  # type: ignore[attr-defined]
    assert len(pieces.starts) > 4
    rows = np.random.default_rng(0).permutation(2900)[:700]
    expected, found = whole.take(rows), streamed.take(rows)
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in expected.items()
    }
    assert 1 <= len(pieces._kept) < len(pieces.starts) - 1, "what was read first is forgotten"


def test_columns_learn_from_a_sample_of_a_long_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SAMPLE", 600)
    table = open_reader("table", {"files": shards(tmp_path, "csv"), "stream": True}, tmp_path)
    assert isinstance(table, stream.StreamTable)
    rows = table.sample_rows
    assert 500 <= len(rows) <= 600
    assert rows.max() > 2500, "from the first row to the last"
    assert table.sample.cells("colour").text(400) == table.cells("colour").text(int(rows[400]))


def test_a_bad_cell_is_told_with_file_and_line_when_it_is_reached(tmp_path: Path) -> None:
    names = shards(tmp_path, "csv")
    streamed = samples(tmp_path, {"files": names, "stream": True})
    path = tmp_path / names[2]
    stamp = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1250.0,", b"1250.x,"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    streamed.take(np.arange(10))
    with pytest.raises(PeError, match=r"part-2\.csv:502") as found:
        streamed.take(np.array([2500]))
    assert found.value.code == ExitCode.DATA


def test_a_file_that_changes_ends_the_stream(tmp_path: Path) -> None:
    names = shards(tmp_path, "parquet")
    streamed = samples(tmp_path, {"files": names, "stream": True})
    write(tmp_path / names[2], "parquet", {name: cells[:900] for name, cells in values().items()})
    with pytest.raises(PeError, match="was changed while it is read") as found:
        streamed.take(np.array([2900]))
    assert found.value.code == ExitCode.DATA


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda path: path.unlink(), "no such file", id="missing"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-30]), "no readable Parquet file", id="cut off"),
        pytest.param(lambda path: pq.write_table(pa.table({"y": [1]}), path), "no column 'x'", id="another schema"),
        pytest.param(lambda path: path.write_bytes(b""), "is empty", id="empty"),
    ],
)
def test_a_bad_shard_is_told_at_the_start(tmp_path: Path, spoil: Any, said: str) -> None:
    names = shards(tmp_path, "parquet")
    spoil(tmp_path / names[1])
    with pytest.raises(PeError, match=said) as found:
        open_reader("table", {"files": names, "stream": True}, tmp_path)
    assert found.value.code == ExitCode.DATA
    assert "part-1" in found.value.message


def test_a_shard_that_is_listed_twice_is_told(tmp_path: Path) -> None:
    names = shards(tmp_path, "csv")
    with pytest.raises(PeError, match="is read twice") as found:
        open_reader("table", {"files": [*names, "part-*.csv"], "stream": True}, tmp_path)
    assert found.value.code == ExitCode.DATA


# --- processes and resuming -------------------------------------------------------------------------------------------


def sequence(folder: Path, epoch: int, begin: int, processes: int, rank: int) -> tuple[dict[int, list[float]], int]:
    """Return the rows of a process by batch, and how many bytes of the files it has read for them."""
    dataset = samples(folder, {"files": ["part-*.csv"], "stream": True})
    read = []
    plain = csv.Source.read_into

    def counted(source: Any, fd: int, buffer: memoryview, start: int, size: int) -> None:
        read.append(size)
        plain(source, fd, buffer, start, size)

    def share(count: int) -> list[slice]:
        return [slice(count * rank // processes, count * (rank + 1) // processes)]

    types = {"x": dataset.fields["x"]}
    loader = Loader(
        dataset, {"x": Feed("x")}, types, 32, shuffle=True, window=320, seed=3, prefetch=0, share=share if processes > 1 else None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv.Source, "read_into", counted)
        batches = {begin + i: batch["x"].ravel().tolist() for i, batch in enumerate(loader.epoch(epoch, begin))}
    return batches, sum(read)


def together(parts: Iterable[list[float]]) -> list[float]:
    """Return the rows of all processes in order."""
    return list(itertools.chain(*parts))


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_processes_read_their_own_and_together_the_rows_of_one(processes: int, tmp_path: Path) -> None:
    shards(tmp_path, "csv")
    whole, everything = sequence(tmp_path, 1, 0, 1, 0)
    dealt = [sequence(tmp_path, 1, 0, processes, rank) for rank in range(processes)]
    assert {batch: together(rows[batch] for rows, _ in dealt) for batch in whole} == whole
    size = sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
    assert everything >= size
    assert max(read for _, read in dealt) < everything / processes * 1.6, "its own lanes, and stretches that are cut"


def test_a_run_goes_on_at_the_row_with_another_number_of_processes(tmp_path: Path) -> None:
    shards(tmp_path, "csv")
    whole, _ = sequence(tmp_path, 2, 0, 1, 0)
    before = [sequence(tmp_path, 2, 0, 2, rank)[0] for rank in range(2)]
    after = [sequence(tmp_path, 2, 40, 4, rank)[0] for rank in range(4)]
    found = {batch: together(rows[batch] for rows in before) for batch in range(40)}
    found |= {batch: together(rows[batch] for rows in after) for batch in range(40, len(whole))}
    assert found == whole
