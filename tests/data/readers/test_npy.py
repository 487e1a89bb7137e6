"""The npy reader."""

from __future__ import annotations

import io
import mmap
import tracemalloc

import numpy as np
import pytest
from numpy.lib import format as npy_format

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data import open_reader
from pe_cli.data.dataset import Scattered


def header(shape, dtype="<f4", order="False"):
    """A version 1.0 header written by hand."""
    text = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_values_of_a_hand_made_file(read, tmp_path):
    (tmp_path / "a.npy").write_bytes(header("(3, 2)", "<i4") + np.arange(6, dtype="<i4").tobytes())
    data = read("npy", files={"a": "a.npy"})
    assert data.fields == {"a": TensorType((2,), "int32")}
    assert len(data) == 3
    assert data.take(np.array([2, 0, 2]))["a"].tolist() == [[4, 5], [0, 1], [4, 5]]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        pytest.param("float32", "float32", id="float32 stays"),
        pytest.param(">f4", "float32", id="big-endian becomes native"),
        pytest.param("float16", "float32", id="float16 widens"),
        pytest.param("int8", "int32", id="int8 widens"),
        pytest.param("uint16", "int32", id="uint16 widens"),
        pytest.param("uint32", "int64", id="uint32 widens"),
        pytest.param("uint64", "int64", id="uint64 becomes int64 where it fits"),
        pytest.param("bool", "bool", id="bool stays"),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_element_types(read, tmp_path, stored, given, order):
    values = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1]], stored)
    np.save(tmp_path / "a.npy", np.asarray(values, order=order))
    data = read("npy", files={"a": "a.npy"})
    rows = data.take(np.array([1, 2]))["a"]
    assert data.fields["a"].dtype == given
    assert rows.dtype == np.dtype(given)
    assert rows.flags.c_contiguous
    assert rows.tolist() == values[[1, 2]].tolist()


def test_version_2_headers_are_read(read, tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        npy_format.write_array(file, np.arange(4.0), version=(2, 0))
    assert read("npy", files={"a": "a.npy"}).take(np.array([3]))["a"].tolist() == [3.0]


def test_uint64_above_int64_is_an_error(read, tmp_path):
    np.save(tmp_path / "a.npy", np.array([0, 2**63], np.uint64))
    data = read("npy", files={"a": "a.npy"})
    assert data.take(np.array([0]))["a"].tolist() == [0]
    with pytest.raises(PeError, match="the value 9223372036854775808"):
        data.take(np.array([0, 1]))


def saved(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"\x93NUMPX\x01\x00", "is no .npy array", id="a wrong magic"),
        pytest.param(b"\x93NUMPY\x01\x00\xff\xff{'descr'", "is no .npy array", id="a header that is cut off"),
        pytest.param(b"\x93NUMPY\x09\x00\x10\x00", "version 9.0", id="a version of the future"),
        pytest.param(header("((3, 2)") + bytes(24), "is no .npy array", id="a bracket that is not closed"),
        pytest.param(header("(" * 5000) + bytes(24), "is no .npy array", id="brackets as deep as the header"),
        pytest.param(
            header("(3, 2)") + bytes(20),
            r"claims shape \[3, 2\] of float32, 24 bytes, but holds 20",
            id="elements that are cut off",
        ),
        pytest.param(header("(3, 2)") + bytes(25), "24 bytes, but holds 25 bytes", id="bytes after the elements"),
        pytest.param(
            header("(1099511627776, 1099511627776)") + bytes(64), "claims shape .* but holds 64", id="a lying header"
        ),
        pytest.param(header("(-3, 2)") + bytes(24), r"claims shape \[-3, 2\]", id="a negative size"),
        pytest.param(header("('x',)") + bytes(24), "is no .npy array", id="a size that is no number"),
        pytest.param(header("()") + bytes(4), "is a single number", id="no axis of samples"),
        pytest.param(header("(0, 2)"), r"shape \[0, 2\]: there is nothing", id="no samples"),
        pytest.param(header("(2, 0)"), r"shape \[2, 0\]: there is nothing", id="empty samples"),
        pytest.param(header("(2,)", "|O") + bytes(16), "holds Python objects", id="a claim of Python objects"),
        pytest.param(saved(np.array([{}], object), allow_pickle=True), "holds Python objects", id="a pickle"),
        pytest.param(saved(np.array(["a", "b"])), "element type <U1", id="text"),
        pytest.param(saved(np.array([1j])), "element type complex128", id="complex numbers"),
        pytest.param(saved(np.zeros(2, [("a", "f4")])), "element type", id="records"),
    ],
)
def test_bad_files(read, tmp_path, content, message):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(PeError, match=message) as caught:
        read("npy", files={"a": "a.npy"})
    assert caught.value.code is ExitCode.DATA
    assert caught.value.hint
    assert str(caught.value.at) == "run.yaml:3:5"


