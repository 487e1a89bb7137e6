"""The idx reader."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data import spill_storage


def idx(kind, shape, elements):
    return struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + elements


PACKED = [pytest.param(lambda b: b, id="raw"), pytest.param(gzip.compress, id="gzipped")]


@pytest.mark.parametrize("pack", PACKED)
def test_values_of_hand_made_files(read, tmp_path, pack):
    (tmp_path / "images").write_bytes(pack(idx(0x08, (2, 2, 3), bytes(range(12)))))
    (tmp_path / "labels").write_bytes(pack(idx(0x08, (2,), b"\x07\x02")))
    data = read("idx", files={"image": "images", "label": "labels"})
    assert data.fields == {"image": TensorType((2, 3), "uint8"), "label": TensorType((), "uint8")}
    batch = data.take(np.array([1]))
    assert batch["image"].tolist() == [[[6, 7, 8], [9, 10, 11]]]
    assert batch["label"].tolist() == [2]


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize(
    ("kind", "packing", "values", "dtype"),
    [
        pytest.param(0x08, ">2B", [0, 255], "uint8", id="unsigned byte"),
        pytest.param(0x09, ">2b", [-128, 127], "int32", id="signed byte"),
        pytest.param(0x0B, ">2h", [-300, 300], "int32", id="short"),
        pytest.param(0x0C, ">2i", [-(2**31), 2**31 - 1], "int32", id="int"),
        pytest.param(0x0D, ">2f", [-0.5, 1.25], "float32", id="float"),
        pytest.param(0x0E, ">2d", [-0.1, 1e300], "float64", id="double"),
    ],
)
def test_element_types(read, tmp_path, pack, kind, packing, values, dtype):
    (tmp_path / "x").write_bytes(pack(idx(kind, (2,), struct.pack(packing, *values))))
    rows = read("idx", files={"x": "x"}).take(np.array([0, 1]))["x"]
    assert rows.dtype == np.dtype(dtype)
    assert rows.tolist() == values


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"\x00\x01\x08\x01", "it starts with 00 01 08 01", id="a wrong magic"),
        pytest.param(b"\x00\x00\x07\x01\x00\x00\x00\x00", "is no IDX file", id="an unknown element type"),
        pytest.param(b"\x00\x00\x08\x00\x05", "is no IDX file", id="no axes"),
        pytest.param(b"\x00\x00\x08", "it starts with 00 00 08,", id="a cut magic"),
        pytest.param(b"\x00\x00\x08\x03\x00\x00\x00\x02", "ends in its header: it claims 3 axes", id="a cut header"),
        pytest.param(idx(8, (2, 3), bytes(5)), r"claims shape \[2, 3\] of uint8, 6 bytes, but holds 5", id="truncated"),
        pytest.param(idx(8, (2, 3), bytes(9)), "6 bytes, but holds [79] bytes", id="bytes after the elements"),
        pytest.param(idx(8, (2**32 - 1,) * 4, bytes(9)), r"claims shape \[4294967295", id="a lying header"),
        pytest.param(idx(8, (0, 3), b""), "there is nothing in it", id="no samples"),
    ],
)
def test_bad_files(read, tmp_path, pack, content, message):
    (tmp_path / "x").write_bytes(pack(content))
    tracemalloc.start()
    with pytest.raises(PeError, match=message) as caught:
        read("idx", files={"x": "x"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code is ExitCode.DATA
    assert caught.value.hint
    assert peak < 1 << 22


@pytest.mark.parametrize("keep", [3, 10, 30, -9, -1])
def test_truncated_gzip(read, tmp_path, keep):
    packed = gzip.compress(idx(8, (10, 10), np.random.default_rng(0).bytes(100)))
    (tmp_path / "x").write_bytes(packed[:keep])
    with pytest.raises(PeError, match="is a broken gzip file"):
        read("idx", files={"x": "x"})


def test_gzip_with_a_wrong_checksum(read, tmp_path):
    packed = bytearray(gzip.compress(idx(8, (10, 10), np.random.default_rng(0).bytes(100))))
    packed[-6] ^= 1
    (tmp_path / "x").write_bytes(packed)
    with pytest.raises(PeError, match="is a broken gzip file"):
        read("idx", files={"x": "x"})


def test_what_would_fill_the_memory_is_unpacked_into_a_file(read, tmp_path, monkeypatch):
    values = np.random.default_rng(0).integers(0, 256, (1000, 50)).astype("uint8")
    (tmp_path / "x").write_bytes(gzip.compress(idx(8, values.shape, values.tobytes())))
    monkeypatch.setattr(spill_storage, "memory_of_one", lambda: 1000)
    found = read("idx", files={"x": "x"}).take(np.arange(1000))["x"]
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("there", [1999, 2001, 50_000, 0])
def test_a_size_that_is_not_the_header_s_is_told_wherever_it_is_unpacked(read, tmp_path, monkeypatch, there):
    (tmp_path / "x").write_bytes(gzip.compress(idx(8, (2000,), bytes(there))))
    for memory in (1000, 2**40):
        monkeypatch.setattr(spill_storage, "memory_of_one", lambda memory=memory: memory)
        with pytest.raises(PeError, match=r"claims shape \[2000\] of uint8, 2000 bytes, but holds|can hold"):
            read("idx", files={"x": "x"})


def test_a_file_of_8_gib_is_mapped_and_not_loaded(read, tmp_path):
    # 21 bytes of header: no element is aligned
    head = idx(0x0E, (2**20, 1, 1, 1024), b"")
    with (tmp_path / "big").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + 2**33)
    tracemalloc.start()
    rows = read("idx", files={"x": "big"}).take(np.array([3, 2**20 - 1, 7]))["x"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.shape == (3, 1, 1, 1024)
    assert peak < 1 << 20
