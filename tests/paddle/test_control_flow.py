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


def test_what_only_a_step_knows_is_not_there_yet():
    x = fluid.data("x", [1])
    with pytest.raises(NotThereYet, match=r"'less_than_0\.tmp_0' depends on what is fed"):
        L.cond(x < number(1), lambda: x, lambda: x)
    with pytest.raises(NotThereYet, match="whose value only a step knows"):
        L.array_write(x, fluid.data("i", [1], dtype="int64"))
    with pytest.raises(TypeError, match="a condition is a bool variable"):
        L.cond("x", lambda: x)


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
