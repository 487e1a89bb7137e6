"""Losses, parameters and running statistics against those of PaddlePaddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

GOLDENS = {net: np.load(Path(__file__).parent / "goldens" / f"{net}.npz") for net in ("mlp", "convbn")}
RUNS = sorted({key.split("|")[0] for found in GOLDENS.values() for key in found.files if "|" in key})
#: Five steps of float32: single weights near 0 differ in the last bits of the step before.
ABSOLUTE = 2e-7


def value(net: str, name: str) -> fluid.ParamAttr:
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(GOLDENS[net][f"init.{name}"]))


def loss_of(logits, label):
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))


def mlp():
    x = fluid.layers.data("x", [8])
    y = fluid.layers.data("y", [1], dtype="int64")
    hidden = fluid.layers.fc(x, 16, param_attr=value("mlp", "fc1.w"), bias_attr=value("mlp", "fc1.b"), act="relu")
    return loss_of(fluid.layers.fc(hidden, 4, param_attr=value("mlp", "fc2.w"), bias_attr=value("mlp", "fc2.b")), y)


def norm(x, name: str):
    return fluid.layers.batch_norm(
        x, act="relu", param_attr=value("convbn", f"{name}.g"), bias_attr=value("convbn", f"{name}.b"),
        moving_mean_name=f"{name}.mean", moving_variance_name=f"{name}.var",
    )  # fmt: skip


def convbn():
    x = fluid.layers.data("x", [1, 8, 8])
    y = fluid.layers.data("y", [1], dtype="int64")
    first = fluid.layers.conv2d(x, 4, 3, padding=1, param_attr=value("convbn", "conv1.w"), bias_attr=False)
    pooled = fluid.layers.pool2d(norm(first, "bn1"), 2, "max", 2)
    conv2 = value("convbn", "conv2.w"), value("convbn", "conv2.b")
    second = norm(fluid.layers.conv2d(pooled, 6, 3, padding=1, param_attr=conv2[0], bias_attr=conv2[1]), "bn2")
    flat = fluid.layers.pool2d(second, pool_type="avg", global_pooling=True)
    return loss_of(fluid.layers.fc(flat, 4, param_attr=value("convbn", "fc.w"), bias_attr=value("convbn", "fc.b")), y)


def optimizer(name: str, extra: str):
    decay = fluid.regularizer.L2Decay(0.05) if extra == "l2" else None
    if name == "sgd":
        return fluid.optimizer.SGD(0.1, regularization=decay)
    return fluid.optimizer.Momentum(0.1, 0.9, regularization=decay)


def runner(kind: str, loss, monkeypatch):
    """Return a function from a feed and a fetch list to values."""
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    if kind == "executor":
        return lambda feed, fetch: executor.run(feed=feed, fetch_list=fetch)
    devices, _, strategy = kind.removeprefix("pe").partition("_")
    monkeypatch.setenv("CPU_NUM", devices)
    build = fluid.BuildStrategy()
    if strategy:
        reduce, scale = strategy.split("_")
        build.reduce_strategy = {"allreduce": "AllReduce", "reduce": "Reduce"}[reduce]
        build.gradient_scale_strategy = {"coeff": "CoeffNumDevice", "one": "One"}[scale]
    parallel = fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build)
    return lambda feed, fetch: parallel.run(fetch, feed=feed)


@pytest.mark.parametrize("run", RUNS)
def test_equals_the_original(run, fresh, monkeypatch):
    net, opt, extra, kind, feeds = run.split("/")
    goldens = GOLDENS[net]
    loss = {"mlp": mlp, "convbn": convbn}[net]()
    optimizer(opt, extra).minimize(loss)
    step = runner(kind, loss, monkeypatch)
    losses = []
    for i in range(5):
        feed = {name: goldens[f"feed.{feeds}.{i}.{name}"] for name in ("x", "y")}
        losses.append(np.ravel(step(feed, [loss.name])[0]))
    np.testing.assert_allclose(np.array(losses), goldens[f"{run}|loss"], rtol=1e-5, atol=ABSOLUTE)
    for key in goldens.files:
        where, _, name = key.partition("|final.")
        if where == run and name:
            found = np.array(fluid.global_scope().find_var(name).get_tensor())
            np.testing.assert_allclose(found, goldens[key], rtol=1e-5, atol=ABSOLUTE, err_msg=name)


@pytest.mark.parametrize("kind", ["executor", "pe1", "pe2_allreduce_coeff"])
def test_running_statistics_equal_the_original(kind, fresh, monkeypatch):
    goldens, run = GOLDENS["convbn"], f"convbn/sgd/plain/{kind}/even"
    loss = convbn()
    optimizer("sgd", "plain").minimize(loss)
    step = runner(kind, loss, monkeypatch)
    names = sorted(k.partition("|scope.")[2] for k in goldens.files if k.startswith(f"{run}|scope."))
    assert names, "the goldens have no running statistics"
    fetched = []
    for i in range(5):
        feed = {name: goldens[f"feed.even.{i}.{name}"] for name in ("x", "y")}
        fetched.append(step(feed, names))
    for name, joined in zip(names, map(np.array, zip(*fetched, strict=True)), strict=True):
        here = np.array(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_allclose(here, goldens[f"{run}|scope.{name}"], rtol=1e-5, atol=ABSOLUTE, err_msg=name)
        np.testing.assert_allclose(joined, goldens[f"{run}|fetched.{name}"], rtol=1e-5, atol=ABSOLUTE, err_msg=name)
