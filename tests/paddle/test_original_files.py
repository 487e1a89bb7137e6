"""Files of values that PaddlePaddle 1.8.5 wrote (`recordings/values.py`): read whole, damaged and hostile."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.io.fluid.value_files import is_original, read_original
from tests.paddle.recordings.values import batches, losses, network

FOLDER = Path(__file__).parent / "recordings" / "values"
WAYS = {
    "one file of tensors": lambda executor, program: fluid.io.load_persistables(executor, FOLDER, program, filename="persistables"),
    "pickled parameters and state": lambda executor, program: fluid.load(program, str(FOLDER / "saved"), executor),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_training_goes_on_where_the_original_stopped(way):
    loss = network(fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    WAYS[way](executor, fluid.default_main_program())
    found = losses(fluid, executor, loss, batches()[2:])
    np.testing.assert_allclose(found, json.loads((FOLDER / "losses.json").read_text()), rtol=1e-5)


def test_a_file_of_one_tensor():
    network(fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.io.load_vars(executor, FOLDER, vars=["fc_0.w_0"])
    found = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
    np.testing.assert_array_equal(found, fluid.load_program_state(str(FOLDER / "saved"))["fc_0.w_0"])


def test_a_file_with_another_number_of_tensors():
    with pytest.raises(PeError, match="has 21 tensors without names, and there are 2 variables") as caught:
        read_original(FOLDER / "persistables", ["a", "b"])
    assert "var_list" in (caught.value.hint or "")
    with pytest.raises(ValueError, match="nobody says their names"):
        fluid.load_program_state(str(FOLDER / "persistables"))


def test_the_sequences_of_a_tensor_are_left_out(tmp_path):
    description = bytes([0x08, 3, 0x10, 3, 0x10, 0x81, 0x00])  # int64 [3, 1]; 1 in two bytes
    levels = struct.pack("<IQQ3Q", 0, 1, 24, 0, 2, 3)
    data = levels + struct.pack("<Ii", 0, len(description)) + description + np.arange(3).tobytes()
    (tmp_path / "ids").write_bytes(data)
    np.testing.assert_array_equal(read_original(tmp_path / "ids", ["ids"])["ids"], [[0], [1], [2]])


def tensor(kind=5, sizes=(2,), data=b"\0" * 8, levels=0, version=0, length=None):
    """Return the bytes of a tensor that may be wrong."""
    description = bytes([0x08, kind]) + b"".join(b"\x10" + varint(size) for size in sizes)
    size = len(description) if length is None else length
    return struct.pack("<IQIi", version, levels, 0, size) + description + data


def varint(value):
    """Return a number as protobuf writes it."""
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(tensor(kind=9), "element type 9", id="no element type"),
        pytest.param(tensor(sizes=(1 << 62,)), "sizes", id="a size that no memory has"),
        pytest.param(tensor(sizes=(1 << 30, 1 << 30)), "cut off", id="more elements than bytes"),
        pytest.param(tensor(sizes=(1,) * 17), "sizes", id="too many axes"),
        pytest.param(tensor(levels=1 << 40), "levels of sequences", id="too many levels"),
        pytest.param(struct.pack("<IQQ", 0, 1, 1 << 60), "level", id="a level beyond the file"),
        pytest.param(tensor(length=-1), "description of -1 bytes", id="a description of no length"),
        pytest.param(tensor(length=1 << 30), "description", id="a description beyond the file"),
        pytest.param(tensor(sizes=()) + b"\0" * 3, "no file of values", id="something behind the last tensor"),
        pytest.param(b"\x80\x02cos\nsystem\nX\x02\0\0\0idR.", "would call os.system", id="a pickle that calls"),
        pytest.param(b"\x80\x02]q\x00.", "holds no dict", id="a pickle of something else"),
    ],
)
def test_hostile_files(tmp_path, data, says):
    (tmp_path / "w").write_bytes(data)
    with pytest.raises(PeError, match=says):
        read_original(tmp_path / "w", ["w"])


@pytest.mark.parametrize("name", ["persistables", "saved.pdopt"])
def test_damaged_files_are_errors_of_the_users(tmp_path, name):
    whole = (FOLDER / name).read_bytes()
    names = sorted(fluid.load_program_state(str(FOLDER / "saved")))
    draws = random.Random(5)
    damaged = [whole[:n] for n in range(8, len(whole), 7)]
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(draws.randint(1, 3)):
            changed[draws.randrange(len(whole))] = draws.randrange(256)
        damaged.append(bytes(changed))
    for data in damaged:
        (tmp_path / "w").write_bytes(data)
        if not is_original(tmp_path / "w"):
            continue
        found = {}
        with contextlib.suppress(PeError):
            found = read_original(tmp_path / "w", names)
        assert sum(value.nbytes for value in found.values()) <= len(whole)
