"""Inference models: those that PaddlePaddle 1.8.5 wrote (`recordings/models.py`) are read, and ours are written as it has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.io.fluid import pickled_arrays, program_desc, tensors
from pe_cli.io.fluid.pickled import read as read_pickle
from tests.paddle.recordings.models import MODELS, build

L = fluid.layers
FOLDER = Path(__file__).parent / "recordings" / "models"
VALUES = Path(__file__).parent / "recordings" / "values"
ONE_FILE = {"images": {}, "words": {"params_filename": "params"}}


def outputs(name):
    """Return what the original computed."""
    with np.load(FOLDER / name / "outputs.npz") as file:
        return [file[key] for key in file.files]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_of_the_original_gives_its_outputs(name):
    executor = fluid.Executor(fluid.CPUPlace())
    program, feeds, targets = fluid.io.load_inference_model(str(FOLDER / name), executor, **ONE_FILE[name])
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fed, _ = MODELS[name](fluid)
    assert feeds == list(fed)
    for found, wanted in zip(executor.run(program, feed=fed, fetch_list=targets), outputs(name), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_is_written_as_the_original_has_it(name, tmp_path):
    executor, main, fed, wanted = build(fluid, name)
    fluid.io.save_inference_model(str(tmp_path), list(fed), wanted, executor, main, **ONE_FILE[name])
    ours, theirs = (program_desc.read((folder / "__model__").read_bytes())[0] for folder in (tmp_path, FOLDER / name))
    assert {v.name: (v.shape, v.dtype) for v in ours.vars if v.persistable} == {
        v.name: (v.shape, v.dtype) for v in theirs.vars if v.persistable
    }
    assert {v.name: (v.shape, v.lod_level) for v in ours.vars if v.name in fed} == {
        v.name: (v.shape, v.lod_level) for v in theirs.vars if v.name in fed
    }
    known = [file for file in (FOLDER / name).iterdir() if file.name not in ("__model__", "outputs.npz")]
    assert len(known) == (1 if name == "words" else len([v for v in theirs.vars if v.persistable]) - 2)
    for file in known:
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name
    program, feeds, targets = fluid.io.load_inference_model(str(tmp_path), executor, **ONE_FILE[name])
    for found, value in zip(executor.run(program, feed=fed, fetch_list=targets), outputs(name), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-7)
    assert feeds == list(fed)


def test_a_program_is_parsed_from_the_bytes_of_the_original():
    data = (FOLDER / "images" / "__model__").read_bytes()
    program = fluid.Program.parse_from_string(data)
    assert [op.type for op in program.global_block().ops][:3] == ["conv2d", "elementwise_add", "batch_norm"]
    again = program.serialize_to_string()
    assert b"\0" in again
    assert fluid.Program.parse_from_string(again).to_string(True) == program.to_string(True)
    with pytest.raises(ValueError, match="no program of PaddlePaddle"):
        fluid.Program.parse_from_string(data[:-7])


def test_values_are_written_with_the_bytes_of_the_original():
    for name in ("saved.pdparams", "saved.pdopt"):
        data = (VALUES / name).read_bytes()
        assert pickled_arrays.write(read_pickle(data)) == data
    data = (VALUES / "persistables").read_bytes()
    assert b"".join(map(tensors.of_tensor, tensors.tensors(memoryview(data)))) == data


def test_a_program_that_the_original_has_no_form_of_is_kept_for_here(tmp_path):
    x = fluid.data("x", [None, 4])
    block = fluid.default_main_program().global_block()
    block.append_op("log10", {"X": x}, {"Out": "y"})
    y = block.var("y")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    with pytest.warns(UserWarning, match="has no form of"):
        fluid.io.save_inference_model(str(tmp_path), ["x"], [y], executor)
    assert json.loads((tmp_path / "__model__").read_text())["feeds"] == ["x"]
    program, _, targets = fluid.io.load_inference_model(str(tmp_path), executor)
    (found,) = executor.run(program, feed={"x": np.float32([[1, 10, 0.1, 1000]])}, fetch_list=targets)
    np.testing.assert_allclose(found, [[0, 1, -1, 3]], atol=1e-6)


def test_all_operators_that_are_not_read_are_named_at_once(tmp_path):
    blocks = program_desc.read((FOLDER / "images" / "__model__").read_bytes())
    blocks[0].ops[2].type, blocks[0].ops[4].type = "warp_drive", "listen_and_serv"
    (tmp_path / "__model__").write_bytes(program_desc.write(blocks))
    listed = r"not read: listen_and_serv \(1, operator 4 of block 0\), warp_drive \(1, operator 2 of block 0\)"
    with pytest.raises(ValueError, match=listed):
        fluid.io.load_inference_model(str(tmp_path), None)


def row_convolution():
    words = L.data("words", [1], dtype="int64", lod_level=1)
    return "words", L.sequence_conv(L.embedding(words, [9, 4]), 3, 2, act="tanh"), L.sequence_conv(L.embedding(words, [9, 4]), 2)


def windows():
    image = fluid.data("image", [None, 1, 4, 6])
    rows = L.im2sequence(image, filter_size=[4, 2], stride=[1, 2])
    return "image", L.sequence_pool(L.dynamic_gru(L.fc(rows, 9), 3), "last"), L.ctc_greedy_decoder(rows, blank=0)


def projection():
    words = L.data("words", [1], dtype="int64", lod_level=1)
    hidden, _ = L.dynamic_lstmp(L.embedding(words, [9, 8]), 8, 3, proj_activation="identity")
    return "words", hidden, L.cast(hidden, "int32")


@pytest.mark.parametrize(
    ("net", "types"),
    [
        (row_convolution, ["lookup_table", "sequence_conv", "elementwise_add", "tanh", "lookup_table", "sequence_conv", "elementwise_add"]),
        (windows, ["im2sequence", "mul", "elementwise_add", "gru", "sequence_pool", "top_k", "ctc_align"]),
        (projection, ["lookup_table", "lstmp", "cast"]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_layers_of_other_operators_here_are_written_with_those_of_the_original(net, types, tmp_path, rng):
    name, *wanted = net()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    ids = fluid.create_lod_tensor(rng.integers(0, 9, (5, 1)), [[3, 2]], fluid.CPUPlace())
    fed = {name: ids if name == "words" else rng.standard_normal((2, 1, 4, 6)).astype("float32")}
    fluid.io.save_inference_model(str(tmp_path), [name], wanted, executor)
    written = program_desc.read((tmp_path / "__model__").read_bytes())[0]
    assert [op.type for op in written.ops if op.type not in ("feed", "fetch")] == types
    declared = {v.name for v in written.vars}
    assert declared >= {n for op in written.ops for names in (*op.inputs.values(), *op.outputs.values()) for n in names}
    program, _, targets = fluid.io.load_inference_model(str(tmp_path), executor)
    before = executor.run(feed=fed, fetch_list=wanted, return_numpy=False)
    after = executor.run(program, feed=fed, fetch_list=targets, return_numpy=False)
    for right, found in zip(before, after, strict=True):
        assert right.lod() == found.lod()
        np.testing.assert_array_equal(np.array(right), np.array(found))


@pytest.mark.filterwarnings("error")
def test_sizes_and_labels_are_written_with_the_32_bits_that_the_original_takes(tmp_path):
    # 1.8.5 refuses these operators with whole numbers of 64 bits.
    x, label = fluid.data("x", [None, 3], lod_level=1), fluid.data("label", [None, 1], "int32", lod_level=1)
    times = L.cast(L.shape(x), "int64")
    cost = L.warpctc(L.fc(x, 4), label)
    wide = L.expand(x, [1, L.slice(times, [0], [1], [2])])
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path), ["x", "label"], [cost, wide], executor)
    block = program_desc.read((tmp_path / "__model__").read_bytes())[0]
    kinds = {v.name: v.dtype for v in block.vars}
    for type_, slot in (("warpctc", "Label"), ("expand", "ExpandTimes")):
        (op,) = (op for op in block.ops if op.type == type_)
        assert kinds[op.inputs[slot][0]] == "int32"
