"""fluid.optimizer.RecomputeOptimizer: the numbers of the wrapped optimizer, with operators that are done again."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

from pe_cli.graph.passes import recompute
from pe_cli.paddle import fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError


def net(checkpoints=None):
    """Return main, startup and loss; checkpoints: layers that end segments."""
    main, start = fluid.Program(), fluid.Program()
    main.random_seed = start.random_seed = 5
    with fluid.program_guard(main, start), fluid.unique_name.guard():
        x, y = fluid.data("x", [-1, 6]), fluid.data("y", [-1, 1], dtype="int64")
        layers = [x]
        for _ in range(4):
            layers.append(fluid.layers.dropout(fluid.layers.fc(layers[-1], 8, act="tanh"), 0.2))
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(layers[-1], 3), y))
        optimizer = fluid.optimizer.Adam(0.01)
        if checkpoints is not None:
            optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints([layers[i] for i in checkpoints])
        optimizer.minimize(loss)
    return main, start, loss


def losses(main, start, loss) -> list[float]:
    scope, exe, rng = fluid.Scope(), fluid.Executor(fluid.CPUPlace()), np.random.default_rng(1)
    with fluid.scope_guard(scope):
        exe.run(start)
        feeds = [{"x": rng.normal(size=(7, 6)).astype("float32"), "y": rng.integers(0, 3, (7, 1))} for _ in range(4)]
        return [exe.run(main, feed=feed, fetch_list=[loss])[0].item() for feed in feeds]


def test_the_same_numbers_with_operators_that_are_done_again():
    main, start, loss = net([2, 3])
    assert re.fullmatch(r"recompute: \d+ ops of 2 segments .*", recompute.run(main, [loss.name])[1])
    assert losses(main, start, loss) == losses(*net())


def test_checkpoints_that_are_none():
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(FluidTypeError, match="checkpoints must be a list"):
        optimizer._set_checkpoints("x")
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [-1, 3]), 1))
        with pytest.raises(FluidValueError, match="has no checkpoints"):
            optimizer.minimize(loss)
        optimizer._set_checkpoints(["x"])
        with pytest.raises(FluidValueError, match="no operator computes the checkpoint 'x'"):
            optimizer.minimize(loss)
        with pytest.raises(NotImplementedError, match="loaded from files"):
            optimizer.load({})


def test_it_is_copied():
    made = copy.copy(fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.25)))
    assert made.type == made._optimizer.type
    with pytest.raises(AttributeError, match="nothing_like_it"):
        made.nothing_like_it  # noqa: B018 - the attribute is asked for