def test_fields_of_different_lengths(read, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    np.save(tmp_path / "b.npy", np.zeros(4))
    with pytest.raises(PeError, match="differ in their number of samples: a has 3, b has 4"):
        read("npy", files={"a": "a.npy", "b": "b.npy"})


@pytest.mark.parametrize("order", ["False", "True"], ids=["in C order", "in Fortran order"])
def test_a_file_of_8_gib_is_mapped_and_not_loaded(read, tmp_path, order):
    head = header("(134217728, 16)", order=order)
    with (tmp_path / "big.npy").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + 2**33)
        file.seek(len(head) + (5 * 64 if order == "False" else 5 * 4))
        file.write(np.float32(7).tobytes())
    tracemalloc.start()
    rows = read("npy", files={"x": "big.npy"}).take(np.array([5, 134217727]))["x"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.shape == (2, 16)
    assert rows[:, 0].tolist() == [7.0, 0.0]
    assert peak < 1 << 20


class Asked:
    """A map that notes what the system is asked to read."""

    def __init__(self):
        self.ranges = []

    def madvise(self, option, *span):
        self.ranges.append((option, *span))


def test_one_of_several_processes_has_its_samples_read_and_none_beside_them():
    asked = Asked()
    Scattered(asked, 128, 10_000).ask(np.array([0, 5]))
    assert asked.ranges[0] == (mmap.MADV_RANDOM,)
    assert asked.ranges[1:] == [(mmap.MADV_WILLNEED, 0, 10_128), (mmap.MADV_WILLNEED, 49_152, 10_976)]  # pages of 4,096 bytes


@pytest.mark.parametrize(("processes", "columns", "scattered"), [(1, 2000, False), (4, 2000, True), (4, 10, False)])
def test_samples_are_the_same_however_they_are_read(read, processes, columns, scattered, tmp_path, monkeypatch):
    values = np.random.default_rng(0).standard_normal((50, columns)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    monkeypatch.setenv("PMI_SIZE", str(processes))
    monkeypatch.setenv("PMI_RANK", "0")
    data = read("npy", files={"x": "x.npy"})
    assert bool(data._scattered) is scattered
    rows = np.array([49, 3, 3, 0])
    np.testing.assert_array_equal(data.take(rows)["x"], values[rows])


def test_shards_lie_one_behind_the_other(tmp_path):
    for i, rows in enumerate((3, 1, 4)):
        np.save(tmp_path / f"x-{i}.npy", np.arange(rows * 2, dtype="float32").reshape(rows, 2) + 100 * i)
        np.save(tmp_path / f"y-{i}.npy", np.full(rows, i))
    dataset = open_reader("npy", {"files": {"x": "x-*.npy", "y": ["y-0.npy", "y-1.npy", "y-2.npy"]}}, tmp_path)
    assert len(dataset) == 8
    batch = dataset.take(np.array([7, 0, 3, 3]))
    assert batch["y"].tolist() == [2, 0, 1, 1]
    assert batch["x"].tolist() == [[206, 207], [0, 1], [100, 101], [100, 101]]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        pytest.param(np.zeros((2, 3), "float32"), "shards of one field have samples of one shape", id="another shape"),
        pytest.param(np.zeros((2, 2)), "shards of one field have samples of one shape", id="another type"),
        pytest.param(np.zeros((3, 2), "float32"), "pair arrays of the same samples", id="another number of samples"),
    ],
)
def test_shards_that_do_not_belong_together_are_refused(tmp_path, odd, said):
    for i in range(2):
        np.save(tmp_path / f"x-{i}.npy", np.zeros((2, 2), "float32"))
        np.save(tmp_path / f"y-{i}.npy", np.zeros(2))
    np.save(tmp_path / "x-1.npy", odd)
    with pytest.raises(PeError) as found:
        open_reader("npy", {"files": {"x": "x-*.npy", "y": "y-*.npy"}}, tmp_path)
    assert found.value.code == ExitCode.DATA
    assert said in found.value.hint


def test_fields_have_as_many_files(tmp_path):
    for name in ("x-0", "x-1", "y-0"):
        np.save(tmp_path / f"{name}.npy", np.zeros(2))
    with pytest.raises(PeError, match="x has 2, y has 1"):
        open_reader("npy", {"files": {"x": "x-*.npy", "y": "y-*.npy"}}, tmp_path)
