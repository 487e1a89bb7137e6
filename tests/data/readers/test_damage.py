"""Damaged files: whatever the bytes are, a reader gives data or a PeError, nothing else."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from pe_cli.core.errors import PeError
from pe_cli.data.array_dataset import is_table


def write_npy(path):
    with path.open("wb") as file:
        np.save(file, np.arange(24, dtype=np.float32).reshape(4, 6))


def write_npz(path):
    with path.open("wb") as file:
        np.savez(file, a=np.arange(6), b=np.zeros((6, 2)))


def write_npz_compressed(path):
    with path.open("wb") as file:
        np.savez_compressed(file, a=np.arange(6), b=np.zeros((6, 2)))


def write_idx(path):
    path.write_bytes(struct.pack(">HBB3I", 0, 8, 3, 4, 2, 2) + bytes(range(16)))


def write_idx_gz(path):
    path.write_bytes(gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 4, 2, 2) + bytes(range(16)), mtime=0))


def write_csv(path):
    path.write_text("a,b,kind\n" + "".join(f"{i},{i / 3},c{i % 2}\n" for i in range(9)))


def write_quoted(path):
    path.write_bytes(b'a,b,kind\n' + b"".join(b'%d,"%d ""x""",c%d\r\n' % (i, i, i % 2) for i in range(9)))


def write_csv_gz(path):
    path.write_bytes(gzip.compress(b"a,b\n" + b"".join(b"%d,x%d\n" % (i, i % 3) for i in range(99)), mtime=0))


def write_csv_zst(path):
    path.write_bytes(pa.compress(b"a,b\n" + b"".join(b"%d,x%d\n" % (i, i % 3) for i in range(99)), codec="zstd", asbytes=True))


def write_jsonl(path):
    path.write_text("".join(f'{{"a": {i}, "b": ["x", {{"c": null}}]}}\n' for i in range(9)))


ARROW = pa.table({"a": range(9), "b": [f"x{i % 3}" for i in range(9)], "c": [[i] for i in range(9)]})


def write_parquet(path):
    pyarrow.parquet.write_table(ARROW, path)


def write_feather(path):
    pyarrow.feather.write_feather(ARROW, path, compression="zstd")


def write_stream(path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, ARROW.schema) as out:
        out.write_table(ARROW)


def use(data):
    """Take samples, or read all columns of a table in every way."""
    if not is_table(data):
        data.take(np.array([len(data) - 1, 0]))
        return
    data.prepare(data.names, data.names)
    for name in data.names:
        strings = data.cells(name).strings()
        assert len(strings) == len(data.cells(name).numbers().values) == len(data.cells(name).codes().codes) == len(data)
        assert data.error(len(data) - 1, name, f"'{data.cells(name).text(len(data) - 1)}' is wrong").render()


@pytest.mark.parametrize("rounds", [100])
@pytest.mark.parametrize(
    ("write", "kind", "options"),
    [
        pytest.param(write_npy, "npy", {"files": {"x": "f"}}, id="npy"),
        pytest.param(write_npz, "npz", {"file": "f"}, id="npz"),
        pytest.param(write_npz_compressed, "npz", {"file": "f"}, id="compressed npz"),
        pytest.param(write_idx, "idx", {"files": {"x": "f"}}, id="idx"),
        pytest.param(write_idx_gz, "idx", {"files": {"x": "f"}}, id="gzipped idx"),
        pytest.param(write_csv, "csv", {"file": "f", "label": "kind"}, id="csv"),
        pytest.param(write_quoted, "table", {"files": "f"}, id="a table with quotes"),
        pytest.param(write_csv_gz, "table", {"files": "f"}, id="a table packed by gzip"),
        pytest.param(write_csv_zst, "table", {"files": "f"}, id="a table packed by zstd"),
        pytest.param(write_jsonl, "table", {"files": "f"}, id="JSON lines"),
        pytest.param(write_parquet, "table", {"files": "f"}, id="Parquet"),
        pytest.param(write_feather, "table", {"files": "f"}, id="Feather"),
        pytest.param(write_stream, "table", {"files": "f", "format": "arrow"}, id="a stream of Arrow"),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading .* created on Python 2:UserWarning")
def test_random_damage(read, tmp_path, write, kind, options, rounds):
    path = tmp_path / "f"
    write(path)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    assert len(read(kind, **options)) > 0
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(rounds):
        bytes_ = whole.copy()
        # half of the damage near the ends, where headers and directories are
        reach = len(bytes_) if random.random() < 0.5 else min(len(bytes_), 130)
        places = random.integers(0, reach, random.integers(1, 4))
        places = len(bytes_) - 1 - places if random.random() < 0.5 else places
        bytes_[places] = random.integers(0, 256, len(places), np.uint8)
        path.write_bytes(bytes_[: random.integers(0, len(bytes_))] if random.random() < 0.2 else bytes_)
        try:
            use(read(kind, **options))
        except PeError:
            refused += 1
    assert refused > 0
