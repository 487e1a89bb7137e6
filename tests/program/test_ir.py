"""Program, Block, Operator: what is inferred, cloned and refused."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.ops.define.schema import Attr, converted
from pe_cli.program.defaults import default_main_program, default_startup_program, program_guard
from pe_cli.program.epoch_attributes import Epochs
from pe_cli.program.ir import Program, Role
from pe_cli.program.parse import parse_program
from pe_cli.program.text_forms import to_string
from tests.program.support import TWO_LAYERS


@pytest.mark.parametrize(
    ("default", "given", "kept"),
    [
        pytest.param(1, np.int64(3), 3, id="a whole number of NumPy"),
        pytest.param(1.0, np.float32(0.5), 0.5, id="a number of NumPy"),
        pytest.param(1.0, 2, 2.0, id="a whole number for any"),
        pytest.param(1, Epochs(12), "12 epochs", id="epochs, which stay what they are"),
    ],
)
def test_numbers_become_pythons(default, given, kept):
    found = converted("op", "steps", given, Attr(default))
    assert type(found) is (type(default) if kept != "12 epochs" else Epochs)
    assert found == kept or str(found) == kept


def test_outputs_are_declared_with_inferred_types():
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, 4)), is_data=True)
    block.create_parameter("w", TensorType((4, 3)))
    block.append_op("mul", {"X": "x", "Y": "w"}, {"Out": "y"})
    assert block.var("y").type == TensorType((-1, 3))
    assert not block.var("y").stop_gradient


def test_outputs_of_data_alone_stop_gradients():
    block = Program().global_block()
    block.create_var("x", TensorType((-1, 4)), is_data=True)
    block.append_op("tanh", {"X": "x"}, {"Out": "y"})
    assert block.var("y").stop_gradient


def test_an_error_of_inference_has_the_place_of_the_layer():
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((2, 3)))
    place = Span("m.yaml", 4, 7)
    with pytest.raises(PeError) as caught, program.place(place):
        block.append_op("mul", {"X": "x", "Y": "x"}, {"Out": "y"})
    assert caught.value.at == place
    assert block.ops == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"type": "tanhh"}, "there is no op 'tanhh'", id="an unknown op"),
        pytest.param({"inputs": {"Y": "x"}}, "no input 'Y'", id="an unknown slot"),
        pytest.param({"inputs": {"X": "y"}}, "there is no variable 'y'", id="an unknown variable"),
        pytest.param({"attrs": {"a": 1}}, "no attribute 'a'", id="an unknown attribute"),
        pytest.param({"outputs": {"Out": "other"}}, "writes float32[2] to 'other'", id="an output of another type"),
    ],
)
def test_append_op_refuses(change, message):
    block = Program().global_block()
    block.create_var("x", TensorType((2,)))
    block.create_var("other", TensorType((3,)))
    with pytest.raises(PeError) as caught:
        block.append_op(**{"type": "tanh", "inputs": {"X": "x"}, "outputs": {"Out": "y"}, **change})
    assert message in caught.value.message


def test_roles_and_scopes_hold_inside_their_blocks_only():
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((2,)))
    with program.role(Role.OPTIMIZE, ["p", "g"]), program.name_scope("a"), program.name_scope("b"):
        block.append_op("tanh", {"X": "x"}, {"Out": "y"})
    block.append_op("tanh", {"X": "x"}, {"Out": "z"})
    assert [(op.role, op.role_vars, op.scope) for op in block.ops] == [
        (Role.OPTIMIZE, ["p", "g"], "a/b/"), (Role.FORWARD, [], ""),
    ]  # fmt: skip


def test_unique_names_skip_what_exists():
    program = Program()
    program.global_block().create_var("fc_1", TensorType((2,)))
    assert [program.unique("fc") for _ in range(3)] == ["fc_0", "fc_2", "fc_3"]


def test_renaming_a_variable_renames_it_in_every_op():
    program = parse_program(TWO_LAYERS)
    program.global_block().rename_var("h", "hidden")
    ops = program.global_block().ops
    assert ops[0].outputs == {"Out": ["hidden"]}
    assert ops[1].inputs == {"X": ["hidden"]}


def test_a_clone_prints_the_same_and_shares_nothing():
    program = parse_program(TWO_LAYERS)
    copy = program.clone()
    assert to_string(copy) == to_string(program)
    copy.global_block().append_op("tanh", {"X": "p"}, {"Out": "q"})
    copy.global_block().ops[0].inputs["X"][0] = "changed"
    copy.global_block().vars["w1"].trainable = False
    assert to_string(program) == TWO_LAYERS
    assert all(v.block is copy.global_block() for v in copy.list_vars())


def test_a_clone_makes_new_names_like_the_original():
    program = Program()
    program.unique("fc")
    assert program.clone().unique("fc") == "fc_1"


def test_a_clone_for_test_evaluates_and_prunes_nothing():
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, 4)), is_data=True)
    block.append_op("dropout", {"X": "x"}, {"Out": "y", "Mask": "mask"}, {"dropout_prob": 0.5})
    block.append_op("tanh", {"X": "y"}, {"Out": "z"})
    copy = program.clone(for_test=True)
    assert copy.is_test
    assert not program.is_test
    assert [op.attrs.get("is_test") for op in copy.global_block().ops] == [True, None]
    assert block.ops[0].attrs["is_test"] is False


def test_a_variable_cannot_take_the_name_of_another():
    block = Program("m").global_block()
    for name in ("a", "b"):
        block.create_var(name, TensorType((1,)))
    with pytest.raises(PeError, match="there is already a variable 'b'"):
        block.rename_var("a", "b")


def test_program_guard_sets_the_default_programs_inside():
    before = default_main_program(), default_startup_program()
    main, startup = Program("m"), Program("s")
    with program_guard(main, startup):
        assert (default_main_program(), default_startup_program()) == (main, startup)
    assert (default_main_program(), default_startup_program()) == before


def test_program_guard_without_a_startup_program_keeps_that():
    startup = default_startup_program()
    with program_guard(Program("m")):
        assert default_startup_program() is startup
