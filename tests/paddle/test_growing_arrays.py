"""Arrays of tensors that have no tensor before the loop or branch that writes them, with what 1.8.5 computes."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers
X = np.float32([[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]])


def run(feed, *fetched):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return [np.array(v) for v in executor.run(feed={"x": feed}, fetch_list=list(fetched), return_numpy=False)]


def repeat(body, rounds=3):
    """Run a body of the number of the round."""
    i, most = L.zeros([1], "int64"), L.fill_constant([1], "int64", rounds)
    going = L.less_than(i, most)
    loop = L.While(going)
    with loop.block():
        body(i)
        L.increment(i)
        L.less_than(i, most, cond=going)
    return i


def joined(array, axis=1):
    return L.tensor_array_to_tensor(array, axis)[0]


def test_gradients_flow_through_an_array_that_a_loop_begins():
    x, array = fluid.data("x", [None, 3]), L.create_array("float32")
    weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.1))
    repeat(lambda i: L.array_write(L.fc(x, 3, param_attr=weight, bias_attr=False), i, array))
    loss = L.mean(L.square(joined(array)))
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    found = [executor.run(feed={"x": X}, fetch_list=[loss, "w"]) for _ in range(2)]
    np.testing.assert_allclose([step[0].item() for step in found], [0.0077, 0.0063], atol=5e-5)
    np.testing.assert_allclose(found[1][1][:, 0], [0.0885, 0.0838, 0.079], atol=5e-5)


def test_a_loop_in_a_loop_begins_an_array():
    x, outer, inner = fluid.data("x", [None, 3]), L.create_array("float32"), L.create_array("float32")

    def body(i):
        L.array_write(L.scale(x, 2.0), i, outer)
        repeat(lambda j: L.array_write(L.elementwise_add(x, L.cast(j, "float32")), j, inner), 2)

    repeat(body)
    a, b, length = run(X, joined(outer), joined(inner), L.array_length(inner))
    np.testing.assert_allclose(a, np.tile(2 * X, 3), rtol=1e-6)
    np.testing.assert_allclose(b, np.concatenate([X, X + 1], 1), rtol=1e-6)
    assert length.tolist() == [2]


@pytest.mark.parametrize("begun", [False, True])
def test_cases_of_a_switch_write_an_array(begun):
    x, array, two = fluid.data("x", [None, 3]), L.create_array("float32"), L.fill_constant([1], "int64", 2)
    if begun:
        L.array_write(x, L.zeros([1], "int64"), array)

    def body(i):
        with L.Switch() as switch:
            with switch.case(L.less_than(i, two)):
                L.array_write(L.scale(x, 2.0), i, array)
            with switch.default():
                L.array_write(L.scale(x, 3.0), i, array)

    repeat(body)
    found, length = run(X, joined(array), L.array_length(array))
    np.testing.assert_allclose(found, np.concatenate([2 * X, 2 * X, 3 * X], 1), rtol=1e-6)
    assert length.tolist() == [3]


def test_a_second_loop_reads_what_the_first_one_began():
    x, first, second = fluid.data("x", [None, 3]), L.create_array("float32"), L.create_array("float32")
    repeat(lambda i: L.array_write(L.scale(x, 2.0), i, first))
    repeat(lambda i: L.array_write(L.scale(L.array_read(first, i), 2.0), i, second))
    np.testing.assert_allclose(run(X, joined(second))[0], np.tile(4 * X, 3), rtol=1e-6)


def test_the_length_of_an_array_is_a_condition():
    x, array = fluid.data("x", [None, 3]), L.create_array("float32")
    i, most = L.zeros([1], "int64"), L.fill_constant([1], "int64", 4)
    going = L.less_than(L.array_length(array), most)
    loop = L.While(going)
    with loop.block():
        L.array_write(L.elementwise_mul(x, L.cast(i, "float32")), i, array)
        L.increment(i)
        L.less_than(L.array_length(array), most, cond=going)
    found, rounds = run(X, joined(array, 0), i)
    np.testing.assert_allclose(found, np.concatenate([X * n for n in range(4)]), rtol=1e-6)
    assert rounds.tolist() == [4]


def test_sequences_stay_with_the_tensors_of_an_array():
    x, array = fluid.data("x", [None, 3], lod_level=1), L.create_array("float32")
    repeat(lambda i: L.array_write(L.scale(x, 2.0), i, array))
    whole = L.sequence_pool(L.array_read(array, L.fill_constant([1], "int64", 1)), "sum")
    (found,) = run(fluid.create_lod_tensor(X, [[2]], fluid.CPUPlace()), whole)
    np.testing.assert_allclose(found, [2 * X.sum(0)], rtol=1e-6)
