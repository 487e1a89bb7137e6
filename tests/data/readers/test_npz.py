"""The npz reader."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data import open_reader, spill_storage

IMAGE = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
LABEL = np.array([2, 0, 1])
SAVERS = [pytest.param(np.savez, id="uncompressed"), pytest.param(np.savez_compressed, id="compressed")]


@pytest.mark.parametrize("save", SAVERS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_values(read, tmp_path, save, order):
    save(tmp_path / "d.npz", train_image=np.asarray(IMAGE, order=order), train_label=LABEL, other=np.zeros(9))
    data = read("npz", file="d.npz", fields={"image": "train_image", "label": "train_label"})
    assert data.fields == {"image": TensorType((2, 2), "uint8"), "label": TensorType((), "int64")}
    batch = data.take(np.array([2, 1]))
    assert batch["image"].tolist() == [[[8, 9], [10, 11]], [[4, 5], [6, 7]]]
    assert batch["label"].tolist() == [1, 0]


@pytest.mark.parametrize("save", SAVERS)
def test_all_arrays_come_under_their_own_names_without_fields(read, tmp_path, save):
    save(tmp_path / "d.npz", a=IMAGE, b=LABEL)
    assert list(read("npz", file="d.npz").fields) == ["a", "b"]


def test_one_array_may_be_two_fields(read, tmp_path):
    np.savez_compressed(tmp_path / "d.npz", a=LABEL)
    assert read("npz", file="d.npz", fields={"x": "a", "y": "a"}).take(np.array([0]))["y"].tolist() == [2]


def test_unknown_array(read, tmp_path):
    np.savez(tmp_path / "d.npz", train_image=IMAGE)
    with pytest.raises(PeError, match="has no array 'train_imag'") as caught:
        read("npz", file="d.npz", fields={"image": "train_imag"})
    assert caught.value.hint == "did you mean 'train_image'?"


@pytest.mark.parametrize("save", SAVERS)
def test_pickled_objects_are_refused(read, tmp_path, save):
    save(tmp_path / "d.npz", a=np.array([{"a": 1}], object))
    with pytest.raises(PeError, match=r"array 'a' of .* holds Python objects"):
        read("npz", file="d.npz")


def test_objects_of_an_array_that_is_not_named_do_no_harm(read, tmp_path):
    np.savez(tmp_path / "d.npz", a=np.array([{"a": 1}], object), b=LABEL)
    assert list(read("npz", file="d.npz", fields={"b": "b"}).fields) == ["b"]


@pytest.mark.parametrize("save", SAVERS)
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_archives(read, tmp_path, save, keep):
    path = tmp_path / "d.npz"
    save(path, a=np.random.default_rng(0).integers(0, 255, (100, 50), np.uint8))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(PeError, match=r"is no readable \.npz archive") as caught:
        read("npz", file="d.npz")
    assert caught.value.code is ExitCode.DATA


@pytest.mark.parametrize(("name", "reader"), [("t.csv", "csv"), ("t.npy", "npy"), ("images.gz", "idx")])
def test_a_file_of_another_kind_names_its_reader(read, tmp_path, name, reader):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(PeError) as caught:
        read("npz", file=name)
    assert caught.value.hint == f"use reader: {reader}"


def test_a_flipped_bit_in_a_compressed_array_fails_the_checksum(read, tmp_path):
    path = tmp_path / "d.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).integers(0, 255, (100, 50), np.uint8))
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(content)
    with pytest.raises(PeError, match=r"is no readable \.npz archive"):
        read("npz", file="d.npz")


def with_directory_size(path, packed, unpacked):
    """Overwrite the sizes in the central directory: the signature PK 01 02, packed at 20, unpacked at 24."""
    content = bytearray(path.read_bytes())
    start = content.index(b"PK\x01\x02")
    if packed is not None:
        struct.pack_into("<I", content, start + 20, packed)
    struct.pack_into("<I", content, start + 24, unpacked)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("save", "packed", "unpacked"),
    [
        pytest.param(np.savez_compressed, None, 0xF0000000, id="4 GB from some bytes"),
        pytest.param(np.savez, None, 0xF0000000, id="4 GB that are not packed"),
        pytest.param(np.savez, 0xF0000000, 0xF0000000, id="4 GB in a small file"),
        pytest.param(np.savez_compressed, None, 100, id="too few for the header's shape"),
    ],
)
def test_lying_directories(read, tmp_path, save, packed, unpacked):
    save(tmp_path / "d.npz", a=LABEL)
    with_directory_size(tmp_path / "d.npz", packed, unpacked)
    tracemalloc.start()
    with pytest.raises(PeError) as caught:
        read("npz", file="d.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code is ExitCode.DATA
    assert peak < 1 << 22


def test_a_member_whose_npy_header_lies(read, tmp_path):
    np.savez(tmp_path / "d.npz", a=LABEL)
    with zipfile.ZipFile(tmp_path / "d.npz") as archive:
        content = archive.read("a.npy").replace(b"(3,), }         ", b"(3333333333,), }")
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(PeError, match=r"claims shape \[3333333333\] of int64, 26666666664 bytes, but holds 24 bytes"):
        read("npz", file="d.npz")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        pytest.param(
            zipfile.ZIP_BZIP2, "another method than deflate", id="bzip2 is refused, its sizes cannot be checked"
        ),
        pytest.param(
            zipfile.ZIP_LZMA, "another method than deflate", id="lzma is refused, its sizes cannot be checked"
        ),
    ],
)
def test_other_compressions(read, tmp_path, method, message):
    np.save(tmp_path / "a.npy", LABEL)
    with zipfile.ZipFile(tmp_path / "d.npz", "w", method) as archive:
        archive.write(tmp_path / "a.npy", "a.npy")
    with pytest.raises(PeError, match=message):
        read("npz", file="d.npz")


def test_an_archive_without_arrays(read, tmp_path):
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(PeError, match="has no array"):
        read("npz", file="d.npz")


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_would_fill_the_memory_is_unpacked_into_a_file(read, tmp_path, monkeypatch, order):
    values = np.asarray(np.arange(2**21).reshape(2**10, 2**11), order=order)
    np.savez_compressed(tmp_path / "d.npz", a=values)
    monkeypatch.setattr(spill_storage, "memory_of_one", lambda: 2**20)
    tracemalloc.start()
    data = read("npz", file="d.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23 < values.nbytes
    np.testing.assert_array_equal(data.take(np.arange(2**10))["a"], values)


def test_no_room_for_what_is_unpacked(read, tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "d.npz", a=np.zeros(1000))
    monkeypatch.setattr(spill_storage, "memory_of_one", lambda: 1)
    monkeypatch.setattr(spill_storage.tempfile, "TemporaryFile", lambda **given: open("/dev/full", "wb", buffering=0))  # noqa: PTH123, SIM115
    with pytest.raises(PeError, match=r"no room for array 'a' of .* of 8,000 bytes in .*: no space left") as caught:
        read("npz", file="d.npz")
    assert caught.value.code is ExitCode.DEVICE
    assert "TMPDIR" in caught.value.hint


def test_uncompressed_members_are_mapped(read, tmp_path):
    np.savez(tmp_path / "d.npz", a=np.zeros((4096, 1024)), b=np.zeros(4096))
    tracemalloc.start()
    data = read("npz", file="d.npz")
    data.take(np.array([1, 4000]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_digits_that_ship_have_every_class():
    base = Path(__file__).parents[3] / "configs/data"
    for part, samples in (("train", 1437), ("eval", 360)):
        fields = {"image": f"{part}_image", "label": f"{part}_label"}
        data = open_reader("npz", {"file": "digits.npz", "fields": fields}, base)
        batch = data.take(np.arange(len(data)))
        assert data.fields["image"] == TensorType((8, 8), "uint8")
        assert len(data) == samples
        # a tenth of 1797 is 179.7; the rarest digit has 174 pictures and the most frequent one 183
        assert np.abs(np.bincount(batch["label"], minlength=10) - samples / 10).max() <= 5
        assert batch["image"].max() == 16
