"""Programs as text: what is shown, and that reading it back prints the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role
from pe_cli.program.json_values import portable, read_json
from pe_cli.program.parse import parse_program
from pe_cli.program.text import print_program
from pe_cli.program.text_forms import from_string, to_string
from tests.program.support import TWO_LAYERS, program_of


@portable
@dataclass(frozen=True)
class HalfDecay:
    """A regularizer for these tests."""

    coeff: float = 0.5


def line(text, word):
    """Return the first line with a word."""
    return next(part.strip() for part in text.splitlines() if word in part)


def test_a_hand_written_program_prints_as_it_was_written():
    assert print_program(parse_program(TWO_LAYERS)) == TWO_LAYERS


def test_a_program_with_backward_prints_the_same_after_reading():
    program = parse_program(TWO_LAYERS)
    append_backward(program.global_block().var("loss"))
    text = print_program(program)
    assert "backward mul_grad(" in text
    assert "vars(w1, w1@GRAD)" in text
    assert print_program(parse_program(text)) == text


def test_details_print_the_same_after_reading():
    program = parse_program(TWO_LAYERS)
    text = to_string(program, with_details=True)
    assert '"x_num_col_dims": 1' in text
    assert '"do_model_average": true' in text
    assert to_string(from_string(text), with_details=True) == text


def test_reading_keeps_every_fact():
    program = program_of('param w: float64[2] {"trainable": false, "learning_rate": 2, "do_model_average": true}')
    w = program.global_block().vars["w"]
    assert (w.type, w.trainable, w.learning_rate, w.do_model_average, w.persistable) == (
        TensorType((2,), "float64"), False, 2.0, True, True,
    )  # fmt: skip


def test_reading_keeps_a_weight_decay_of_its_own():
    program = program_of('param w: float64[2] {"weight_decay": 0.5}', "param v: float64[2]")
    again = parse_program(print_program(program)).global_block().vars
    assert [again[name].weight_decay for name in "wv"] == [0.5, None]


def test_reading_keeps_roles_scopes_and_attributes():
    program = program_of(
        "param w: float32[2]",
        "param w@GRAD: float32[2]",
        'optimize scale(X=w@GRAD) -> Out=w {"scale": -0.5} vars(w, w@GRAD) scope("head/")',
    )
    (op,) = program.global_block().ops
    assert (op.role, op.role_vars, op.scope, op.attrs["scale"]) == (Role.OPTIMIZE, ["w", "w@GRAD"], "head/", -0.5)


def test_attributes_that_are_left_out_have_their_defaults():
    program = parse_program(TWO_LAYERS)
    assert program.global_block().ops[0].attrs == {"x_num_col_dims": 1, "y_num_col_dims": 1}


def test_infinite_attributes_survive():
    program = program_of(
        'forward fill_constant() -> Out=x: float32[1] stop_gradient {"value": {"$float": "-inf"}}',
    )
    assert program.global_block().ops[0].attrs["value"] == float("-inf")
    assert '{"value": {"$float": "-inf"}}' in print_program(program)


def test_names_that_are_no_plain_words_are_quoted():
    program = Program('a "name"')
    block = program.global_block()
    block.create_var("my input", TensorType((-1, 2)), is_data=True)
    block.create_var("]", TensorType((-1, 2)), is_data=True)
    block.append_op("sum", {"X": ["my input", "]"]}, {"Out": "x -> y"})
    text = print_program(program)
    assert line(text, "sum") == 'forward sum(X=["my input", "]"]) -> Out="x -> y": float32[batch, 2] stop_gradient'
    assert print_program(parse_program(text)) == text


def test_a_variable_that_is_read_before_it_is_written_stands_before_the_ops():
    text = print_program(program_of("var a: float32[2]", "forward tanh(X=a) -> Out=a"))
    assert line(text, "var a") == "var a: float32[2]"
    assert print_program(parse_program(text)) == text


def test_several_blocks_keep_their_order():
    text = 'program ""\nblock 0\n  var x: float32[2]\nblock 1\n  var x: int64[]\n'
    assert print_program(parse_program(text)) == text


def test_an_object_of_a_portable_class_survives():
    program = Program()
    program.global_block().create_parameter("w", TensorType((2,)), regularizer=HalfDecay(0.25))
    text = print_program(program)
    assert line(text, "param") == 'param w: float32[2] {"regularizer": {"$class": "HalfDecay", "coeff": 0.25}}'
    assert parse_program(text).global_block().vars["w"].regularizer == HalfDecay(0.25)


def test_an_object_of_another_class_is_an_error():
    program = Program()
    program.global_block().create_parameter("w", TensorType((2,)), regularizer=object())
    with pytest.raises(PeError, match="object of type object"):
        print_program(program)


def test_comments_and_empty_lines_are_skipped():
    commented = "# a comment\n\n" + TWO_LAYERS.replace("  forward mean", "  # another\n\n  forward mean")
    assert print_program(parse_program(commented)) == TWO_LAYERS


def test_throw_on_error_checks_the_program_first():
    program = program_of("var a: float32[2]", "forward tanh(X=a) -> Out=b: float32[2]")
    assert "tanh" in to_string(program)
    with pytest.raises(PeError, match="before any op writes it"):
        to_string(program, throw_on_error=True)


@pytest.mark.parametrize(
    ("lines", "place", "message"),
    [
        pytest.param(["var x float32[2]"], "3:7", "expected ':', got 'float32'", id="a missing colon"),
        pytest.param(["var x: float16[2]"], "3:8", "unknown dtype 'float16'", id="an unknown dtype"),
        pytest.param(["var x: float32[two]"], "3:16", "expected a number, got 'two'", id="a size that is no number"),
        pytest.param(["var x: float32[2"], None, "the line ends too early", id="an open bracket"),
        pytest.param(["var x: float32[2] wrong"], "3:19", "unexpected 'wrong'", id="an unknown flag"),
        pytest.param(["forwrd tanh()"], "3:1", "unknown word 'forwrd'", id="an unknown role"),
        pytest.param(["forward tann()"], "3:9", "there is no op 'tann'", id="an unknown op"),
        pytest.param(["forward tanh(X=a) -> "], None, "there is no variable 'a'", id="an unknown variable"),
        pytest.param(["var a: float32[2]", "forward tanh(Y=a) -> "], None, "no input 'Y'", id="an unknown slot"),
        pytest.param(["var a: float32[2]", "var a: float32[2]"], None, "declared twice", id="a name twice"),
        pytest.param(["var a: float32[2]", 'forward scale(X=a) -> {"factor": 1}'], None, "no attribute 'factor'",
                     id="an unknown attribute"),
        pytest.param(["var a: float32[2]", 'forward scale(X=a) -> {"scale": }'], None, "bad attributes",
                     id="attributes that are no JSON"),
        pytest.param(["block 2"], "3:7", "block 2 comes after 1 blocks", id="a block number that is skipped"),
        pytest.param(['param w: float32[2] {"regularizer": {"$class": "Halfdecay"}}'], None, "unknown class",
                     id="an unknown class"),
        pytest.param(['param w: float32[2] {"trainable": 1}'], None, "trainable must be bool",
                     id="a fact of another type"),
        pytest.param(['param w: float32[2] {"block": 1}'], None, "a parameter has no 'block'", id="an unknown fact"),
    ],
)  # fmt: skip
def test_bad_text_is_an_error_with_its_place(lines, place, message):
    with pytest.raises(PeError) as caught:
        program_of(*lines)
    assert message in caught.value.message
    assert caught.value.at.line == 2 + len(lines)
    if place:
        assert str(caught.value.at) == f"program:{place}"


@pytest.mark.parametrize(("last", "beyond"), [(2**64 - 1, 2**64), (-(2**63), -(2**63) - 1)])
def test_numbers_have_64_bits(last, beyond):
    assert read_json(str(last)) == (last, len(str(last)))
    with pytest.raises(ValueError, match="has more than 64 bits"):
        read_json(str(beyond))


def test_text_without_a_program_is_an_error():
    with pytest.raises(PeError, match="has no program"):
        parse_program("# nothing\n")
