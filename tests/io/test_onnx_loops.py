"""Loops and branches that are exported go the same way in onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from pe_cli.core.types import TensorType
from pe_cli.io.onnx.export import export
from pe_cli.layers.control.loops import collecting_while, cond, scan
from pe_cli.layers.define.registry import find as find_layer
from pe_cli.paddle import fluid
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program

X = np.arange(8, dtype="float32").reshape(2, 4)


def call(layer, *args):
    return find_layer(layer).fn(*args)


def session_of(program, names):
    """Return a function from feeds to what onnxruntime gives for them."""
    session = onnxruntime.InferenceSession(export(program, {}, names, "p"), providers=["CPUExecutionProvider"])
    return lambda **feeds: session.run(names, {n: np.asarray(a, "float32") for n, a in feeds.items()})


@pytest.fixture
def doubling():
    """Return a loop that doubles x as long as it has not gone `n` rounds, at most 5, and gives each round's sums."""
    main = Program("p")
    block = main.global_block()
    x = block.create_var("x", TensorType((-1, 4)), is_data=True)
    n = block.create_var("n", TensorType((1,)), is_data=True)

    def body(states):
        return [call("scale", states[0], 2.0), call("scale", states[1], 1.0, 1.0)], [call("reduce_sum", states[0], 1)]

    with program_guard(main, Program("startup")):
        begin = call("fill_constant", [1], "float32", 0.0)
        finals, rows, count = collecting_while(lambda states: call("less_than", states[1], n), body, [x, begin], bound=5)
    return session_of(main, [finals[0].name, rows[0].name, count.name])


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_a_while_goes_as_long_as_its_condition_holds(doubling, rounds):
    final, rows, count = doubling(x=X, n=[rounds])
    np.testing.assert_array_equal(final, X * 2.0**rounds)
    np.testing.assert_array_equal(rows, [X.sum(1) * 2.0**r if r < rounds else np.zeros(2) for r in range(5)])
    assert count.tolist() == [rounds]


def test_a_while_whose_condition_never_holds_gives_what_it_began_with(doubling):
    final, rows, count = doubling(x=X, n=[0])
    np.testing.assert_array_equal(final, X)
    np.testing.assert_array_equal(rows, np.zeros((5, 2)))
    assert count.tolist() == [0]


def test_more_rounds_than_the_bound_end_the_run_and_say_so(doubling):
    with pytest.raises(Exception, match="its condition still holds after 5 rounds"):
        doubling(x=X, n=[6])


@pytest.mark.parametrize(("n", "factor"), [pytest.param(-1.0, 3.0, id="the first branch"), pytest.param(1.0, -1.0, id="the second branch")])
def test_a_branch_is_taken_by_its_condition(n, factor):
    main = Program("p")
    x = main.global_block().create_var("x", TensorType((-1, 4)), is_data=True)
    number = main.global_block().create_var("n", TensorType((1,)), is_data=True)
    with program_guard(main, Program("startup")):
        below = call("less_than", number, call("fill_constant", [1], "float32", 0.0))
        (out,) = cond(below, lambda: [call("scale", x, 3.0)], lambda: [call("scale", x, -1.0)])
    (found,) = session_of(main, [out.name])(x=X, n=[n])
    np.testing.assert_array_equal(found, X * factor)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_a_scan_whose_rounds_only_a_step_knows_goes_through_the_first_ones(count, backwards):
    main = Program("p")
    block = main.global_block()
    x = block.create_var("x", TensorType((3, -1, 2)), is_data=True)
    h = block.create_var("h", TensorType((-1, 2)), is_data=True)
    n = block.create_var("n", TensorType((1,)), is_data=True)

    def step(each, states):
        made = call("elementwise_add", call("scale", states[0], 2.0), each[0])
        return [made], [made]

    with program_guard(main, Program("startup")):
        rounds = call("cast", n, "int64")
        (every,), (last,) = scan(step, [x], [h], backwards=backwards)
    loop = block.ops[-1]
    block.ops[-1] = replace(loop, inputs={**loop.inputs, "Count": [rounds.name]})
    rows, state = np.random.default_rng(1).standard_normal((3, 2, 2)).astype("float32"), np.ones((2, 2), "float32")
    found = session_of(main, [every.name, last.name])(x=rows, h=state, n=[count])
    wanted = np.zeros_like(rows)
    for at in range(min(count, 3))[:: -1 if backwards else 1]:
        state = wanted[at] = 2 * state + rows[at]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(found[1], state, rtol=1e-6)


def test_what_a_loop_of_fluid_writes_in_place_has_a_name_for_each_value():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [-1, 4], "float32")
        i, n = fluid.layers.fill_constant([1], "int64", 0), fluid.layers.fill_constant([1], "int64", 4)
        total, goes_on = fluid.layers.scale(x, 1.0), fluid.layers.less_than(i, n)
        with fluid.layers.While(goes_on).block():
            fluid.layers.assign(fluid.layers.scale(total, 2.0), total)
            fluid.layers.increment(i, 1, in_place=True)
            fluid.layers.less_than(i, n, cond=goes_on)
        more = fluid.layers.scale(total, 1.0, 1.0)
        fluid.layers.increment(i, 10, in_place=True)
    found = session_of(main, [more.name, i.name])(x=X)
    np.testing.assert_array_equal(found[0], X * 16 + 1)
    assert found[1].tolist() == [14]
