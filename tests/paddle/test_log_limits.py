"""Logarithms of probabilities end at -64 under the original's Python names. Numbers are those of PaddlePaddle 1.8.5 on the CPU."""

from __future__ import annotations

import numpy as np

import pe_cli.paddle.fluid as fluid
from pe_cli.ops.define.registry import find

L = fluid.layers
LOGITS = np.array([[0, 50, -3], [0, 63.9, 1], [0, 64.1, 1], [0, 70, 1], [0, 1000, 5], [0, 200, 100], [0, 90, 90]], np.float32)
CLASSES = np.zeros((7, 1), np.int64)
SHARES = np.tile(np.array([0.2, 0.3, 0.5], np.float32), (7, 1))


def run(make):
    """Return what a layer gives for the logits, and the gradient of its sum."""
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    out = make(x, fluid.data("classes", [None, 1], "int64"), fluid.data("shares", [None, 3]))
    gradient = fluid.gradients(L.reduce_sum(out), x)[0]
    feed = {"x": LOGITS, "classes": CLASSES, "shares": SHARES}
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out, gradient])


def test_a_loss_of_classes_ends_at_64_and_its_gradient_does_not():
    loss, gradient = run(lambda x, classes, shares: L.softmax_with_cross_entropy(x, classes))
    # two largest logits: 64 and the logarithm of 2
    np.testing.assert_allclose(loss.ravel(), [50, 63.9, 64, 64, 64, 64, 64 + np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(gradient[:6], np.tile([-1.0, 1.0, 0.0], (6, 1)), atol=1e-6)


def test_a_loss_of_shares_counts_each_class_to_64():
    loss, gradient = run(lambda x, classes, shares: L.softmax_with_cross_entropy(x, shares, soft_label=True))
    np.testing.assert_allclose(loss.ravel()[:6], [36.5, 44.23, 44.35, 44.8, 44.8, 44.8], rtol=1e-6)
    np.testing.assert_allclose(gradient[:6], np.tile([-0.2, 0.7, -0.5], (6, 1)), atol=1e-6)


def test_log_softmax_ends_at_minus_64():
    found, _ = run(lambda x, classes, shares: L.log_softmax(x))
    expected = [[-50, 0, -53], [-63.9, 0, -62.9], [-64, 0, -63.1], [-64, 0, -64], [-64, 0, -64], [-64, 0, -64]]
    np.testing.assert_allclose(found[:6], expected, rtol=1e-6)


def test_a_row_that_is_ignored_has_no_loss():
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
    loss = L.softmax_with_cross_entropy(x, y, ignore_index=0)
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": LOGITS, "y": CLASSES}, fetch_list=[loss])[0]
    np.testing.assert_array_equal(found, np.zeros((7, 1), np.float32))


def test_the_limit_is_one_of_these_names_alone():
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
    L.softmax_with_cross_entropy(x, y)
    (made,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "softmax_with_cross_entropy"]
    # programs of model files have the operator's default, none
    assert (made.attrs["limit"], find("softmax_with_cross_entropy").attrs["limit"].default) == (64.0, 0.0)
