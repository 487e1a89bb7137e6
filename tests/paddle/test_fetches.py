"""What runs return: arrays of tensors by their names, feeds for some of the devices, and what scripts make schedules of."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.layers import learning_rate_scheduler

L = fluid.layers


def test_arrays_of_tensors_are_fetched_as_lists():
    x = fluid.data("x", [None, 2])
    array = L.array_write(L.reduce_sum(x), 1)
    L.array_write(x, 0, array)
    given = np.array([[1.0, 2.0]], "float32")
    exe = fluid.Executor(fluid.CPUPlace())
    test = fluid.default_main_program().clone(for_test=True)
    for program, wanted in ((None, array.name), (None, array), (test, array.name), (fluid.CompiledProgram(test), array.name)):
        total, found = exe.run(program, feed={"x": given}, fetch_list=[array.items[1].name, wanted])
        assert [np.asarray(v).tolist() for v in found] == [[[1, 2]], [3]]
        assert np.asarray(total).tolist() == [3]
    with pytest.raises(ValueError, match="no variable 'array' to fetch"):
        exe.run(feed={"x": given}, fetch_list=["array"])




def test_a_list_may_feed_the_first_devices_where_nothing_is_trained():
    x = fluid.data("x", [None])
    y = x * x
    exe = fluid.Executor(fluid.CPUPlace())
    both = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))
    feeds = [{"x": np.array([2.0], "float32")}, {"x": np.array([3.0], "float32")}]
    for feed, right in ((feeds, [4, 9]), (feeds[1:], [9]), (feeds, [4, 9])):
        assert exe.run(both, feed=feed, fetch_list=[y])[0].tolist() == right
    for feed in ([], [*feeds, *feeds]):
        with pytest.raises(ValueError, match=f"has {len(feed)} elements for 2 devices"):
            exe.run(both, feed=feed, fetch_list=[y])


def test_arrays_of_numbers_are_constants_and_the_counter_of_schedules_is_there():
    step = learning_rate_scheduler._decay_step_counter()
    sign = L.sign(np.array([3.0, 0.0, -2.0], "float32"))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for right in (0, 1):
        number, signs = exe.run(fetch_list=[step, sign])
        assert (number.tolist(), signs.tolist()) == ([right], [1, 0, -1])
    assert learning_rate_scheduler.noam_decay is L.noam_decay


def test_rows_of_one_number_are_printed_as_numbers():
    x = fluid.data("x", [None, 1])
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.array([[1.5], [2.0]], "float32")}, fetch_list=[x * 2.0])
    assert [f"%.1f {int(row)}" % row for row in found] == ["3.0 3", "4.0 4"]
    assert float(found[0] + found[1]) == 7
    assert [type(v) for v in (found.mean(), found[0, 0], np.max(found))] == [np.float32] * 3
    assert type(pickle.loads(pickle.dumps(found))) is np.ndarray
    assert repr(found) == repr(np.array([[3.0], [4.0]], "float32"))
    with pytest.raises(TypeError):
        float(found)


def test_sequences_that_are_fetched_as_arrays_are_told_before_the_step():
    x = fluid.layers.data("x", [2], lod_level=1)
    y = L.fc(x, 2)
    loss = L.mean(y)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.array(weight)
    fed = {"x": fluid.create_lod_tensor(np.ones((3, 2), "float32"), [[1, 2]], fluid.CPUPlace())}
    both = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name, places=fluid.cpu_places(2))
    for program in (fluid.default_main_program(), both):
        with pytest.raises(RuntimeError, match="has sequences"):
            exe.run(program, feed=fed, fetch_list=[y])
        np.testing.assert_array_equal(np.array(weight), before)
