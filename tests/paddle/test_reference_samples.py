"""What the code samples of the reference do, as small scripts of our own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.reference_names import known
from tests.paddle.support import regression, rows, trained


@pytest.fixture(autouse=True)
def two_devices(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")


def test_train_and_test_with_parallel_executors_that_share_variables():
    train, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(train, startup):
        loss = regression()
        test = fluid.default_main_program().clone(for_test=True)
        fluid.optimizer.SGD(learning_rate=0.5).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(startup)
    trainer = fluid.ParallelExecutor(use_cuda=False, main_program=train, loss_name=loss.name)
    tester = fluid.ParallelExecutor(use_cuda=False, main_program=test, share_vars_from=trainer)
    (first,) = trainer.run(feed={"X": rows(10)}, fetch_list=[loss.name])
    (after,) = tester.run(feed={"X": rows(10)}, fetch_list=[loss.name])
    assert first.shape == after.shape == (2,)
    # mean of 10 outputs: each step of SGD lowers the loss by 0.5 ((mean x)^2 + 1) / 10
    drop = 0.05 * (float(rows(10).mean()) ** 2 + 1)
    assert after.mean() == pytest.approx(first.mean() - drop, rel=1e-4)


def test_a_dict_is_split_and_a_list_has_one_dict_a_device():
    loss, _ = trained()
    parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    hidden = loss.block.ops[1].output_arg_names[0]
    assert parallel.device_count == 2
    loss_data, out = parallel.run(feed={"X": rows(10)}, fetch_list=[loss.name, hidden])
    assert (loss_data.shape, out.shape) == ((2,), (10, 10))
    loss_data, out = parallel.run(feed=[{"X": rows(10)}, {"X": rows(9)}], fetch_list=[loss.name, hidden])
    assert (loss_data.shape, out.shape) == ((2,), (19, 10))


def test_three_samples_on_two_devices_are_split_one_and_two():
    x = fluid.layers.data(name="X", shape=[1])
    total = fluid.layers.reduce_sum(x)
    parallel = fluid.ParallelExecutor(use_cuda=False)
    (sums,) = parallel.run(fetch_list=[total], feed={"X": np.array([[1], [2], [4]], "float32")})
    assert sums.tolist() == [1, 6]


def test_temporaries_can_be_dropped_between_runs():
    loss, _ = trained()
    parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    assert parallel.drop_local_exe_scopes() is None
    parallel.run(feed={"X": rows(10)}, fetch_list=[loss.name])
    assert parallel.drop_local_exe_scopes() is None
    parallel.run(feed={"X": rows(10)}, fetch_list=[loss.name])


def test_strategies_of_the_guide():
    loss, _ = trained()
    execution = fluid.ExecutionStrategy()
    execution.num_threads = 2 * 4
    build = fluid.BuildStrategy()
    build.memory_optimize = True
    test = fluid.default_main_program().clone(for_test=True)
    trainer = fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build, exec_strategy=execution)
    tester = fluid.ParallelExecutor(
        False,
        main_program=test,
        loss_name=loss.name,
        build_strategy=build,
        exec_strategy=execution,
        share_vars_from=trainer,
    )
    trainer.run([loss.name], feed={"X": rows(4)})
    assert np.isfinite(tester.run([loss.name], feed={"X": rows(4)})[0]).all()


def test_reduce_gives_what_all_reduce_gives():
    found = []
    for strategy in (fluid.BuildStrategy.ReduceStrategy.Reduce, fluid.BuildStrategy.ReduceStrategy.AllReduce):
        programs = fluid.Program(), fluid.Program()
        with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            fluid.default_startup_program().random_seed = 7
            loss, _ = trained()
            build = fluid.BuildStrategy()
            build.reduce_strategy = strategy
            parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, build_strategy=build)
            found.append([parallel.run([loss.name], feed={"X": rows(10, i)})[0] for i in range(3)])
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_a_compiled_program_runs_on_one_device():
    loss, executor = trained()
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    (value,) = executor.run(compiled, feed={"X": rows(10)}, fetch_list=[loss.name])
    assert value.shape == (1,)


def test_data_parallel_compiled_programs_share_variables():
    paddle.enable_static()
    places = [paddle.CPUPlace()] * 2
    x = paddle.static.data(name="X", shape=[None, 1], dtype="float32")
    loss = paddle.mean(paddle.static.nn.fc(x=x, size=10))
    test = paddle.static.default_main_program().clone(for_test=True)
    paddle.optimizer.SGD(learning_rate=0.01).minimize(loss)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    main = paddle.static.default_main_program()
    trainer = paddle.static.CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=places)
    tester = paddle.static.CompiledProgram(test).with_data_parallel(share_vars_from=trainer, places=places)
    (trained_loss,) = executor.run(trainer, feed={"X": rows(10)}, fetch_list=[loss.name])
    (tested,) = executor.run(tester, feed={"X": rows(10)}, fetch_list=[loss.name])
    assert trained_loss.shape == tested.shape == (2,)
    assert tested.mean() < trained_loss.mean()


def test_the_parallel_executor_of_2x():
    paddle.enable_static()
    train, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(train, startup):
        x = paddle.static.data(name="X", shape=[None, 1], dtype="float32")
        loss = paddle.mean(paddle.static.nn.fc(x, 10))
        paddle.optimizer.SGD(learning_rate=0.01).minimize(loss)
    paddle.static.Executor(paddle.CPUPlace()).run(startup)
    parallel = paddle.static.ParallelExecutor(use_cuda=False, main_program=train, loss_name=loss.name)
    assert parallel.run(feed={"X": rows(10)}, fetch_list=[loss.name])[0].shape == (2,)


def test_a_compiled_program_in_a_loop():
    loss, executor = trained(0.1)
    compiled = fluid.compiler.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss_name=loss.name)
    values = [executor.run(compiled, feed={"X": rows(10)}, fetch_list=[loss.name])[0].mean() for _ in range(5)]
    assert all(a > b for a, b in itertools.pairwise(values))


def test_an_executor_with_adam_then_closed():
    loss = regression()
    fluid.optimizer.Adam().minimize(loss)
    executor = fluid.Executor(fluid.core.CPUPlace())
    executor.run(fluid.default_startup_program())
    outs = executor.run(feed={"X": rows(10)}, fetch_list=[loss.name])
    assert np.isfinite(outs[0]).all()
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.run(feed={"X": rows(10)})


def test_name_scopes_nest():
    x = fluid.layers.data(name="X", shape=[4])
    with fluid.name_scope("encoder"):
        y = fluid.layers.scale(x, 2.0)
        with fluid.name_scope("attention"):
            fluid.layers.scale(y, 2.0)
    assert [op.scope for op in x.block.ops] == ["encoder/", "encoder/attention/"]


def test_cloned_and_rebuilt_test_programs_agree():
    def network(is_test: bool):
        image = fluid.layers.data(name="image", shape=[784])
        hidden = fluid.layers.fc(input=image, size=200, act="relu")
        hidden = fluid.layers.dropout(hidden, dropout_prob=0.5, is_test=is_test)
        label = fluid.layers.data(name="label", shape=[1], dtype="int64")
        return fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, size=10, act="softmax"), label))

    train, rebuilt = fluid.Program(), fluid.Program()
    with fluid.program_guard(train, fluid.Program()), fluid.unique_name.guard():
        network(False)
    cloned = train.clone(for_test=True)
    with fluid.program_guard(rebuilt, fluid.Program()), fluid.unique_name.guard():
        network(True)
    assert [str(op) for op in cloned.global_block().ops] == [str(op) for op in rebuilt.global_block().ops]


def test_a_temporary_startup_program():
    main, before = fluid.Program(), fluid.default_startup_program()
    with fluid.program_guard(main, fluid.Program()):
        fluid.layers.fc(fluid.layers.data("X", [3]), 2)
    assert not before.global_block().ops
    assert fluid.default_main_program() is not main


def test_data_feeder_on_samples():
    image = fluid.layers.data(name="image", shape=[1, 2, 2])
    fluid.layers.data(name="label", shape=[1], dtype="int64")
    feeder = fluid.DataFeeder([image, "label"], fluid.CPUPlace())
    feed = feeder.feed([([0, 1, 2, 3], 1), ([4, 5, 6, 7], 0)])
    assert (feed["image"].shape(), feed["image"].lod()) == ([2, 1, 2, 2], [])
    assert np.array(feed["label"]).tolist() == [[1], [0]]
    executor = fluid.Executor(fluid.CPUPlace())
    (total,) = executor.run(feed=feed, fetch_list=[fluid.layers.reduce_sum(image)])
    assert total.tolist() == [28]


def test_memory_optimize_and_release_memory_return_nothing():
    regression()
    assert fluid.memory_optimize(fluid.default_main_program()) is None
    assert fluid.release_memory(fluid.default_main_program()) is None


def test_a_feeder_over_a_reader_of_variables_by_name():
    image = fluid.layers.data(name="image", shape=[4])
    label = fluid.layers.data(name="label", shape=[1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(image, 1), label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    main, place = fluid.default_main_program(), fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([main.global_block().var(name) for name in ("image", "label")], place)

    def reader():
        for i in range(3):
            yield [(np.full(4, i, "float32"), [i + k]) for k in range(5)]

    outs = [executor.run(program=main, feed=feeder.feed(data), fetch_list=[loss])[0] for data in reader()]
    assert np.isfinite(outs).all()
    parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, main_program=main)
    (spread,) = parallel.run(feed=feeder.feed(next(reader())), fetch_list=[loss.name])
    assert spread.shape == (2,)


def test_a_scope_for_a_while():
    outside = fluid.global_scope()
    with fluid.scope_guard(fluid.Scope()):
        fluid.global_scope().var("data").get_tensor().set(np.ones((1, 2)), fluid.CPUPlace())
        assert np.array(fluid.global_scope().find_var("data").get_tensor()).shape == (1, 2)
    assert fluid.global_scope() is outside
    assert outside.find_var("data") is None


def test_a_parameter_with_every_attribute():
    attr = fluid.ParamAttr(
        name="fc_weight", learning_rate=0.5, regularizer=fluid.regularizer.L2Decay(1.0), trainable=True, do_model_average=True
    )
    fluid.layers.fc(fluid.layers.data("X", [1]), 10, param_attr=attr)
    made = fluid.default_main_program().global_block().var("fc_weight")
    assert (made.learning_rate, made.trainable, made.do_model_average) == (0.5, True, True)


@pytest.mark.parametrize(
    ("module", "label"),
    [
        (fluid, "fluid"),
        (fluid.layers, "fluid.layers"),
        (paddle, "paddle"),
        (paddle.static, "paddle.static"),
        (paddle.nn, "paddle.nn"),
        (paddle.nn.functional, "paddle.nn.functional"),
    ],
)
def test_every_name_of_the_reference_is_there_or_says_that_it_is_not(module, label):
    for name in sorted(known()):
        try:
            getattr(module, name)
        except AttributeError as error:
            assert str(error) == f"{label}.{name} is a name of PaddlePaddle's reference that is not there yet"  # noqa: PT017
