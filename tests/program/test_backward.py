"""append_backward and gradients: which ops they append, and that repeated uses are summed."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.program.backward import append_backward, gradients
from pe_cli.program.ir import Role
from pe_cli.program.parse import parse_program
from pe_cli.program.verify import verify
from tests.program.support import TWO_LAYERS, program_of, run


def backward_of(program, **options):
    """Return parameter name -> gradient name."""
    pairs = append_backward(program.global_block().var("loss"), **options)
    verify(program)
    return {p.name: g.name for p, g in pairs}


def types(program, role=Role.BACKWARD):
    return [op.type for op in program.global_block().ops if op.role is role]


def test_one_gradient_op_per_forward_op_in_reverse():
    program = parse_program(TWO_LAYERS)
    assert backward_of(program) == {"w1": "w1@GRAD", "w2": "w2@GRAD"}
    assert types(program, Role.LOSS) == ["fill_like"]
    assert types(program) == ["mean_grad", "mul_grad", "tanh_grad", "mul_grad"]


def test_the_op_that_makes_a_gradient_names_the_pair():
    program = parse_program(TWO_LAYERS)
    backward_of(program)
    named = [op.role_vars for op in program.global_block().ops if op.role_vars]
    assert named == [["w2", "w2@GRAD"], ["w1", "w1@GRAD"]]


def test_gradient_ops_keep_the_place_and_scope_of_their_forward_op():
    program = parse_program(TWO_LAYERS)
    backward_of(program)
    (op,) = [op for op in program.global_block().ops if op.type == "tanh_grad"]
    assert op.scope == "hidden/"


def test_values_agree_with_the_chain_rule(rng):
    x, w1, w2 = rng.standard_normal((5, 4)), rng.standard_normal((4, 3)), rng.standard_normal((3, 1))
    program = parse_program(TWO_LAYERS.replace("float32", "float64"))
    found = backward_of(program)
    got = run(program, {"w1": w1, "w2": w2}, [found["w1"], found["w2"]], {"x": x})
    a = np.tanh(x @ w1)
    da = np.full((5, 1), 1 / 5) @ w2.T
    np.testing.assert_allclose(got[0], x.T @ (da * (1 - a * a)), rtol=1e-9)
    np.testing.assert_allclose(got[1], a.T @ np.full((5, 1), 1 / 5), rtol=1e-9)


def test_a_variable_with_two_readers_gets_the_sum():
    program = program_of(
        "param w: float64[2]",
        "forward tanh(X=w) -> Out=a: float64[2]",
        "forward square(X=w) -> Out=b: float64[2]",
        "forward sum(X=[a, b]) -> Out=c: float64[2]",
        "forward mean(X=c) -> Out=loss: float64[1]",
    )
    found = backward_of(program)
    assert types(program).count("sum") == 1
    w = np.array([0.3, -2.0])
    (got,) = run(program, {"w": w}, [found["w"]])
    np.testing.assert_allclose(got, (1 - np.tanh(w) ** 2 + 2 * w) / 2, rtol=1e-9)


def test_a_variable_with_three_readers_gets_the_sum_in_one_op():
    program = program_of(
        "param w: float64[2]",
        "forward tanh(X=w) -> Out=a: float64[2]",
        "forward square(X=w) -> Out=b: float64[2]",
        "forward sum(X=[a, b, w]) -> Out=c: float64[2]",
        "forward mean(X=c) -> Out=loss: float64[1]",
    )
    found = backward_of(program)
    (total,) = [op for op in program.global_block().ops if op.type == "sum" and op.role is Role.BACKWARD]
    assert len(total.inputs["X"]) == 3
    w = np.array([0.3, -2.0])
    (got,) = run(program, {"w": w}, [found["w"]])
    np.testing.assert_allclose(got, (1 - np.tanh(w) ** 2 + 2 * w + 1) / 2, rtol=1e-9)


def test_a_variable_in_two_slots_of_one_op_gets_the_sum(rng):
    program = program_of(
        "param w: float64[3, 3]",
        "forward mul(X=w, Y=w) -> Out=s: float64[3, 3]",
        "forward mean(X=s) -> Out=loss: float64[1]",
    )
    found = backward_of(program)
    w = rng.standard_normal((3, 3))
    (got,) = run(program, {"w": w}, [found["w"]])
    g = np.full((3, 3), 1 / 9)
    np.testing.assert_allclose(got, g @ w.T + w.T @ g, rtol=1e-9)


def test_a_variable_twice_in_a_list_gets_both_gradients():
    program = program_of(
        "param w: float64[2]",
        "forward concat(X=[w, w]) -> Out=c: float64[4]",
        "forward square(X=c) -> Out=q: float64[4]",
        "forward mean(X=q) -> Out=loss: float64[1]",
    )
    found = backward_of(program)
    (got,) = run(program, {"w": [1.0, -3.0]}, [found["w"]])
    np.testing.assert_allclose(got, [1.0, -3.0], rtol=1e-12)


def test_an_input_of_a_list_without_a_gradient_is_left_out():
    program = program_of(
        "param w: float64[2]",
        "var x: float64[2] persistable stop_gradient",
        "forward concat(X=[x, w]) -> Out=c: float64[4]",
        "forward square(X=c) -> Out=q: float64[4]",
        "forward mean(X=q) -> Out=loss: float64[1]",
    )
    found = backward_of(program)
    (got,) = run(program, {"w": [1.0, -3.0], "x": [5.0, 6.0]}, [found["w"]])
    np.testing.assert_allclose(got, [0.5, -1.5], rtol=1e-12)


def test_stop_gradient_cuts_the_walk():
    program = parse_program(TWO_LAYERS.replace("Out=a: float32[batch, 3]", "Out=a: float32[batch, 3] stop_gradient"))
    assert backward_of(program) == {"w2": "w2@GRAD"}
    assert types(program) == ["mean_grad", "mul_grad"]


def test_a_parameter_that_is_not_trainable_gets_no_gradient():
    program = parse_program(TWO_LAYERS.replace("w1: float32[4, 3]", 'w1: float32[4, 3] {"trainable": false}'))
    assert backward_of(program) == {"w2": "w2@GRAD"}
    assert types(program) == ["mean_grad", "mul_grad"]


def test_no_grad_set_cuts_the_walk():
    assert backward_of(parse_program(TWO_LAYERS), no_grad_set={"h"}) == {"w2": "w2@GRAD"}


def test_a_parameter_in_no_grad_set_has_no_gradient():
    program = parse_program(TWO_LAYERS)
    assert backward_of(program, no_grad_set={"w2"}) == {"w1": "w1@GRAD"}
    assert "w2@GRAD" not in program.global_block().vars


def test_parameter_list_limits_the_gradients():
    assert backward_of(parse_program(TWO_LAYERS), parameter_list=["w1"]) == {"w1": "w1@GRAD"}


def test_ops_that_the_loss_does_not_depend_on_get_no_gradient_op():
    program = parse_program(TWO_LAYERS + "  forward square(X=h) -> Out=unused: float32[batch, 3]\n")
    backward_of(program)
    assert "square_grad" not in types(program)


def test_an_output_that_nobody_uses_counts_as_zero():
    program = program_of(
        "param w: float64[4]",
        'forward split(X=w) -> Out=[a: float64[2], b: float64[2]] {"num": 2}',
        "forward square(X=b) -> Out=q: float64[2]",
        "forward mean(X=q) -> Out=loss: float64[1]",
    )
    found = backward_of(program)
    (got,) = run(program, {"w": [1.0, 2.0, 3.0, 4.0]}, [found["w"]])
    np.testing.assert_allclose(got, [0, 0, 3, 4], rtol=1e-12)


def test_gradients_of_any_variable_with_given_upstream(rng):
    program = program_of(
        "var x: float64[3] persistable",
        "var g: float64[3] persistable",
        "var other: float64[3] persistable",
        "forward square(X=x) -> Out=y: float64[3]",
    )
    block = program.global_block()
    first, second = gradients([block.var("y")], [block.var("x"), block.var("other")], [block.var("g")])
    assert second is None
    x, g = rng.standard_normal(3), rng.standard_normal(3)
    (got,) = run(program, {"x": x, "g": g}, [first.name])
    np.testing.assert_allclose(got, 2 * x * g, rtol=1e-12)


def test_a_loss_of_several_numbers_is_an_error():
    program = parse_program(TWO_LAYERS)
    with pytest.raises(PeError, match=r"the loss 'h' must be one number"):
        append_backward(program.global_block().var("h"))


def test_a_loss_that_depends_on_no_parameter_is_an_error():
    program = program_of("var x: float32[2] is_data", "forward mean(X=x) -> Out=loss: float32[1]")
    with pytest.raises(PeError, match="depends on no trainable parameter"):
        append_backward(program.global_block().var("loss"))
