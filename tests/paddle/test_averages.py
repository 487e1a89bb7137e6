"""What averages of parameters keep between steps: names and values of PaddlePaddle 1.8.5."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers

def weight(steps=1):
    """Append a network of one weight with SGD; return its executor's feeds."""
    x = fluid.data("x", [None, 3])
    attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
    fluid.optimizer.SGD(0.1).minimize(L.mean(L.fc(x, 1, bias_attr=False, param_attr=attr)))
    return [np.full((2, 3), t + 1, np.float32) for t in range(steps)]


def kept(name):
    """Return the first number of a variable of the scope."""
    return np.array(fluid.global_scope().find_var(name).get_tensor()).ravel()[0]


def run(feeds, **more):
    """Run the startup program, then a step for each feed; yield the number of the step."""
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for t, batch in enumerate(feeds):
        executor.run(feed={"x": batch, **{name: make(t) for name, make in more.items()}})
        yield t


def names():
    return sorted(v.name for v in fluid.default_main_program().list_vars() if v.persistable)


def test_sums_and_counts_of_a_model_average():
    feeds = weight(6)
    fluid.optimizer.ModelAverage(0.15, 2, 3)
    counts = ["num_accumulates", "num_updates", "old_num_accumulates"]
    own = [f"fc_0.w_0_{what}_0" for what in (*counts, "sum_1", "sum_2", "sum_3")]
    assert names() == ["fc_0.w_0", *own, "learning_rate_0"]
    found = [[int(kept(f"fc_0.w_0_{what}_0")) for what in counts] for _ in run(feeds)]
    assert found == [[1, 1, 0], [0, 2, 2], [1, 3, 2], [0, 4, 2], [1, 5, 2], [0, 6, 2]]
    # the window of the last two steps: the weight falls by 0.1, 0.2, ... from 0.5 on
    assert kept("fc_0.w_0_sum_1_0") == 0
    assert kept("fc_0.w_0_sum_3_0") == pytest.approx((0.5 - 1.5) + (0.5 - 2.1), rel=1e-5)


def test_a_sum_goes_on_in_another_variable_after_many_steps():
    (batch,) = weight()
    fluid.optimizer.ModelAverage(1.0, 100_000, 100_000)
    for _ in run([batch]):
        pass
    scope = fluid.global_scope()
    scope.find_var("fc_0.w_0_num_updates_0").get_tensor().set(np.array([16383], np.int64), fluid.CPUPlace())
    before = float(kept("fc_0.w_0_sum_1_0"))
    fluid.Executor(fluid.CPUPlace()).run(feed={"x": batch})
    assert (kept("fc_0.w_0_num_updates_0"), kept("fc_0.w_0_sum_1_0")) == (16384, 0)
    assert kept("fc_0.w_0_sum_2_0") == pytest.approx(before + float(kept("fc_0.w_0")), rel=1e-6)


def test_the_rate_and_the_counter_of_an_average_that_forgets():
    feeds = weight(4)
    fluid.optimizer.ExponentialMovingAverage(0.9, thres_steps=fluid.data("steps", [1])).update()
    assert names() == ["@EMA_STEP_COUNTER@", "fc_0.w_0", "fc_0.w_0_ema_0", "learning_rate_0", "scheduled_ema_decay_rate"]
    what = ("fc_0.w_0_ema_0", "scheduled_ema_decay_rate", "@EMA_STEP_COUNTER@")
    found = [[float(kept(name)) for name in what] for _ in run(feeds, steps=lambda t: np.array([t], np.float32))]
    expected = [[0.36, 0.1, 1], [0.22909091, 0.18181819, 2], [-0.017727274, 0.25, 3], [-0.3516084, 0.30769232, 4]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
