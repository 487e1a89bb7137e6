"""Branches and loops, which run in the step, and arrays of tensors."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers

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


def test_a_loop_whose_rounds_are_known():
    i, ten = L.while_loop(lambda i, n: i < n, lambda i, n: [i + 1, n], [number(0, "int64"), number(10, "int64")])
    assert run(i, ten) == [[10], [10]]


def ops():
    return [op.type for op in fluid.default_main_program().global_block().ops]


def test_a_branch_that_only_a_step_knows_runs_alone():
    x = fluid.data("x", [1])
    x.stop_gradient = False
    inverse = L.cond(x > 0, lambda: 1 / x, lambda: x * 3)
    slope = fluid.gradients([inverse], [x])[0]
    found = [run(inverse, slope, x=np.array([v], "float32")) for v in (4, -2)]
    assert found == [[[0.25], [-0.0625]], [[-6], [3]]]
    assert run(L.cond(x > 0, lambda: 1 / x, lambda: x), x=np.zeros(1, "float32")) == [[0]]
    assert ops().count("cond") == 3
    assert "select" not in ops()


def test_a_branch_gives_structures_and_writes_outside():
    x = fluid.data("x", [1])
    outside = number(1)
    (a, (b,)), none = L.cond(x > 0, lambda: [x, [x * 2]], lambda: [x * 3, [x * 4]]), L.cond(x > 0, lambda: None, lambda: None)
    L.cond(x < 1, lambda: L.assign(x, outside), lambda: x)
    assert none is None
    assert run(a, b, outside, x=np.array([-2], "float32")) == [[-6], [-8], [-2]]
    assert run(a, b, outside, x=np.array([5], "float32")) == [[5], [10], [1]]


def test_cases_that_only_a_step_knows():
    x = fluid.data("x", [1])
    which = L.case([(x < 1, lambda: number(1)), (x < 2, lambda: number(2))], default=lambda: number(3))
    last = L.case([(x < 1, lambda: number(1)), (x < 2, lambda: number(2))])
    index = fluid.data("index", [1], dtype="int32")
    chosen = L.switch_case(index, {1: lambda: number(10), 7: lambda: number(70)}, default=lambda: number(0))
    for value, expected in ((0.5, [[1], [1]]), (1.5, [[2], [2]]), (2.5, [[3], [2]])):
        assert run(which, last, x=np.array([value], "float32"), index=np.ones(1, "int32")) == expected
    for value, expected in ((1, 10), (7, 70), (3, 0)):
        assert run(chosen, x=np.ones(1, "float32"), index=np.array([value], "int32")) == [[expected]]


def test_a_loop_runs_in_the_step():
    limit = fluid.data("limit", [1], dtype="int64")
    i, total = L.while_loop(lambda i, s: i < limit, lambda i, s: [i + 1, s + L.cast(i, "float32")], [number(0, "int64"), number(0)])
    assert ops()[-1] == "while"
    assert [run(i, total, limit=np.array([n])) for n in (0, 1, 5)] == [[[0], [0]], [[1], [0]], [[5], [10]]]
    many = run(i, total, limit=np.array([100_000]))
    assert many[0] == [100_000]


def test_gradients_of_a_loop_with_a_bound():
    x = fluid.data("x", [2])
    x.stop_gradient = False
    limit = fluid.data("limit", [1], dtype="int64")
    _, power = L.while_loop(lambda i, p: i < limit, lambda i, p: [i + 1, p * x], [number(0, "int64"), L.ones([2], "float32")], bound=8)
    (slope,) = fluid.gradients([power], [x])
    feed = {"x": np.array([2, 3], "float32"), "limit": np.array([3])}
    assert run(power, slope, **feed) == [[8, 27], [12, 27]]


def test_a_loop_of_changing_sizes_is_written_out():
    one = number(1)
    i, joined = L.while_loop(lambda i, j: i < 3, lambda i, j: [i + 1, L.concat([j, one], 0)], [number(0, "int64"), one])
    assert "while" not in ops()
    assert run(i, joined) == [[3], [1, 1, 1, 1]]
    x = fluid.data("x", [1])
    (grown,) = L.while_loop(lambda j: L.reduce_sum(j) < x, lambda j: [L.concat([j, one], 0)], [one])  # only a step knows
    assert "while" in ops()
    assert [run(grown, x=np.array([n], "float32")) for n in (1, 2.5)] == [[[1]], [[1, 1, 1]]]


def test_while_with_a_block():
    i, n = L.fill_constant([1], "int64", 0), fluid.data("n", [1], dtype="int64")
    total = number(1)
    holds = L.less_than(i, n)
    loop = L.While(holds)
    with loop.block():
        L.assign(total * 2, total)
        L.increment(i, in_place=True)
        L.less_than(i, n, cond=holds)
    assert [run(total, i, n=np.array([k])) for k in (0, 1, 10)] == [[[1], [0]], [[2], [1]], [[1024], [10]]]
    with pytest.raises(ValueError, match="does not write"), L.While(L.less_than(i, n)).block():
        L.increment(i, in_place=True)
    with pytest.raises(TypeError, match="one bool"):
        L.While(i)


def test_what_is_no_branch_or_loop():
    x = fluid.data("x", [1])
    with pytest.raises(ValueError, match="return tensors of one type"):
        L.cond(x < 1, lambda: x, lambda: None)
    with pytest.raises(ValueError, match="gives 2 variables for 1"):
        L.while_loop(lambda v: v < 1, lambda v: [v, v], [x])
    with pytest.raises(TypeError, match="a condition is a bool variable"):
        L.cond("x", lambda: x)


def test_a_static_rnn_trains_as_its_steps_written_out():
    rng = np.random.default_rng(0)
    x, start = fluid.data("x", [4, -1, 3]), fluid.data("start", [-1, 5])
    rnn = L.StaticRNN()
    with rnn.step():
        each = rnn.step_input(x)
        state = rnn.memory(init=start)
        hidden = L.fc([each, state], 5, act="tanh", param_attr=[fluid.ParamAttr("w"), fluid.ParamAttr("u")], bias_attr=False)
        rnn.update_memory(state, hidden)
        rnn.step_output(hidden)
    loss = L.mean(rnn())
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    scope = fluid.global_scope()
    w, u = (np.array(scope.find_var(n).get_tensor()).astype("float64") for n in ("w", "u"))
    feed = {"x": rng.standard_normal((4, 2, 3)).astype("float32"), "start": rng.standard_normal((2, 5)).astype("float32")}

    def of(w, u):
        h, total = feed["start"].astype("float64"), 0.0
        for row in feed["x"].astype("float64"):
            h = np.tanh(row @ w + h @ u)
            total += h.mean() / 4
        return total

    (found,) = executor.run(feed=feed, fetch_list=[loss])
    np.testing.assert_allclose(found, of(w, u), rtol=1e-5)
    for name, value, at in (("w", w, lambda v: of(v, u)), ("u", u, lambda v: of(w, v))):
        slope = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            moved = np.zeros_like(value)
            moved[index] = 1e-5
            slope[index] = (at(value + moved) - at(value - moved)) / 2e-5
        np.testing.assert_allclose(np.array(scope.find_var(name).get_tensor()), value - 0.5 * slope, rtol=1e-4, atol=1e-6)
    assert ops().count("scan") == 2


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("is_reverse", [False, True])
def test_rnn_stops_at_the_lengths(time_major, is_reverse):
    class Sum(L.RNNCell):
        hidden_size = 2

        def call(self, inputs, states):
            new = L.elementwise_add(inputs, states)
            return new, new

    data = np.arange(12, dtype="float32").reshape(2, 3, 2)
    x = fluid.data("x", [3, -1, 2] if time_major else [-1, 3, 2])
    lengths = fluid.data("lengths", [-1], dtype="int64")
    out, last = L.rnn(Sum(), x, sequence_length=lengths, time_major=time_major, is_reverse=is_reverse)
    feed = data.transpose(1, 0, 2).copy() if time_major else data
    _, found = run(out, last, x=feed, lengths=np.array([1, 3]))
    assert found == [data[0, :1].sum(0).tolist(), data[1].sum(0).tolist()]


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
    size = L.slice(L.shape(fluid.data("y", [-1, 3])), [0], [0], [1])
    feeds = {"x": np.zeros((4, 3), "float32"), "y": np.zeros((5, 3), "float32")}
    assert run(L.full([size], 1.0), **feeds) == [[1] * 5]
    marked = fluid.one_hot(fluid.data("ids", [-1], "int64"), size)
    assert run(marked, **feeds, ids=np.array([1]))[0] == [[0, 1, 0, 0, 0]]


def test_assert_tells_what_does_not_hold():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [-1, 2])
        fluid.layers.Assert(fluid.layers.less_than(x, fluid.layers.fill_constant([1], "float32", 3.0)), [x], summarize=3)
        out = fluid.layers.relu(x)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[out])
        with pytest.raises(RuntimeError, match=r"Assert: '.*' does not hold; x is \[1.0, 4.0, 1.0\]"):
            exe.run(feed={"x": np.array([[1, 4], [1, 1]], "float32")}, fetch_list=[out])
        with pytest.raises(TypeError, match="cond must be a bool variable"):
            fluid.layers.Assert(x)


def test_a_while_loop_may_write_arrays_and_append_to_the_block_around_it():
    x, i = fluid.data("x", [None, 2]), L.fill_constant([1], "int64", 0)
    n, given = fluid.data("n", [1], "int64"), L.scale(x, 0.0)
    array = L.array_write(x, i)

    def body(i, y, kept):
        program = fluid.default_main_program()
        inner, program.current_block_idx = program.current_block().idx, program.current_block().parent_idx
        L.assign(L.scale(x, 10.0), given)
        program.current_block_idx = inner
        after = L.increment(i, in_place=False)
        y = L.fc(L.elementwise_add(y, kept), 2, param_attr=fluid.initializer.Constant(0.5), bias_attr=False)
        L.array_write(y, after, array)
        return after, y, kept

    last, y, _ = L.while_loop(lambda i, y, kept: L.less_than(i, n), body, [i, x, given])
    # The attempts before the one that is taken leave neither parameters nor names.
    assert [p.name for p in fluid.default_main_program().all_parameters()] == ["fc_0.w_0"]
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    feed = {"x": np.float32([[1, 2]]), "n": np.int64([2])}
    found = executor.run(feed=feed, fetch_list=[last, y, L.array_read(array, L.fill_constant([1], "int64", 1))])
    # (1 + 10 + 2 + 20) / 2 = 16.5, and (2 * 16.5 + 10 + 20) / 2 = 31.5
    assert [v.ravel().tolist() for v in found] == [[2], [31.5, 31.5], [16.5, 16.5]]


def test_sizes_that_are_numbers_beside_those_that_are_variables_may_be_0():
    x = fluid.data("x", [None, 3])
    made = L.fill_constant([L.shape(x)[0], 0, 4], "float32", 7.0)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((5, 3), "float32")}, fetch_list=[made])
    assert found.shape == (5, 0, 4)


def test_rows_of_one_number_that_are_unpadded_keep_an_axis_for_it():
    x, n = fluid.data("x", [2, 3]), fluid.data("n", [2], "int64")
    rows = L.sequence_unpad(x, n)
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3), "n": np.int64([1, 2])}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[rows], return_numpy=False)
    assert np.array(found).tolist() == [[0], [3], [4]]
    assert found.recursive_sequence_lengths() == [[1, 2]]


# --- branches that write other shapes ---------------------------------------------------------------------------------


def test_branches_may_assign_other_shapes_as_mask_rcnn_does():
    x = fluid.data("x", [None, 4])
    kept = L.create_global_var([1], 0.0, "float32", persistable=False, name="kept")
    few = L.less_than(L.reduce_sum(x), L.fill_constant([1], "float32", 5.0))
    L.cond(few, lambda: L.assign(x, kept), lambda: L.assign(L.reshape(L.scale(x, 2.0), [-1, 2, 2]), kept))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for value, rows, shape in ((0.1, 2, (2, 4)), (3.0, 2, (2, 2, 2)), (0.1, 3, (3, 4)), (3.0, 1, (1, 2, 2))):
        given = np.full((rows, 4), value, "float32")
        (found,) = executor.run(feed={"x": given}, fetch_list=["kept"])
        np.testing.assert_array_equal(found, (given if value < 1 else 2 * given).reshape(shape))


def test_what_others_read_keeps_its_type_in_a_branch():
    x = fluid.data("x", [None, 4])
    kept = L.create_global_var([1], 0.0, "float32", persistable=False)
    L.scale(kept, 1.0)
    with pytest.raises(ValueError, match="op 'assign' writes"):
        L.cond(L.less_than(L.reduce_sum(x), L.fill_constant([1], "float32", 5.0)), lambda: L.assign(x, kept), lambda: L.assign(x, kept))


def test_no_gradients_flow_through_branches_of_other_shapes():
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    kept = L.create_global_var([1], 0.0, "float32", persistable=False)
    few = L.less_than(L.reduce_sum(x), L.fill_constant([1], "float32", 5.0))
    L.cond(few, lambda: L.assign(x, kept), lambda: L.assign(L.reshape(x, [-1, 2]), kept))
    kept.stop_gradient = False
    with pytest.raises(ValueError, match="no gradients flow through a branch"):
        fluid.gradients(L.reduce_sum(kept), x)


def test_a_feed_without_rows_grows_from_round_to_round():
    x, kept, rounds = fluid.data("x", [None, 2]), fluid.data("kept", [None, 2]), fluid.data("rounds", [1], "int64")
    i = L.fill_constant([1], "int64", 0)
    again = L.less_than(i, rounds)
    loop = L.While(again)
    with loop.block():
        L.assign(L.concat([kept, x], 0), kept)
        L.increment(i, 1, in_place=True)
        L.less_than(i, rounds, cond=again)
    executor = fluid.Executor(fluid.CPUPlace())
    for first, count in ((0, 3), (2, 2), (1, 0)):
        given = {"x": np.ones((1, 2), "float32"), "kept": np.zeros((first, 2), "float32"), "rounds": np.array([count])}
        (found,) = executor.run(feed=given, fetch_list=[kept])
        np.testing.assert_array_equal(found, [[0, 0]] * first + [[1, 1]] * count)


# --- variables of create_global_var -----------------------------------------------------------------------------------


@pytest.mark.parametrize("persistable", [False, True])
def test_a_global_variable_is_saved_only_if_it_is_persistable(persistable, tmp_path):
    # As 1.8.5 has them: persistable in the startup program in any case.
    x = fluid.data("x", [None, 1])
    kept = L.create_global_var([1], 2.0, "float32", persistable=persistable, name="kept")
    mean, limit = L.reduce_mean(x), L.fill_constant([1], "float32", 1.5)
    with L.Switch() as switch:
        with switch.case(L.less_than(mean, limit)):
            L.assign(L.scale(mean, 10.0), kept)
        with switch.default():
            L.assign(L.scale(mean, 100.0), kept)
    wanted = L.elementwise_add(x, kept)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    assert (kept.persistable, startup.global_block().var("kept").persistable) == (persistable, True)
    assert [v.name for v in main.list_vars() if v.persistable] == (["kept"] if persistable else [])
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    for number, right in ((1, 11.0), (2, 202.0), (3, 303.0)):
        (found,) = executor.run(feed={"x": np.float32([[number]])}, fetch_list=[wanted])
        np.testing.assert_array_equal(found, [[right]])
    fluid.io.save_persistables(executor, str(tmp_path), main)
    assert [path.name for path in tmp_path.iterdir()] == (["kept"] if persistable else [])
