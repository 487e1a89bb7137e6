"""Programs as JSON: everything comes back, and files that are no programs are errors."""

from __future__ import annotations

import json

import pytest

from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.program import serialize
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Parameter, Program
from pe_cli.program.parse import parse_program
from pe_cli.program.serialize import from_dict, from_json, to_dict, to_json
from pe_cli.program.text_forms import from_string
from tests.program.support import TWO_LAYERS

PLACE = Span("models/mlp.yaml", 4, 6, 3, "  fc: {type: fc}")


@pytest.fixture
def program():
    made = parse_program(TWO_LAYERS)
    append_backward(made.global_block().var("loss"))
    made.global_block().ops[0].at = PLACE
    made.global_block().vars["w1"].at = PLACE
    return made


def fields(program):
    """Return everything a program holds as plain values."""
    out = [program.name, program.random_seed, program.is_test]
    for block in program.blocks:
        for v in block.vars.values():
            out.append((type(v), {k: x for k, x in vars(v).items() if k != "block"}))
        out += [vars(op) for op in block.ops]
    return out


def test_everything_comes_back(program):
    assert fields(from_json(to_json(program))) == fields(program)


def test_bytes_are_read_as_text(program):
    assert fields(from_string(to_json(program).encode())) == fields(program)


def test_infinite_numbers_are_valid_json():
    program = Program()
    program.global_block().append_op("fill_constant", {}, {"Out": "x"}, {"value": float("inf"), "shape": [1]})
    text = to_json(program)
    assert "Infinity" not in text
    assert from_json(text).global_block().ops[0].attrs["value"] == float("inf")


def test_parameters_stay_parameters(program):
    block = from_json(to_json(program)).global_block()
    assert [p.name for p in block.parameters()] == ["w1", "w2"]
    assert isinstance(block.vars["w2"], Parameter)
    assert block.vars["w2"].learning_rate == 0.5
    assert block.vars["x"].type == TensorType((-1, 4))


def broken(program, change):
    data = json.loads(to_json(program))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda d: d.update(format="zip"), "its format is 'zip'", id="another format"),
        pytest.param(lambda d: d.update(version=99), "format version 99", id="a newer version"),
        pytest.param(lambda d: d.update(version=True), "version must be int", id="a version that is no number"),
        pytest.param(lambda d: d.pop("blocks"), "program has no 'blocks'", id="no blocks"),
        pytest.param(lambda d: d.update(blocks=[]), "the program has no block", id="an empty list of blocks"),
        pytest.param(
            lambda d: d.update(blocks=[3]), r"blocks[0] must be an object, got int", id="a block that is a number"
        ),
        pytest.param(lambda d: d["blocks"][0]["vars"][1].update(shape=[1, "a"]), "vars[1]: shape", id="a bad shape"),
        pytest.param(
            lambda d: d["blocks"][0]["vars"][0].update(dtype="float8"), "vars[0]: unknown dtype", id="a bad dtype"
        ),
        pytest.param(
            lambda d: d["blocks"][0]["ops"][2].update(type="evil"), "ops[2]: there is no op 'evil'", id="a bad op"
        ),
        pytest.param(
            lambda d: d["blocks"][0]["ops"][0].update(role="boss"), "there is no role 'boss'", id="a bad role"
        ),
        pytest.param(
            lambda d: d["blocks"][0]["ops"][0].update(inputs={"X": "x"}), "must be a list of names", id="bad inputs"
        ),
        pytest.param(
            lambda d: d["blocks"][0]["ops"][0].update(inputs={"Z": ["x"]}), "has no input 'Z'", id="a bad slot"
        ),
        pytest.param(lambda d: d["blocks"][0]["ops"][0].update(at=["f", 1]), "place ['f', 1]", id="a bad place"),
        pytest.param(
            lambda d: d["blocks"][0]["ops"][0].update(attrs={"a": 1}), "no attribute 'a'", id="a bad attribute"
        ),
    ],
)
def test_a_damaged_file_is_an_error(program, change, message):
    with pytest.raises(PeError) as caught:
        from_dict(broken(program, change))
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "not valid JSON", id="half a file"),
        pytest.param("[1]", "program must be an object", id="a list"),
        pytest.param("[" * 100_000, "not valid JSON", id="deep nesting"),
    ],
)
def test_text_that_is_no_program_is_an_error(text, message):
    with pytest.raises(PeError, match=message):
        from_json(text)


def test_a_program_beyond_the_limit_is_neither_written_nor_read(program, monkeypatch):
    text = to_json(program)
    monkeypatch.setattr(serialize, "MAX_BYTES", len(text) - 1)
    with pytest.raises(PeError, match="more than"):
        to_json(program)
    with pytest.raises(PeError, match="more than"):
        from_json(text)


def test_the_dictionary_is_plain_json(program):
    assert json.loads(json.dumps(to_dict(program))) == to_dict(program)
