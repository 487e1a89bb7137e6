"""Damaged files: whatever the bytes are, a reader gives data or a PeError, nothing else."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from pe_cli.core.errors import PeError


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
            data = read(kind, **options)
            data.take(np.array([len(data) - 1, 0]))
        except PeError:
            refused += 1
    assert refused > 0
