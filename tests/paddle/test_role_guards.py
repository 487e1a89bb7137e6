"""Roles of ops and rates of optimizers by the names below the documented ones, as training code of the zoo uses them."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.paddle import fluid
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.core import op_proto_and_checker_maker as roles

#: What PaddlePaddle 1.8.5 fetched of the program below: the loss and the rate of six steps, and then the first weight.
LOSSES = [0.2282245, 0.2067708, 0.0825717, 0.2125417, 0.2146188, 0.0563110]
RATES = [0.0, 0.0333333, 0.0666667, 0.07, 0.06, 0.05]
WEIGHT = [0.17885895, 0.10791963, 0.30276516, -0.42043543, 0.6420544, 0.44344345]


def _weight(value):
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(np.array(value, "float32")))


def test_a_schedule_and_a_decay_of_weights_under_guards():
    main, start = fluid.default_main_program(), fluid.default_startup_program()
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    hidden = layers.fc(x, 2, act="tanh", param_attr=_weight([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]]))
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1, param_attr=_weight([[0.7], [-0.8]])), y))
    with main._lr_schedule_guard():
        rate = layers.tensor.create_global_var(shape=[1], value=0.0, dtype="float32", persistable=True)
        step = layers.learning_rate_scheduler._decay_step_counter()
        with layers.control_flow.Switch() as switch:
            with switch.case(step < 3.0):
                layers.tensor.assign(0.1 * (step / 3.0), rate)
            with switch.default():
                layers.tensor.assign(layers.learning_rate_scheduler.polynomial_decay(0.1, 10, end_learning_rate=0.0), rate)
    kept = {p.name: p * 1.0 for p in main.global_block().all_parameters()}
    for before in kept.values():
        before.stop_gradient = True
    _, pairs = fluid.optimizer.Adam(learning_rate=rate).minimize(loss)
    for parameter, gradient in pairs:
        with parameter.block.program._optimized_guard([parameter, gradient]), fluid.framework.name_scope("weight_decay"):
            assert main._current_role == roles.OpRole.Optimize
            layers.assign(output=parameter, input=parameter - kept[parameter.name] * 0.05 * rate)
    assert main._current_role == roles.OpRole.Forward
    evaluation = main.clone(for_test=True)
    assert not any(op.type in ("adam", "assign") for op in evaluation.global_block().ops), "updates are no part of an evaluation"
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(start)
    rng, found = np.random.RandomState(0), []
    for _ in range(6):
        feed = {"x": rng.rand(4, 3).astype("float32"), "y": rng.rand(4, 1).astype("float32")}
        found.append([float(value[0]) for value in exe.run(main, feed=feed, fetch_list=[loss, rate])])
    np.testing.assert_allclose(found, np.transpose([LOSSES, RATES]), rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()).ravel(), WEIGHT, rtol=2e-6)


@pytest.mark.parametrize(
    ("number", "role"),
    [(0, "forward"), (1, "backward"), (2, "optimize"), (16, "lr_sched"), (18, "lr_sched"), (256, "loss"), (257, "backward")],
)
def test_a_role_is_set_by_its_number(number, role):
    program = fluid.Program()
    program._current_role = number
    assert program.op_role == role


def test_a_variable_of_another_program_is_cloned_into_a_block():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], "int64", lod_level=1)
    block = fluid.Program().global_block()
    made = block._clone_variable(x, force_persistable=False)
    assert (made.name, made.shape, made.lod_level, made.persistable) == ("x", (-1, 3), 1, False)
    assert block._clone_variable(fluid.layers.zeros([2], "float32")).persistable
    # As the moving averages of the image classification of 1.8 keep a parameter for a while: its shape comes with the first value.
    empty = fluid.default_main_program().global_block().create_var(name="kept", dtype="float32", persistable=True)
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        weight = layers.create_parameter([2, 3], "float32", default_initializer=fluid.initializer.Constant(4.0))
        kept = program.global_block()._clone_variable(empty)
        layers.assign(input=weight, output=kept)
        assert kept.shape == (2, 3)


def test_parameters_are_put_aside_and_brought_back_by_programs_of_their_own():
    # As `apply` and `restore` of the moving averages in the image classification of 1.8.
    weight = layers.create_parameter([2, 2], "float32", "kernel", default_initializer=fluid.initializer.Constant(1.0))
    aside = weight.block.create_var(name="kernel.aside", dtype=weight.dtype, persistable=False, stop_gradient=True)
    apply, restore = fluid.Program(), fluid.Program()
    with fluid.program_guard(apply):
        parameter, kept = (apply.global_block()._clone_variable(v) for v in (weight, aside))
        layers.assign(input=parameter, output=kept)
        layers.assign(input=parameter * 3.0, output=parameter)
    with fluid.program_guard(restore):
        kept, parameter = (restore.global_block()._clone_variable(v) for v in (aside, weight))
        layers.assign(input=kept, output=parameter)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = []
    for program in (apply, restore):
        exe.run(program)
        found.append(np.array(fluid.global_scope().find_var("kernel").get_tensor()).tolist())
    assert found == [[[3.0, 3.0], [3.0, 3.0]], [[1.0, 1.0], [1.0, 1.0]]]


def test_the_rate_of_an_optimizer_is_a_variable_that_scripts_fetch():
    # The image classification of 1.8 takes it before `minimize`; names and numbers are those of 1.8.5.
    loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    made = fluid.optimizer.Momentum(layers.cosine_decay(0.1, 1, 10), 0.9)
    rate = made._global_learning_rate()
    assert rate is made._learning_rate
    rate.persistable = True
    other = fluid.optimizer.SGD(0.5)
    assert (other._global_learning_rate(), other._learning_rate, other._name) == (None, 0.5, None)
    made.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = [exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[made._global_learning_rate()])[0] for _ in range(3)]
    np.testing.assert_allclose(found, [[0.1], [0.09755283], [0.09045085]], rtol=1e-6)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        other._name = "d_A"
        other.minimize(layers.mean(layers.fc(fluid.data("x", [None, 2]), 1)))
        assert other._global_learning_rate().name == "learning_rate_0"
        assert other._global_learning_rate(fluid.Program()) is None


def test_names_that_were_elsewhere_up_to_1_6():
    from pe_cli.paddle.fluid.layers import nn

    assert nn.dynamic_gru is layers.dynamic_gru
    assert nn.sequence_pool is layers.sequence_pool
    assert nn.cross_entropy is layers.cross_entropy
    with pytest.raises(AttributeError, match="no_such_layer"):
        nn.no_such_layer  # noqa: B018
    assert not fluid.initializer.force_init_on_cpu()
    with fluid.initializer.init_on_cpu():
        rate = layers.exponential_decay(0.5, 2, 0.5)
        assert fluid.initializer.force_init_on_cpu()
    assert not fluid.initializer.force_init_on_cpu()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    np.testing.assert_allclose([exe.run(fetch_list=[rate])[0][0] for _ in range(3)], [0.5, 0.5**1.5, 0.25], rtol=1e-6)
