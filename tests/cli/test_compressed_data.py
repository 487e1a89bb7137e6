"""pe check of packed data: it looks at the beginning of a file that unpacks to much, takes little memory, and says so."""

from __future__ import annotations

import gzip
import importlib.util
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli import check
from tests import needs
from tests.cli.conftest import CONFIG, Pe

#: Samples of zeros that unpack to 32 MB.
MANY = 2_000_000
DATA = CONFIG[CONFIG.index("data:") : CONFIG.index("feeds:")]


def npz(folder: Path) -> str:
    np.savez_compressed(folder / "many.npz", x=np.zeros((MANY, 4), np.float32), y=np.zeros((MANY, 1), np.float32))
    return "data:\n  train: {reader: npz, file: many.npz}\n  eval: {reader: npz, file: many.npz, skip: 10, limit: 16}\n"


def idx(folder: Path) -> str:
    for name, width in (("x", 4), ("y", 1)):
        with gzip.open(folder / f"{name}.gz", "wb", compresslevel=1) as file:
            file.write(struct.pack(">HBB2I", 0, 0x0D, 2, MANY, width) + bytes(4 * width * MANY))
    return "data:\n  train: {reader: idx, files: {x: x.gz, y: y.gz}}\n"


def csv(folder: Path) -> str:
    with gzip.open(folder / "many.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"x,y\n" + b"0.5,0.25\n" * (MANY // 2))
    return "data:\n  source: {reader: table, files: many.csv.gz, skip: 500}\n  split: {eval: 0.5}\n"


def parquet(folder: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: np.zeros(MANY) for name in ("x", "y")}), folder / "many.parquet")
    return "data:\n  source: {reader: table, files: many.parquet}\n  split: {eval: 0.5}\n"


@pytest.mark.parametrize("pack", [npz, idx, csv, parquet], ids=lambda f: f.__name__)
def test_check_only_looks_into_a_packed_file(pack, pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if pack is parquet and importlib.util.find_spec("pyarrow") is None:
        needs.skip("pyarrow", "pip install '.[tables]'")
    monkeypatch.setattr(check, "LOOKED", 1 << 20)
    config.write_text(config.read_text().replace(DATA, pack(config.parent)))
    assert pe("check", config, "-o", "data.train=x").code == 2  # all modules are imported
    tracemalloc.start()
    said = pe("check", config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said.code == 0, said.err
    assert "unpacks to more than 1 MiB: only its beginning was looked at" in said.out
    assert f"pe data {config} reads all" in said.out
    assert peak < 12 << 20, peak
    assert pe("check", config, "-o", "feeds.x=z").code in (2, 3), "names are compared, though"
