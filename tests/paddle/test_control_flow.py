"""Branches, loops and arrays whose course is known when the program is built."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import NotThereYet

L = fluid.layers
pytestmark = pytest.mark.usefixtures("fresh")


def run(*fetches, **feed):
    return [v.tolist() for v in fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))]


def number(value, dtype="float32"):
    return L.fill_constant([1], dtype, value)


def test_only_the_branch_that_is_taken_is_there():
    small, large = number(0.1), number(0.2)
    taken = L.cond(small < large, lambda: number(1), lambda: L.fill_constant([2, 3], "int64", 2))
    assert run(taken) == [[1]]
    last = L.case([(small > large, lambda: number(3)), (small == large, lambda: number(4))])
    first = L.case([(small > large, lambda: number(3)), (large > small, lambda: number(4))], default=lambda: number(5))
    assert run(last, first) == [[4], [4]]
    assert run(L.switch_case(number(7, "int32"), {1: lambda: number(1), 7: lambda: number(6)})) == [[6]]


def test_a_loop_is_written_out():
    i, ten = L.while_loop(lambda i, n: i < n, lambda i, n: [i + 1, n], [number(0, "int64"), number(10, "int64")])
    assert run(i, ten) == [[10], [10]]


def test_a_branch_that_only_a_step_knows_is_selected():
    x = fluid.data("x", [1])
    x.stop_gradient = False
    inverse = L.cond(x > 0, lambda: 1 / x, lambda: x * 3)
    slope = fluid.gradients([inverse], [x])[0]
    found = [run(inverse, slope, x=np.array([v], "float32")) for v in (4, -2)]
    assert found == [[[0.25], [-0.0625]], [[-6], [3]]]
    assert run(L.cond(x > 0, lambda: 1 / x, lambda: x), x=np.zeros(1, "float32")) == [[0]]


def test_what_cannot_be_selected():
    x = fluid.data("x", [1])
    with pytest.raises(ValueError, match="return tensors of one type"):
        L.cond(x < 1, lambda: x, lambda: None)
    outside = number(1)
    with pytest.raises(NotThereYet, match="a branch writes to"):
        L.cond(x < 1, lambda: L.assign(x, outside), lambda: x)
    with pytest.raises(NotThereYet, match="while_loop: the condition depends on what is fed"):
        L.while_loop(lambda v: v < 1, lambda v: v + 1, [x])
    with pytest.raises(NotThereYet, match="whose value only a step knows"):
        L.array_write(x, fluid.data("i", [1], dtype="int64"))
    with pytest.raises(TypeError, match="a condition is a bool variable"):
        L.cond("x", lambda: x)


def test_a_switch_writes_in_the_first_case_that_holds():
    step = fluid.data("step", [1])
    rate = L.create_global_var([1], 9.0, "float32", persistable=True, name="rate")
    with L.control_flow.Switch() as switch:
        with switch.case(step < 1):
            L.assign(number(0.5), rate)
        with switch.case(step < 2):
            L.assign(number(0.25), rate)
        with switch.default():
            L.assign(rate * 0.5, rate)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    found = [executor.run(feed={"step": np.array([i], "float32")}, fetch_list=[rate])[0].tolist() for i in range(4)]
    assert found == [[0.5], [0.25], [0.125], [0.0625]]


def test_multiplex_takes_whole_rows():
    a, b = fluid.data("a", [-1, 2]), fluid.data("b", [-1, 2])
    index = fluid.data("index", [-1, 1], dtype="int32")
    feed = {"a": np.array([[1, 2], [3, np.nan]], "float32"), "b": np.array([[5, 6], [7, 8]], "float32")}
    assert run(L.multiplex([a, b], index), index=np.array([[1], [1]], "int32"), **feed) == [[[5, 6], [7, 8]]]
    assert run(L.multiplex([a, b], index), index=np.array([[0], [1]], "int32"), **feed) == [[[1, 2], [7, 8]]]


def test_arrays_of_tensors():
    i = number(0, "int64")
    array = L.array_write(number(5), i)
    L.array_write(number(6), i + 1, array)
    joined, sizes = L.tensor_array_to_tensor(array, axis=0)
    assert run(L.array_read(array, i + 1), L.array_length(array), joined, sizes) == [[6], [2], [5, 6], [1, 1]]
    with pytest.raises(ValueError, match="nothing was written at 4"):
        L.array_read(array, 4)


def test_sizes_of_feeds_with_a_known_shape_are_constants():
    x = fluid.data("x", [4, 3])
    half = L.slice(L.shape(x), [0], [1], [2])
    assert run(L.full([half, 2], 1.0), x=np.zeros((4, 3), "float32")) == [[[1, 1]] * 3]
    with pytest.raises(NotThereYet):
        L.full([L.slice(L.shape(fluid.data("y", [-1, 3])), [0], [0], [1])], 1.0)
