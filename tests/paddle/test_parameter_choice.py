"""Functions that choose parameters: need_clip of the ways to clip, exclude_from_weight_decay_fn of Lamb."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.paddle import fluid


def steps(optimizer: Any, start: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Take a step on the loss sum(3 w) + sum(4 b) and return the parameters."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        made = [fluid.layers.create_parameter(v.shape, "float32", name=n, attr=fluid.ParamAttr(name=n)) for n, v in start.items()]
        parts = [fluid.layers.reduce_sum(fluid.layers.scale(p, f)) for p, f in zip(made, (3.0, 4.0), strict=True)]
        optimizer.minimize(fluid.layers.sum(parts))
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(startup)
        for name, value in start.items():
            scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
        executor.run(main)
        return {name: np.array(scope.find_var(name).get_tensor()) for name in start}


START = {"a.w_0": np.full(4, 2.0, np.float32), "a.b_0": np.full(1, 1.0, np.float32)}


@pytest.mark.parametrize(
    ("clip", "weights"),
    [
        pytest.param(lambda f: fluid.clip.GradientClipByGlobalNorm(3.0, need_clip=f), 1.5, id="all together"),
        pytest.param(lambda f: fluid.clip.GradientClipByNorm(3.0, need_clip=f), 1.5, id="each"),
        pytest.param(lambda f: fluid.clip.GradientClipByValue(0.5, need_clip=f), 0.5, id="elements"),
    ],
)
def test_only_chosen_gradients_are_clipped(clip: Any, weights: float) -> None:
    found = steps(fluid.optimizer.SGD(0.1, grad_clip=clip(lambda p: p.name.endswith(".w_0"))), START)
    np.testing.assert_allclose(found["a.w_0"], 2.0 - 0.1 * weights, rtol=1e-6)  # sqrt(4 * 9) = 6 becomes 3
    np.testing.assert_allclose(found["a.b_0"], 1.0 - 0.1 * 4.0, rtol=1e-6)


def test_need_clip_is_a_function() -> None:
    with pytest.raises(TypeError, match="need_clip must be a function"):
        fluid.clip.GradientClipByNorm(1.0, need_clip=True)


def test_lamb_leaves_the_excluded_without_decay() -> None:
    all_decay = steps(fluid.optimizer.LambOptimizer(0.05, lamb_weight_decay=0.5), START)
    some = steps(
        fluid.optimizer.LambOptimizer(0.05, lamb_weight_decay=0.5, exclude_from_weight_decay_fn=lambda p: p.name.endswith(".b_0")), START
    )
    none = steps(fluid.optimizer.LambOptimizer(0.05, lamb_weight_decay=0.0), START)
    np.testing.assert_array_equal(some["a.w_0"], all_decay["a.w_0"])
    np.testing.assert_array_equal(some["a.b_0"], none["a.b_0"])


def test_a_parameter_whose_gradient_a_script_stops_is_not_trained():
    # as PaddleDetection freezes affine_channel: pairs and state are those of PaddlePaddle 1.8.5
    x = fluid.data("x", [2, 4, 8, 8])
    scale, shift = (fluid.layers.create_parameter([4], "float32", attr=fluid.ParamAttr(name=name)) for name in "ab")
    hidden = fluid.layers.affine_channel(fluid.layers.conv2d(x, 4, 3, param_attr="w", bias_attr=False), scale=scale, bias=shift)
    scale.stop_gradient = shift.stop_gradient = True
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 2, param_attr="f", bias_attr=False))
    _, pairs = fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    assert [p.name for p, _ in pairs] == ["w", "f"]
    kept = sorted(v.name for v in fluid.default_main_program().list_vars() if v.persistable)
    assert [name for name in kept if "rate" not in name] == ["a", "b", "f", "f_velocity_0", "w", "w_velocity_0"]
