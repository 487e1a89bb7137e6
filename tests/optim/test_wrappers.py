"""GradientCentralization: the gradient of each output's weights has the mean 0, and everything after it sees that gradient."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.layers.define.registry import find
from pe_cli.optim.clip import GradientClipByGlobalNorm
from pe_cli.optim.lookahead import Lookahead
from pe_cli.optim.optimizers import SGD, Momentum
from pe_cli.optim.wrappers import GradientCentralization
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program


def call(layer, *args, **given):
    return find(layer).fn(*args, **given)


class Network:
    """A table, a filter and a matrix with a bias each, and an optimizer."""

    def __init__(self, optimizer, devices=1, sparse=False, **build):
        self.main, startup = Program("main"), Program("startup")
        self.main.random_seed = startup.random_seed = 4
        with program_guard(self.main, startup):
            words = call("embedding", call("data", "words", [1], dtype="int64"), [20, 16], is_sparse=sparse)
            pictures = call("conv2d", call("reshape", words, [-1, 1, 4, 4]), 3, 2, act="tanh")
            loss = call("mean", call("square", call("fc", pictures, 5)))
            _, self.pairs = optimizer.minimize(loss)
        self.scope = Scope([Place("cpu", d) for d in range(devices)])
        self.executor = Executor(self.main, self.scope, seed=1, build=BuildStrategy(**build))
        run_startup(startup, self.scope, 1)
        self.steps = 0

    def step(self, fetches=()):
        words = np.random.default_rng(self.steps).integers(0, 20, (6, 1))
        self.steps += 1
        return self.executor.run({"words": words}, list(fetches), self.steps).values[0]

    def values(self):
        return {p.name: self.scope.get(p.name) for p, _ in self.pairs}


def moved(optimizer):
    """Return the gradients of a step, and how far the parameters moved."""
    network = Network(optimizer)
    before = network.values()
    gradients = network.step([g.name for _, g in network.pairs])
    after = network.values()
    return {p.name: gradients[g.name] for p, g in network.pairs}, {name: before[name] - after[name] for name in before}


def centred(name, g):
    """Return the gradient as the paper has it: the mean over the inputs of each output is gone."""
    if name.startswith("fc") and g.ndim == 2:
        return g - g.mean(axis=0, keepdims=True)
    return g - g.mean(axis=(1, 2, 3), keepdims=True) if g.ndim == 4 else g


def test_filters_and_matrices_are_centred_and_nothing_else():
    gradients, steps = moved(GradientCentralization(SGD(1.0)))
    assert sorted(g.ndim for g in gradients.values()) == [1, 1, 2, 2, 4]
    for name, g in gradients.items():
        np.testing.assert_allclose(steps[name], centred(name, g), rtol=1e-4, atol=1e-6, err_msg=name)


def test_clipping_sees_the_centred_gradients():
    gradients, steps = moved(GradientCentralization(SGD(1.0, grad_clip=GradientClipByGlobalNorm(0.01))))
    wanted = {name: centred(name, g) for name, g in gradients.items()}
    length = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in wanted.values()))
    assert length > 0.01
    for name, g in wanted.items():
        np.testing.assert_allclose(steps[name], g * 0.01 / length, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "build",
    [{"reduce_strategy": "Reduce"}, {"enable_auto_fusion": False}, {"fuse_all_optimizer_ops": False}, {"fuse_grad_update": False}],
    ids=str,
)
def test_no_strategy_changes_a_bit(build, sparse):
    def train(**given):
        network = Network(GradientCentralization(Lookahead(Momentum(0.1, 0.9), k=2)), 2, sparse, **given)
        for _ in range(5):
            network.step()
        return network.values()

    expected, found = train(), train(**build)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_the_inner_optimizer_is_one():
    with pytest.raises(PeError, match=r"GradientCentralization: inner must be an optimizer, got 0\.1"):
        GradientCentralization(0.1)
