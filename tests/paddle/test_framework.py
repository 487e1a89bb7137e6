"""Programs, blocks, variables, operators, names, scopes and strategies as scripts use them."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import NotThereYet
from tests.paddle.support import regression, rows, trained


def run(*fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))


def test_blocks_and_variables():
    program = fluid.Program()
    block = program.current_block()
    x = block.create_var(name="X", shape=[-1, 23, 48], dtype=np.float32)
    block.append_op(type="abs", inputs={"X": [x]}, outputs={"Out": [x]})
    assert (x.name, x.shape, x.dtype) == ("X", (-1, 23, 48), "float32")
    assert x.dtype == fluid.core.VarDesc.VarType.FP32
    assert block.has_var("X")
    assert block.var("X") is x
    # what the detectors of PaddleDetection look parameters up with
    assert fluid.framework._get_var("X", program) is x
    assert program.num_blocks == 1
    assert [op.type for op in program.block(0).ops] == ["abs"]
    assert block.ops[0].input_arg_names == block.ops[0].output_arg_names == ["X"]
    with pytest.raises(ValueError, match="no variable 'Y'"):
        block.var("Y")


def test_a_variable_declared_twice_must_agree():
    fluid.layers.data("x", [3])
    assert fluid.layers.data("x", [3]) is fluid.default_main_program().global_block().var("x")
    with pytest.raises(ValueError, match="declared again"):
        fluid.layers.data("x", [4])


def test_a_variable_without_a_shape_takes_the_first_value_it_gets():
    out = fluid.layers.create_tensor("float32")
    fluid.layers.assign(fluid.layers.fill_constant([2, 3], "float32", 4.0), out)
    assert out.shape == (2, 3)
    assert run(out)[0].tolist() == [[4] * 3] * 2


def test_text_and_back():
    regression()
    program = fluid.default_main_program()
    again = fluid.Program.parse_from_string(program.to_string(True))
    assert again.to_string(True) == program.to_string(True)
    assert isinstance(again.global_block().all_parameters()[0], fluid.framework.Parameter)


def test_operators_on_variables():
    x = fluid.data("x", [3])
    y = fluid.data("y", [3])
    a, b = np.array([1, 4, 9], "float32"), np.array([2, 2, 3], "float32")
    pairs = [
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (x**y, a**b), (-x, -a),
        (x + 1, a + 1), (1 - x, 1 - a), (2 * x, 2 * a), (x / 4, a / 4), (8 / x, 8 / a), (x**2, a**2),
        (x < y, a < b), (x <= y, a <= b), (x > 4, a > 4), (x >= y, a >= b), (x == y, a == b), (x != y, a != b),
    ]  # fmt: skip
    found = run(*(v for v, _ in pairs), x=a, y=b)
    for value, (_, expected) in zip(found, pairs, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_variables_can_be_keys_and_compare_with_none():
    x = fluid.data("x", [3])
    assert {x: 1}[x] == 1
    assert (x == None) is False  # noqa: E711
    assert not x.block.ops


def test_operators_on_integers():
    i = fluid.layers.fill_constant([1], "int64", 5)
    assert [v.tolist() for v in run(i + 1, i * 2, 7 - i)] == [[6], [10], [2]]


def test_names_are_counted_over_programs_and_restart_in_a_guard():
    assert regression().name == "mean_0.tmp_0"
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        assert regression().name == "mean_1.tmp_0"
        with fluid.unique_name.guard():
            assert fluid.unique_name.generate("fc") == "fc_0"
        with fluid.unique_name.guard("net_"):
            assert fluid.unique_name.generate("fc") == "net_fc_0"


def test_seeds_repeat_a_startup_program():
    found = []
    for _ in range(2):
        programs = fluid.Program(), fluid.Program()
        with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard(), fluid.program_guard(*programs):
            fluid.default_startup_program().random_seed = 5
            _, executor = trained()
            executor.run(fluid.default_startup_program())
            found.append(np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()))
    assert np.array_equal(*found)


def test_dropout_differs_from_step_to_step():
    x = fluid.data("x", [-1, 50])
    out = fluid.layers.dropout(x, 0.5)
    fluid.default_main_program().random_seed = 3
    executor = fluid.Executor(fluid.CPUPlace())
    ones = np.ones((2, 50), "float32")
    first, second = (executor.run(feed={"x": ones}, fetch_list=[out])[0] for _ in range(2))
    assert not np.array_equal(first, second)


# --- scopes ---------------------------------------------------------------------------------------------------------


def test_scopes_hold_values_by_name():
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        fluid.global_scope().var("data").get_tensor().set(np.ones((2, 2)), fluid.CPUPlace())
    assert np.array(scope.find_var("data").get_tensor()).tolist() == [[1, 1], [1, 1]]
    assert scope.find_var("absent") is None
    assert scope.new_scope().find_var("data") is scope.find_var("data")
    assert fluid.global_scope().find_var("data") is None
    scope.erase(["data"])
    assert scope.find_var("data") is None
    assert not scope.has_value("data")
    with pytest.raises(RuntimeError, match="'data' has no value yet"):
        scope.read("data")


def test_a_value_written_to_the_scope_reaches_every_device(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, _ = trained()
    parallel = fluid.ParallelExecutor(False, loss_name=loss.name)
    parallel.run([loss], feed={"X": rows(4)})
    bias = fluid.global_scope().find_var("fc_0.b_0").get_tensor()
    bias.set(np.full(10, 7, "float32"), fluid.CPUPlace())
    (both,) = parallel.run(["fc_0.b_0@GRAD"], feed={"X": rows(4)})
    (values,) = parallel.run(["fc_0.b_0"], feed={"X": rows(4)})
    assert values.shape == (20,)
    np.testing.assert_allclose(values, 7 - 2 * 0.01 * both[0], rtol=1e-5)


def test_executors_on_one_and_two_devices_see_each_others_training(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, executor = trained(0.5)
    parallel = fluid.ParallelExecutor(False, loss_name=loss.name)
    values = []
    for i in range(4):
        if i % 2:
            values.append(parallel.run([loss], feed={"X": rows(10)})[0].mean())
        else:
            values.append(executor.run(feed={"X": rows(10)}, fetch_list=[loss])[0].mean())
    drop = 0.05 * (float(rows(10).mean()) ** 2 + 1)
    np.testing.assert_allclose(np.diff(values), [-drop] * 3, rtol=1e-4)


def test_a_decay_is_the_update_s_own_or_a_part_of_the_gradient():
    own = paddle.optimizer.AdamW(0.1, weight_decay=0.2, parameters=None, multi_precision=False)
    assert (own.weight_decay, own.regularization) == (0.2, None)
    assert paddle.optimizer.Adam(0.1, weight_decay=0.2).regularization == fluid.regularizer.L2Decay(0.2)


def test_lookahead_takes_its_arguments_in_the_original_s_order():
    loss = regression()
    made = fluid.optimizer.LookaheadOptimizer(inner_optimizer=fluid.optimizer.SGD(0.5), alpha=0.25, k=3)
    positional = fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.5), 0.25, 3)
    assert (made.alpha, made.k) == (positional.alpha, positional.k) == (0.25, 3)
    made.minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    assert len(executor.run(feed={"X": rows(4)}, fetch_list=[loss])) == 1


def test_evaluation_without_sharing_warns_once(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss = regression()
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.5).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    trainer = fluid.ParallelExecutor(False, loss_name=loss.name)
    trainer.run([loss], feed={"X": rows(4)})
    tester = fluid.ParallelExecutor(False, main_program=test)
    with pytest.warns(UserWarning, match="share_vars_from"):
        (before,) = tester.run([loss], feed={"X": rows(4)})
    trainer.run([loss], feed={"X": rows(4)})
    (after,) = tester.run([loss], feed={"X": rows(4)})
    assert (after < before).all()


# --- strategies -----------------------------------------------------------------------------------------------------


def test_defaults_of_the_strategies():
    build = fluid.BuildStrategy()
    on = [
        "fuse_all_reduce_ops", "fuse_broadcast_ops", "enable_inplace", "remove_unnecessary_lock",
        "enable_backward_optimizer_op_deps",
    ]  # fmt: skip
    assert all(getattr(build, name) is True for name in on)
    assert build.memory_optimize is None
    assert build.reduce_strategy == fluid.BuildStrategy.ReduceStrategy.AllReduce
    assert build.gradient_scale_strategy == build.GradientScaleStrategy.CoeffNumDevice
    execution = fluid.ExecutionStrategy()
    assert (execution.num_threads, execution.num_iteration_per_drop_scope, execution.num_iteration_per_run) == (
        0,
        100,
        1,
    )


@pytest.mark.parametrize(("given", "shared"), [(None, True), (True, True), (False, False)])
def test_memory_is_shared_unless_that_is_refused(given, shared):
    build = fluid.BuildStrategy()
    build.memory_optimize = given
    assert build.core().memory_optimize is shared


def test_wrong_attributes_of_strategies():
    build = fluid.BuildStrategy()
    with pytest.raises(AttributeError, match=r"no 'reduce_strategi'.*did you mean 'reduce_strategy'"):
        build.reduce_strategi = "Reduce"
    with pytest.raises(TypeError, match="must be bool, got 1"):
        build.sync_batch_norm = 1
    with pytest.raises(ValueError, match="one of AllReduce, Reduce, got 'Ring'"):
        build.reduce_strategy = "Ring"
    with pytest.raises(ValueError, match="must be >= 0"):
        fluid.ExecutionStrategy().num_threads = -1
    with pytest.raises(NotThereYet, match=r"nccl_comm_num = 2 is not there yet"):
        build.nccl_comm_num = 2


def test_strategies_are_frozen_once_used():
    loss, _ = trained()
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build, exec_strategy=execution)
    with pytest.raises(RuntimeError, match="frozen"):
        build.memory_optimize = True
    with pytest.raises(RuntimeError, match="frozen"):
        execution.num_threads = 2


def test_pictures_are_written(monkeypatch, tmp_path):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, _ = trained()
    build = fluid.BuildStrategy()
    build.debug_graphviz_path = str(tmp_path / "g")
    fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build)
    found = {p.name for p in tmp_path.iterdir()}
    assert found == {"g_original_graph", "g_fused_graph", "g_multi_devices_graph"}
    assert "digraph" in (tmp_path / "g_multi_devices_graph").read_text()


def test_a_changed_program_is_prepared_again():
    x = fluid.data("x", [2])
    y = x + 1
    assert run(y, x=np.zeros(2, "float32"))[0].tolist() == [1, 1]
    z = y * 3
    assert run(z, x=np.zeros(2, "float32"))[0].tolist() == [3, 3]


@pytest.mark.parametrize("parameters", [False, True])
def test_what_is_fed_has_a_gradient_where_gradients_flow_to_it(parameters):
    x = fluid.data("x", [None, 2], "float32")
    x.stop_gradient = False
    hidden = fluid.layers.fc(x, 2, bias_attr=False) if parameters else x
    pairs = fluid.backward.append_backward(fluid.layers.mean(fluid.layers.square(hidden)))
    assert len(pairs) == parameters
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    value = np.array([[1.0, -2.0]], "float32")
    w = np.eye(2)
    if parameters:
        w = np.array(fluid.global_scope().find_var(pairs[0][0].name).get_tensor())
    (found,) = run("x@GRAD", x=value)
    np.testing.assert_allclose(found, value @ w @ w.T, rtol=1e-6)


def test_a_value_without_axes_is_one_of_one_element():
    w = fluid.layers.create_parameter([1], "float32", name="w")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.global_scope().find_var("w").get_tensor().set(np.array(3, "float32"), fluid.CPUPlace())
    assert executor.run(fetch_list=[fluid.layers.scale(w, 2.0)])[0].tolist() == [6]


def test_a_parameter_of_a_block_has_its_own_rate():
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        w = program.global_block().create_parameter(name="w", shape=[2], dtype="float32", optimize_attr={"learning_rate": 0.25})
        plain = program.global_block().create_parameter(name="v", shape=[2], dtype="float32")
    assert (w.optimize_attr, plain.optimize_attr) == ({"learning_rate": 0.25}, {"learning_rate": 1.0})


def test_chosen_gpus_are_numbers(monkeypatch):
    monkeypatch.setattr("pe_cli.paddle.fluid.places.cuda_device_count", lambda: 4)
    monkeypatch.setenv("FLAGS_selected_gpus", "1, 3")
    assert fluid.cuda_places() == [fluid.CUDAPlace(1), fluid.CUDAPlace(3)]
    monkeypatch.setenv("FLAGS_selected_gpus", "first")
    with pytest.raises(ValueError, match="FLAGS_selected_gpus is 'first'"):
        fluid.cuda_places()
