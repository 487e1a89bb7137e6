"""LoD of variables: which ops hand it on, what sequence ops get, and how programs carry it."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError, Span
from pe_cli.graph.lod_resolution import resolve
from pe_cli.layers.define.registry import find
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.program.serialize import from_json, to_json
from pe_cli.program.text_forms import from_string, to_string


def call(layer: str, *args, **given):
    return find(layer).fn(*args, **given)


@pytest.fixture
def program():
    made = Program("words")
    with program_guard(made, Program("startup")):
        call("data", "words", [1], dtype="int64", lod_level=1)
        call("data", "rows", [6])
        yield made


def words(program):
    return program.global_block().var("words")


@pytest.mark.parametrize(
    ("build", "kept"),
    [
        pytest.param(lambda x: call("fc", x, 3), True, id="fc"),
        pytest.param(lambda x: call("dropout", x, 0.5), True, id="dropout"),
        pytest.param(lambda x: call("layer_norm", x), True, id="layer_norm"),
        pytest.param(lambda x: call("concat", [x, x], 1), True, id="concat of features"),
        pytest.param(lambda x: call("elementwise_add", x, x), True, id="a sum"),
        pytest.param(lambda x: call("cast", x, "float64"), True, id="cast"),
        pytest.param(lambda x: call("reshape", x, [0, 2, 2]), True, id="a reshape of features"),
        pytest.param(lambda x: call("reshape", x, [-1, 2]), False, id="a reshape of rows"),
        pytest.param(lambda x: call("concat", [x, x], 0), False, id="concat of rows"),
        pytest.param(lambda x: call("reduce_sum", x, 0), False, id="a sum over rows"),
        pytest.param(lambda x: call("mean", x), False, id="mean"),
        pytest.param(lambda x: call("transpose", x, [1, 0]), False, id="transpose"),
        pytest.param(lambda x: call("slice", x, [0], [1], [3]), False, id="a slice of rows"),
    ],
)
def test_ops_that_keep_rows_hand_sequences_on(program, build, kept):
    out = build(call("embedding", words(program), [10, 4]))
    lods = resolve(program).lods
    assert lods.get(out.name) == (("words@LOD0",) if kept else None)


def test_a_plain_index_takes_rows_out_of_their_sequences(program):
    table = call("embedding", words(program), [10, 4])
    index = call("cast", call("slice", program.global_block().var("rows"), [1], [0], [1]), "int64")
    assert call("gather", table, index).name not in resolve(program).lods


def test_equal_arrays_are_made_once_and_names_of_sequences_are_no_inputs(program):
    x = call("embedding", words(program), [10, 4])
    pooled = call("sequence_pool", x, "sum")
    first, second = call("sequence_expand_as", pooled, x), call("sequence_expand_as", pooled, x)
    found = resolve(program)
    assert len(found.recipes) == 1
    expands = [op for op in found.program.global_block().ops if op.type == "sequence_expand_as"]
    assert [op.inputs["Index"] for op in expands] == [[found.recipes[0].name]] * 2
    assert all("Y" not in op.inputs for op in expands)
    assert found.lods[first.name] == found.lods[second.name] == ("words@LOD0",)
    (part,) = found.complete([{"words@LOD0": np.array([0, 2, 2, 5])}])
    assert part[found.recipes[0].name].tolist() == [0, 0, 2, 2, 2]


def test_a_layer_that_misses_sequences_is_named_with_its_line(program):
    with program.place(Span("model.yaml", 7, 3)):
        call("sequence_pool", program.global_block().var("rows"), "sum")
    with pytest.raises(PeError, match="sequence_pool needs sequences, but its X 'rows' has plain rows") as caught:
        resolve(program)
    assert caught.value.at.line == 7
    assert "lod_level: 1" in caught.value.hint


def test_lengths_that_are_computed_in_the_step_are_refused(program):
    block = call("reshape", program.global_block().var("rows"), [0, 3, 2])
    length = call("cast", call("reduce_sum", block, [1, 2]), "int64")
    call("sequence_unpad", block, length)
    with pytest.raises(PeError, match="computed in the step"):
        resolve(program)


def test_text_json_clones_and_pruned_programs_carry_levels(program):
    out = call("sequence_pool", call("embedding", words(program), [10, 4]), "sum")
    text = to_string(program)
    assert 'var words: int64[batch, 1] is_data stop_gradient {"lod_level": 1}' in text
    copies = [from_string(text), from_json(to_json(program)), program.clone(), prune(program, [out.name])]
    for copy in copies:
        assert copy.global_block().var("words").lod_level == 1
        assert resolve(copy).feeds == {"words": ("words@LOD0",)}
    assert to_string(from_string(text)) == text


def test_a_program_without_sequences_is_itself(program):
    program.global_block().var("words").lod_level = 0
    assert resolve(program).program is program
