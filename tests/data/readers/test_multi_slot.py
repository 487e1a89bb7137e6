"""The multi_slot reader: values, sequences, and what it says of wrong lines."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data.feed import Feed
from pe_cli.data.loader import Loader

SLOTS = {
    "words": {"type": "uint64"},
    "skipped": {"type": "float", "used": False},
    "x": {"type": "float", "dense": True, "shape": [2]},
}
TEXT = "3 1926 8 17 1 0.5 2 1 2\n1 5 2 7 8 2 3 4\n\n2 6 9 1 0 2 5 -6e-1\n"


@pytest.fixture
def data(read, tmp_path):
    (tmp_path / "part-0").write_text(TEXT)
    (tmp_path / "part-1").write_text("2 18446744073709551615 9223372036854775808 1 0 2 0 0\n")
    return read("multi_slot", files=["part-0", "part-1"], slots=SLOTS)


def test_values(data):
    assert len(data) == 4
    assert data.fields == {"words": TensorType((1,), "int64"), "x": TensorType((2,), "float32")}
    assert data.sequences == {"words"}
    batch = data.take(np.array([2, 0, 3]))
    assert batch["words"].tolist() == [[6], [9], [1926], [8], [17], [-1], [-(1 << 63)]]  # 2^64 - 1 has the bits of -1
    assert batch["words@LOD0"].tolist() == [0, 2, 5, 7]
    np.testing.assert_allclose(batch["x"], [[5, -0.6], [1, 2], [0, 0]], rtol=1e-6)


def test_a_loader_gives_rows_and_offsets(data):
    types = {"w": TensorType((1,), "int64"), "x": TensorType((2,))}
    loader = Loader(data, {"w": Feed("words"), "x": Feed("x")}, types, 2, levels={"w": 1}, prefetch=0)
    first, second = loader.epoch(0)
    assert first["w"].ravel().tolist() == [1926, 8, 17, 5]
    assert first["w@LOD0"].tolist() == [0, 3, 4]
    assert second["x"].shape == (2, 2)


@pytest.mark.parametrize(
    ("levels", "field", "message"),
    [
        pytest.param({}, "words", "holds sequences, but feed 'w' has lod_level 0", id="sequences for plain rows"),
        pytest.param({"w": 1}, "x", "samples of field 'x' are no sequences", id="plain rows for sequences"),
    ],
)
def test_levels_must_agree(data, levels, field, message):
    types = {"w": TensorType((-1,), "int64" if field == "words" else "float32")}
    with pytest.raises(PeError, match=message):
        Loader(data, {"w": Feed(field)}, types, 2, levels=levels)


@pytest.mark.parametrize(
    ("line", "message", "column"),
    [
        pytest.param("0 1 1 2 1 2", "slot 'words' begins with the number of its values, at least 1", 1, id="none"),
        pytest.param("1 5 1 1 2 1", "slot 'x' should have 2 values, but the line has 1 left", 9, id="too few"),
        pytest.param("1 5 1 1 2 1 2 9 9", "2 words are left behind the last slot 'x': '9 9'", 15, id="too many"),
        pytest.param("1 5 1 1", "slot 'x' begins with the number .* here is nothing", 9, id="a slot is missing"),
        pytest.param("2 5 a 1 1 2 1 2", "value 2 of slot 'words' is 'a', no uint64", 5, id="a letter"),
        pytest.param("1 -5 1 1 2 1 2", "value 1 of slot 'words' is '-5', no uint64", 3, id="a negative id"),
        pytest.param("1 18446744073709551616 1 1 2 1 2", "no uint64", 3, id="an id above 64 bits"),
        pytest.param("1 1_0 1 1 2 1 2", "no uint64", 3, id="a number of Python's"),
        pytest.param("1 5 1 nan 2 1 2", "value 1 of slot 'skipped' is 'nan', no float", 7, id="no number"),
        pytest.param("1 5 1 1e39 2 1 2", "no float", 7, id="above float32"),
        pytest.param("1 5 1 3.4028235677973366e38 2 1 2", "no float", 7, id="half way from the largest float32 to the next"),
        pytest.param("1 5 1 1 2 1 -3.4028235677973366e38", "value 2 of slot 'x'", 13, id="the same below 0"),
        pytest.param("1  5 1 1 2 1 2", "no uint64", 3, id="two spaces"),
        pytest.param("1 5 1 1 3 1 2 3", "slot 'x' has 3 values, but its shape has 2", 9, id="another shape"),
    ],
)
def test_a_wrong_line(read, tmp_path, line, message, column):
    (tmp_path / "part-0").write_text(f"1 5 1 1 2 1 2\n{line}\n")
    with pytest.raises(PeError, match=message) as caught:
        read("multi_slot", files=["part-0"], slots=SLOTS)
    assert caught.value.code == ExitCode.DATA
    assert caught.value.hint
    at = caught.value.at
    assert (at.file.endswith("part-0"), at.line, at.column) == (True, 2, column)


def test_the_largest_numbers_are_finite(read, tmp_path):
    (tmp_path / "part-0").write_text("1 5 1 0 2 3.4028235677973362e38 -3.4028235677973362e38\n")
    largest = np.finfo(np.float32).max
    found = read("multi_slot", files=["part-0"], slots=SLOTS).take(np.array([0]))
    assert found["x"].tolist() == [[largest, -largest]]


def test_an_empty_file(read, tmp_path):
    (tmp_path / "part-0").write_text("\n")
    with pytest.raises(PeError, match="no line in part-0"):
        read("multi_slot", files=["part-0"], slots=SLOTS)


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        pytest.param({"shape": [2]}, "shape is for dense slots", id="a shape without dense"),
        pytest.param({"type": "int"}, "uint64", id="another type"),
        pytest.param({"used": False}, "no slot is used", id="nothing used"),
    ],
)
def test_wrong_slots(read, slot, message):
    with pytest.raises(PeError, match=message):
        read("multi_slot", files=["part-0"], slots={"a": slot})
