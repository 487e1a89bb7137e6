"""Losses of sequences and of trees in paddle.nn, gradients that are cut on the way back, and Auc, beside PyTorch's and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
import pe_cli.paddle.nn.functional as F
from pe_cli.paddle import nn
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from tests.needs import torch
from tests.paddle.nn_support import check, computed, values

STEPS, SIZES = np.array([7, 5, 3]), np.array([3, 2, 1])
LABELS = np.array([[1, 1, 3], [2, 3, 0], [4, 0, 0]])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("blank", [0, 4])
def test_ctc_loss(reduction, blank):
    labels = LABELS if blank == 0 else (LABELS + 3) % 4
    lengths = [torch.tensor(v) for v in (STEPS, SIZES)]

    def ours(x):
        fed = (fluid.layers.assign(v) for v in (labels, STEPS, SIZES))
        return F.ctc_loss(x, *fed, blank=blank, reduction=reduction)

    def theirs(x):
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), torch.tensor(labels), *lengths, blank=blank, reduction=reduction)

    check(torch, ours, theirs, values(7, 3, 5))


def test_ctc_loss_as_a_layer():
    given = [fluid.layers.assign(v) for v in (LABELS, STEPS, SIZES)]
    x = values(7, 3, 5)
    as_function, as_layer = (
        computed(lambda v, f=f: f(v, *given), x) for f in (lambda *a: F.ctc_loss(*a, reduction="sum"), nn.CTCLoss(0, "sum"))
    )
    for one, two in zip(as_function, as_layer, strict=True):
        np.testing.assert_array_equal(one, two)


def tree_loss(torch, x, weight, bias, paths):
    """Return the loss of the paths [(node, answer), ...] of every row."""
    rows = []
    for row, path in zip(x, paths, strict=True):
        scores = [(weight[node] @ row + (bias[node, 0] if bias is not None else 0.0), bit) for node, bit in path]
        rows.append(sum(torch.nn.functional.softplus(s) - bit * s for s, bit in scores))
    return torch.stack(rows)[:, None]


@pytest.mark.parametrize("classes", [2, 6, 8])
@pytest.mark.parametrize("bias", [None, False])
def test_hsigmoid_of_the_complete_tree(classes, bias, rng):
    label = rng.integers(0, classes, (5, 1))
    layer = nn.HSigmoidLoss(4, classes, bias_attr=bias)
    paths = []
    for c in label[:, 0] + classes:  # the leaves of a heap
        bits = int(c).bit_length() - 1
        paths.append([((int(c) >> (k + 1)) - 1, (int(c) >> k) & 1) for k in range(bits)])
    agrees(torch, layer, paths, label, bias)


def test_hsigmoid_of_a_tree_of_ones_own():
    layer = nn.HSigmoidLoss(4, 5, is_custom=True)
    table = np.array([[0, 1, 4], [0, 2, -1], [0, -1, -1]])
    code = np.array([[0, 1, 1], [1, 0, -1], [1, -1, -1]])
    paths = [[(n, c) for n, c in zip(*pair, strict=True) if n >= 0] for pair in zip(table, code, strict=True)]
    agrees(torch, layer, paths, np.array([[0], [1], [2]]), None, table, code)


def agrees(torch, layer, paths, label, bias, *tree):
    x = values(len(label), 4)
    v = fluid.data("x", list(x.shape), "float32")
    v.stop_gradient = False
    cost = layer(v, *(fluid.layers.assign(a) for a in (label, *tree)))
    slopes = fluid.gradients(fluid.layers.reduce_sum(fluid.layers.square(cost)), [v, *layer.parameters()])
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    scope, given = fluid.global_scope(), []
    for k, p in enumerate(layer.parameters()):
        given.append(values(*p.shape, seed=k + 1))
        scope.find_var(p.name).get_tensor().set(given[-1], fluid.CPUPlace())
    found = executor.run(feed={"x": x}, fetch_list=[cost, *slopes])
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, *given)]
    expected = tree_loss(torch, *theirs[:2], None if bias is False else theirs[2], paths)
    (expected**2).sum().backward()
    for one, two in zip(found, [expected.detach(), *(t.grad for t in theirs)], strict=True):
        np.testing.assert_allclose(one, two.numpy(), rtol=2e-5, atol=2e-6)


def test_hsigmoid_refuses_what_does_not_go_together():
    with pytest.raises(FluidValueError, match="num_classes is 1"):
        nn.HSigmoidLoss(4, 1)
    x, label = fluid.data("x", [2, 4], "float32"), fluid.data("label", [2, 1], "int64")
    with pytest.raises(FluidValueError, match="is_custom"):
        nn.HSigmoidLoss(4, 5, is_custom=True)(x, label)


# --- gradients that are cut -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bounds", "low", "high"), [((1.5,), -1.5, 1.5), ((1.0, -0.25), -0.25, 1.0)])
def test_the_gradient_of_a_variable_is_cut(bounds, low, high):
    x = values(4, 3)
    v = fluid.data("x", [4, 3], "float32")
    v.stop_gradient = False
    inner = fluid.layers.square(v)
    inner._set_error_clip(fluid.clip.ErrorClipByValue(*bounds))
    (slope,) = fluid.gradients(fluid.layers.reduce_sum(fluid.layers.elementwise_mul(inner, fluid.layers.scale(v, 3.0))), v)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": x}, fetch_list=[slope])
    np.testing.assert_allclose(found, np.clip(3 * x, low, high) * 2 * x + 3 * x**2, rtol=1e-5, atol=1e-6)


def test_what_cannot_cut_a_gradient():
    with pytest.raises(FluidValueError, match="min <= max"):
        fluid.clip.ErrorClipByValue(1.0, 2.0)
    with pytest.raises(FluidTypeError, match="takes an ErrorClipByValue"):
        fluid.data("x", [2], "float32")._set_error_clip(1.0)


# --- areas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curve", ["ROC", "PR"])
def test_auc_of_all_batches(curve, rng):
    metrics = pytest.importorskip("sklearn.metrics")
    measure = fluid.metrics.Auc("auc", curve=curve, num_thresholds=100)
    assert measure.eval() == 0
    scores = rng.integers(0, 101, (3, 40)) / 100
    labels = (rng.random((3, 40)) < scores).astype("int64")
    for p, y in zip(scores, labels, strict=True):
        measure.update(np.stack([1 - p, p], 1), y[:, None])
    bins = (scores * 100).astype(int).ravel()
    np.testing.assert_allclose(measure.eval(), metrics.roc_auc_score(labels.ravel(), bins), rtol=1e-12)
    measure.reset()
    assert measure.eval() == 0


def test_auc_refuses_what_is_no_probability():
    with pytest.raises(FluidValueError, match="curve is 'LIFT'"):
        fluid.metrics.Auc("auc", "LIFT")
    with pytest.raises(FluidValueError, match="from 0 to 1"):
        fluid.metrics.Auc("auc").update(np.array([[0.0, 1.5]]), np.array([1]))
