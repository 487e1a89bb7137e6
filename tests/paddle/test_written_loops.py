"""Inference models with loops and branches that are written here, as PaddlePaddle 1.8.5 loads them (`recordings/written.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.io.fluid import program_desc
from tests.paddle.recordings.loops import MODELS
from tests.paddle.recordings.write_here import write
from tests.paddle.recordings.written import WRITTEN

pytestmark = pytest.mark.filterwarnings("error")
RECORDINGS = Path(__file__).parent / "recordings"


def of_the_original(name):
    """Return what the original computes, and the sequences of what it records them of."""
    known = RECORDINGS / "loops" / name / "outputs.npz"
    with np.load(known if known.exists() else RECORDINGS / "written" / f"{name}.npz") as file:
        count = sum(key.startswith("output_") for key in file.files)
        return [file[f"output_{i}"] for i in range(count)], [
            json.loads(str(file[f"lengths_{i}"])) if f"lengths_{i}" in file.files else None for i in range(count)
        ]


@pytest.mark.parametrize("name", sorted({**MODELS, **WRITTEN}))
def test_a_model_that_is_written_and_read_gives_what_the_original_computes(name, tmp_path):
    executor, fed = write(tmp_path, name)
    program, feeds, targets = fluid.io.load_inference_model(str(tmp_path), executor, params_filename="params")
    assert feeds == list(fed)
    found = executor.run(program, feed=fed, fetch_list=targets, return_numpy=False)
    for v, value, lengths in zip(found, *of_the_original(name), strict=True):
        np.testing.assert_allclose(np.array(v), value, rtol=1e-5, atol=1e-6)
        assert lengths is None or v.recursive_sequence_lengths() in (lengths, [])


@pytest.mark.parametrize("name", sorted({**MODELS, **WRITTEN}))
def test_a_model_has_the_bytes_that_the_original_has_run(name, tmp_path):
    write(tmp_path, name)
    data = (tmp_path / "__model__").read_bytes()
    assert data == (RECORDINGS / "written" / f"{name}.model").read_bytes(), "1.8.5 has to run it again: see recordings/write_here.py"


def types_of(name):
    blocks = program_desc.read((RECORDINGS / "written" / f"{name}.model").read_bytes())
    return blocks, {op.type for block in blocks for op in block.ops}


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("static_rnn", {"recurrent", "rnn_memory_helper"}),
        ("while_arrays", {"while", "write_to_array", "read_from_array", "tensor_array_to_tensor"}),
        ("branches", {"conditional_block", "select_input"}),
        ("if_else", {"split_lod_tensor", "conditional_block", "merge_lod_tensor"}),
        (
            "dynamic_rnn",
            {"lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "while", "shrink_rnn_memory", "array_to_lod_tensor"},
        ),
        ("beam", {"while", "beam_search", "beam_search_decode", "write_to_array"}),
    ],
)
def test_loops_and_branches_are_operators_of_the_original(name, types):
    blocks, found = types_of(name)
    assert types <= found
    theirs = program_desc.read((RECORDINGS / "loops" / name / "__model__").read_bytes())
    assert [block.parent for block in blocks] == [block.parent for block in theirs][: len(blocks)]


def test_blocks_read_only_what_they_or_blocks_around_them_declare():
    for path in sorted((RECORDINGS / "written").glob("*.model")):
        blocks = program_desc.read(path.read_bytes())
        for block in blocks:
            known, around = set(), block
            while around is not None:
                known |= {v.name for v in around.vars}
                around = blocks[around.parent] if around.parent >= 0 else None
            for op in block.ops:
                assert known >= {n for slots in (op.inputs, op.outputs) for names in slots.values() for n in names}, (path.stem, op.type)
