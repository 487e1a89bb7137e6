"""Inference models with loops and branches that PaddlePaddle 1.8.5 wrote (`recordings/loops.py`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.io.fluid import program_desc
from tests.paddle.recordings.loops import MODELS

FOLDER = Path(__file__).parent / "recordings" / "loops"
VALUES = {"params_filename": "params"}


def fed(name):
    """Return what a model is fed."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        return MODELS[name](fluid)[0]


def agree(found, name):
    """Check outputs, and their sequences, against those of the original."""
    with np.load(FOLDER / name / "outputs.npz") as file:
        assert len(found) == len(file.files) // 2
        for i, v in enumerate(found):
            np.testing.assert_allclose(np.array(v), file[f"output_{i}"], rtol=1e-5, atol=1e-6)
            lengths = json.loads(str(file[f"lengths_{i}"]))
            # Of what has no sequences the original may keep those of something else.
            assert v.recursive_sequence_lengths() in (lengths, [])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_of_the_original_gives_its_outputs(name):
    executor = fluid.Executor(fluid.CPUPlace())
    program, feeds, targets = fluid.io.load_inference_model(str(FOLDER / name), executor, **VALUES)
    given = fed(name)
    assert feeds == list(given)
    agree(executor.run(program, feed=given, fetch_list=targets, return_numpy=False), name)


@pytest.mark.parametrize("name", ["attention", "decode", "dynamic_rnn", "transformer_decode"])
def test_sequences_of_decoders_are_those_of_the_original(name):
    executor = fluid.Executor(fluid.CPUPlace())
    program, _, targets = fluid.io.load_inference_model(str(FOLDER / name), executor, **VALUES)
    found = executor.run(program, feed=fed(name), fetch_list=targets, return_numpy=False)
    with np.load(FOLDER / name / "outputs.npz") as file:
        assert [v.recursive_sequence_lengths() for v in found] == [json.loads(str(file[f"lengths_{i}"])) for i in range(len(found))]


def changed(tmp_path, name, change):
    """Return the folder of a model whose blocks a function has changed."""
    shutil.copytree(FOLDER / name, tmp_path / "model")
    path = tmp_path / "model" / "__model__"
    blocks = program_desc.read(path.read_bytes())
    change(blocks)
    path.write_bytes(program_desc.write(blocks))
    return str(path.parent)


def of(blocks, type_, index=0):
    return next(op for op in blocks[index].ops if op.type == type_)


def run_itself(blocks):
    loop = next(op for op in blocks[1].ops if op.type == "while")
    loop.attrs["sub_block"] = program_desc.BlockNumber(1)


def run_twice(blocks):
    blocks[0].ops.insert(7, of(blocks, "while"))


def run_what_is_not_there(blocks):
    of(blocks, "while").attrs["sub_block"] = program_desc.BlockNumber(9)


def read_unknown(blocks):
    of(blocks, "scale", 2).inputs["X"] = ["nowhere"]


def name_no_condition(blocks):
    of(blocks, "while").inputs["Condition"] = []


def never_end(blocks):
    blocks[1].ops = [op for op in blocks[1].ops if op.type != "less_than" or op.outputs["Out"] != of(blocks, "while").inputs["Condition"]]


def be_warped(blocks):
    of(blocks, "scale", 2).type = "warp_drive"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (run_itself, r"operator 2 of block 1, while, .*block 1 is run by two operators"),
        (run_twice, r"operator 7 of block 0, while, .*block 1 is run by two operators"),
        (run_what_is_not_there, r"operator 6 of block 0, while, .*it runs block 9, and there are 3"),
        (read_unknown, r"operator 0 of block 2, scale, .*nowhere"),
        (name_no_condition, r"operator 6 of block 0, while, .*slot Condition has 0 variables"),
        (never_end, r"operator 6 of block 0, while, .*its block does not write 'less_than_0.tmp_0'"),
        (be_warped, r"not read: warp_drive \(1, operator 0 of block 2\)"),
    ],
)
def test_a_model_that_cannot_run_is_an_error_that_names_the_operator_and_its_block(change, message, tmp_path):
    executor = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ValueError, match=message):
        fluid.io.load_inference_model(changed(tmp_path, "nested", change), executor, **VALUES)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_program_with_loops_is_parsed_from_the_bytes_of_the_original(name):
    executor = fluid.Executor(fluid.CPUPlace())
    blocks = program_desc.read((FOLDER / name / "__model__").read_bytes())
    fetched = [op.inputs["X"][0] for op in blocks[0].ops if op.type == "fetch"]
    # As `serialize_to_string` gives it: without operators that feed and fetch.
    blocks[0].ops = [op for op in blocks[0].ops if op.type not in ("feed", "fetch")]
    program = fluid.Program.parse_from_string(program_desc.write(blocks))
    fluid.io.load_persistables(executor, str(FOLDER / name), program, "params")
    agree(executor.run(program, feed=fed(name), fetch_list=fetched, return_numpy=False), name)
    again = fluid.Program.parse_from_string(program.serialize_to_string())
    agree(executor.run(again, feed=fed(name), fetch_list=fetched, return_numpy=False), name)
