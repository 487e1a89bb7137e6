"""GradientMergeOptimizer: k runs over parts of a batch update as the wrapped optimizer does in one run over all of it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from tests.paddle.nn_support import values

L = fluid.layers
O = fluid.optimizer  # noqa: E741
OPTIMIZERS = {
    "SGD": lambda: O.SGD(0.1),
    "Momentum": lambda: O.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.01)),
    "Adam": lambda: O.Adam(0.05),
    "clipped": lambda: O.SGD(0.5, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.3)),
    "Lookahead": lambda: O.LookaheadOptimizer(O.Adam(0.05), 0.5, 2),
}
X, Y = values(24, 4), values(24, 1, seed=1)


def network():
    x, y = fluid.data("x", [None, 4], "float32"), fluid.data("y", [None, 1], "float32")
    hidden = L.fc(x, 5, act="tanh", param_attr=fluid.ParamAttr(name="w1"), bias_attr=fluid.ParamAttr(name="b1"))
    out = L.fc(hidden, 1, param_attr=fluid.ParamAttr(name="w2"), bias_attr=fluid.ParamAttr(name="b2"))
    return L.mean(L.square_error_cost(out, y))


def trained(wrap, size, compiled=None, check=None):
    """Return the parameters after running over X in parts of a size."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.scope_guard(scope):
        loss = network()
        test = main.clone(for_test=True)
        wrap().minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        program = compiled(main, loss) if compiled else main
        for i in range(0, len(X), size):
            before = parameters(scope)
            executor.run(program, feed={"x": X[i : i + size], "y": Y[i : i + size]}, fetch_list=[loss.name])
            if check:
                check(i // size, before, parameters(scope))
        assert np.isfinite(executor.run(test, feed={"x": X, "y": Y}, fetch_list=[loss.name])[0]).all()
        return parameters(scope)


def parameters(scope):
    return {n: np.array(scope.find_var(n).get_tensor()) for n in ("w1", "b1", "w2", "b2")}


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_k_runs_are_one_update_over_the_joined_batch(kind):
    def still(run, before, after):
        same = all((before[n] == after[n]).all() for n in before)
        assert same == (run % 3 != 2)

    merged = trained(lambda: O.GradientMergeOptimizer(OPTIMIZERS[kind](), k_steps=3, avg=True), 2, check=still)
    joined = trained(OPTIMIZERS[kind], 6)
    for name, expected in joined.items():
        np.testing.assert_allclose(merged[name], expected, rtol=2e-4, atol=1e-6, err_msg=name)


def test_the_sum_of_gradients():
    merged = trained(lambda: O.GradientMergeOptimizer(O.SGD(0.05), 3, avg=False), 2)
    for name, expected in trained(lambda: O.SGD(0.15), 6).items():
        np.testing.assert_allclose(merged[name], expected, rtol=1e-5, atol=1e-6)


def test_one_run_for_each_update():
    merged = trained(lambda: O.GradientMergeOptimizer(O.Adam(0.05)), 6)
    for name, expected in trained(lambda: O.Adam(0.05), 6).items():
        np.testing.assert_allclose(merged[name], expected, rtol=1e-6)


@pytest.mark.parametrize("reduce", ["AllReduce", "Reduce"])
def test_on_two_devices(reduce):
    def compiled(main, loss):
        strategy = fluid.BuildStrategy()
        strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, reduce)
        return fluid.CompiledProgram(main).with_data_parallel(loss.name, strategy, places=fluid.cpu_places(2))

    merged = trained(lambda: O.GradientMergeOptimizer(OPTIMIZERS["Momentum"](), 2), 6, compiled)
    for name, expected in trained(OPTIMIZERS["Momentum"], 12).items():
        np.testing.assert_allclose(merged[name], expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_schedules_go_on_with_every_run():
    loss = network()
    inner = O.SGD(L.exponential_decay(0.1, 1, 0.5))
    O.GradientMergeOptimizer(inner, 2).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    rate = inner.rate(fluid.default_main_program())
    found = [executor.run(feed={"x": X, "y": Y}, fetch_list=[rate])[0][0] for _ in range(3)]
    np.testing.assert_allclose(found, [0.1, 0.05, 0.025], rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(FluidTypeError, match="must be an optimizer"):
        O.GradientMergeOptimizer("SGD")
    with pytest.raises(FluidValueError, match="k_steps is 0"):
        O.GradientMergeOptimizer(O.SGD(0.1), 0)
    ids = fluid.data("ids", [None, 1], "int64")
    loss = L.mean(fluid.embedding(ids, [5, 2], is_sparse=True))
    with pytest.raises(FluidValueError, match="no row-sparse gradient"):
        O.GradientMergeOptimizer(O.SGD(0.1), 2).minimize(loss)


def test_it_is_copied():
    made = copy.copy(O.GradientMergeOptimizer(O.SGD(0.25), 3))
    assert (made.k_steps, made.type) == (3, O.SGD(0.25).type)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        made.nothing_like_it  # noqa: B018 - the attribute is asked for
