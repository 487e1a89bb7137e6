"""verify finds what is wrong with a program, at the place of the op."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import PeError, PeErrors, Span
from pe_cli.core.types import TensorType
from pe_cli.program.backward import append_backward
from pe_cli.program.parse import parse_program
from pe_cli.program.verify import verify
from tests.program.support import TWO_LAYERS, program_of


def test_a_program_with_backward_is_valid():
    program = parse_program(TWO_LAYERS)
    append_backward(program.global_block().var("loss"))
    verify(program)


def test_an_update_that_names_its_parameter_and_gradient_is_valid():
    verify(program_of(
        "param w: float32[2]",
        "var w@GRAD: float32[2] persistable",
        "optimize assign(X=w@GRAD) -> Out=w vars(w, w@GRAD)",
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(["var a: float32[2]", "forward tanh(X=a) -> Out=b: float32[2]"],
                     "reads 'a' before any op writes it",
                     id="an input that nothing defines"),
        pytest.param(["var a: float32[2] is_data", "var b: float32[2]", "forward tanh(X=b) -> Out=c: float32[2]",
                      "forward tanh(X=a) -> Out=b"], "reads 'b' before", id="ops in the wrong order"),
        pytest.param(["var a: float32[2] is_data", "forward tanh(X=a) -> Out=a"], "writes 'a', which is fed",
                     id="an op that writes what is fed"),
        pytest.param(["var a: float32[2] is_data", "forward tanh(X=a) -> Out=b: float32[3]"],
                     "writes float32[2] to 'b', which is float32[3]", id="an output of another shape"),
        pytest.param(["var a: float32[2] is_data", "forward mean(X=a) -> Out=b: float64[1]"],
                     "writes float32[1] to 'b'",
                     id="an output of another dtype"),
        pytest.param(["var a: float32[2, 3] is_data", "forward mul(X=a, Y=a) -> Out=b: float32[2, 3]"], "3 != 2",
                     id="inputs that do not fit"),
        pytest.param(["var a: float32[2] is_data", "forward tanh(X=[a, a]) -> Out=b: float32[2]"],
                     "takes one variable as input X",
                     id="two variables in a slot for one"),
        pytest.param(["forward tanh() -> Out=b: float32[2]"], "needs an input X", id="a missing input"),
        pytest.param(["var a: float32[2] is_data", "forward tanh(X=a) -> Out=b: float32[2] vars(a)"], "come in pairs",
                     id="half a pair of parameter and gradient"),
        pytest.param(["var a: float32[2] is_data", "forward tanh(X=a) -> Out=b: float32[2] vars(a, b)"],
                     "'a', which is no parameter", id="a role that names no parameter"),
        pytest.param(["param w: float32[2]", "optimize tanh(X=w) -> Out=b: float32[2] vars(w, g)"],
                     "'g', which does not exist",
                     id="a role that names what does not exist"),
        pytest.param(["param w: float32[2]", "var g: float32[3] is_data", "optimize tanh(X=w) -> Out=w vars(w, g)"],
                     "gradient 'g' is float32[3]", id="a gradient of another shape"),
        pytest.param(["param w: float32[2]", "optimize tanh(X=w) -> Out=w"], "updates the parameter 'w'",
                     id="an update that does not name its parameter"),
    ],
)  # fmt: skip
def test_a_broken_program_is_an_error_at_its_op(lines, message):
    program = program_of(*lines)
    place = Span("model.yaml", 9, 3)
    for op in program.global_block().ops:
        op.at = place
    with pytest.raises(PeError) as caught:
        verify(program)
    assert message in caught.value.message
    assert caught.value.at == place


def test_a_removed_variable_is_an_error():
    program = parse_program(TWO_LAYERS)
    del program.global_block().vars["a"]
    with pytest.raises(PeErrors) as caught:
        verify(program)
    assert [e.message for e in caught.value.errors] == [
        "op 'tanh' writes 'a', which does not exist",
        "op 'mul' reads 'a', which does not exist",
    ]


def test_a_changed_type_is_an_error():
    program = parse_program(TWO_LAYERS)
    program.global_block().vars["w2"].type = TensorType((5, 1))
    with pytest.raises(PeError, match="3 != 5"):
        verify(program)


def test_an_unknown_op_is_an_error():
    program = parse_program(TWO_LAYERS)
    program.global_block().ops[1].type = "tanhh"
    with pytest.raises(PeError, match="there is no op 'tanhh'"):
        verify(program)


def test_all_mistakes_are_found_in_one_run():
    program = program_of(
        "var a: float32[2]",
        "forward tanh(X=a) -> Out=b: float32[2]",
        "forward mean(X=b) -> Out=c: float32[7]",
    )
    with pytest.raises(PeErrors) as caught:
        verify(program)
    assert len(caught.value.errors) == 2
