"""Functions of element types, modes and random numbers that came after 2.0, and what they refuse: NumPy is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import paddle
from pe_cli.paddle import fluid


def run(feed, *made):
    return [np.asarray(v) for v in fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(made))]


def test_what_element_types_hold():
    found, whole = paddle.finfo("float32"), paddle.iinfo(paddle.int32)
    assert (found.bits, found.dtype, whole.bits, whole.min, whole.max) == (32, "float32", 32, -(2**31), 2**31 - 1)
    assert found.max == np.finfo("float32").max == -found.min
    assert (found.eps, found.tiny, found.smallest_normal) == (2**-23, 2**-126, 2**-126)
    x = fluid.data("x", [2], "int64")
    assert isinstance(x.dtype, paddle.dtype)
    assert (paddle.is_integer(x), paddle.is_floating_point(x), paddle.is_complex(x)) == (True, False, False)
    for wrong in (lambda: paddle.finfo("int32"), lambda: paddle.iinfo("float32")):
        with pytest.raises(TypeError, match="has no"):
            wrong()


def test_gradients_are_enabled_within_no_grad():
    x = fluid.data("x", [2])
    x.stop_gradient = False
    with paddle.no_grad():
        stopped = x * 3.0
        with paddle.enable_grad():
            free = x * 5.0
    with paddle.set_grad_enabled(False):
        again = x * 7.0
    with paddle.set_grad_enabled(True):
        more = x * 11.0
    (slope,) = fluid.gradients(paddle.sum(stopped + free + again + more), [x])
    assert run({"x": np.ones(2, "float32")}, slope)[0].tolist() == [16.0, 16.0]
    assert not paddle.is_grad_enabled()


def test_random_states_are_none():
    assert paddle.get_rng_state() == []
    paddle.set_rng_state([])
    paddle.disable_signal_handler()
    paddle.set_printoptions(precision=4, sci_mode=False)
    with pytest.raises(ValueError, match="1 states for 0 generators"):
        paddle.set_rng_state([object()])
    with pytest.raises(TypeError, match="set_printoptions: precision"):
        paddle.set_printoptions("many")


def test_how_variables_vary_together():
    """NumPy is the oracle: 2.6.2 returns infinities in static mode."""
    value = np.random.RandomState(3).rand(3, 5).astype("float32")
    counts, weights = np.array([1, 2, 1, 3, 1]), np.array([0.2, 1.0, 0.5, 0.7, 0.3], "float32")
    x, n, w = fluid.data("x", [3, 5]), fluid.data("n", [5], "int64"), fluid.data("w", [5])
    made = [
        paddle.linalg.cov(x), paddle.linalg.cov(x, rowvar=False, ddof=False), paddle.linalg.cov(x, fweights=n),
        paddle.linalg.cov(x, fweights=n, aweights=w), paddle.linalg.cov(x, True, False, aweights=w), paddle.linalg.corrcoef(x),
        paddle.linalg.cov(fluid.layers.slice(fluid.layers.reshape(x, [-1]), [0], [0], [5])),
    ]  # fmt: skip
    wanted = [
        np.cov(value), np.cov(value, rowvar=False, ddof=0), np.cov(value, fweights=counts),
        np.cov(value, fweights=counts, aweights=weights), np.cov(value, aweights=weights, ddof=0),
        np.corrcoef(value), [np.var(value[0], ddof=1)],
    ]  # fmt: skip
    for mine, right in zip(run({"x": value, "n": counts, "w": weights}, *made), wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=2e-5, atol=1e-6)


def test_numbers_are_drawn_as_often_as_they_should():
    x = fluid.data("x", [None, 2000])
    drawn = [paddle.poisson(x), paddle.randint_like(x, 2, 6, "int64"), paddle.normal_(x, 1.0, 2.0)]
    drawn += [paddle.cauchy_(x), paddle.geometric_(x, 0.3)]
    means = np.array([[0.5], [9.0], [60.0], [400.0]], "float32")
    counts, whole, normal, cauchy, geometric = run({"x": np.tile(means, (1, 2000))}, *drawn)
    assert (counts == counts.round()).all()
    np.testing.assert_allclose(counts.mean(1), means[:, 0], rtol=0.12)
    np.testing.assert_allclose(counts.var(1), means[:, 0], rtol=0.2)
    assert set(np.unique(whole)) == {2, 3, 4, 5}
    assert abs(normal.mean() - 1) < 0.1
    assert abs(normal.std() - 2) < 0.1
    assert abs(np.median(cauchy)) < 0.1
    assert abs((np.abs(cauchy) < 1).mean() - 0.5) < 0.05
    assert abs((geometric > 1).mean() - 0.7) < 0.05


def test_parts_of_images_are_taken_by_strides():
    x = fluid.data("x", [3, 4])
    value = np.arange(12, dtype="float32").reshape(3, 4)
    made = [paddle.as_strided(x, [2, 2], [4, 1], 1), paddle.unfold(x, 1, 2, 2), x.view([4, 3]), x.view_as(paddle.reshape(x, [12]))]
    found = run({"x": value}, *made)
    assert found[0].tolist() == [[1, 2], [5, 6]]
    assert found[1].tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert found[2].shape == (4, 3)
    assert found[3].shape == (12,)


def test_places_are_filled():
    x = fluid.data("x", [3, 4])
    value = np.arange(12, dtype="float32").reshape(3, 4)
    number, column = fluid.layers.assign(np.array([0, 2])), fluid.layers.assign(np.array([[1], [1], [2]]))
    made = [
        paddle.index_fill(x, number, 1, -1.0), paddle.index_put(x, (paddle.greater_than(x, paddle.full_like(x, 6.0)),), 5.0),
        paddle.put_along_axis(x, column, 9.0, 1), paddle.put_along_axis(x, column, 5.0, 1, "amax"), x.ceil_().neg_(),
    ]  # fmt: skip
    filled = value.copy()
    filled[:, [0, 2]] = -1
    put, most = value.copy(), value.copy()
    put[[0, 1, 2], [1, 1, 2]] = 9
    most[[0, 1, 2], [1, 1, 2]] = [5, 5, 10]
    found = run({"x": value}, *made)
    for mine, wanted in zip(found, (filled, np.where(value > 6, 5, value), put, most, -value), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_batches_of_any_size_are_taken():
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 4])
    made = [
        paddle.fmax(x, y), paddle.quantile(x, 0.5, 1), paddle.kthvalue(x, 2, 1)[0], paddle.cummax(x, 1)[0], paddle.mode(x, 1)[0],
        paddle.unflatten(x, 1, [2, 2]), paddle.take_along_axis(x, fluid.layers.assign(np.array([[1]])), 1), paddle.renorm(x, 2.0, 1, 1.0),
        paddle.searchsorted(fluid.layers.assign(np.array([0.2, 0.5], "float32")), x),
    ]  # fmt: skip
    feed = {name: np.random.RandomState(i).rand(5, 4).astype("float32") for i, name in enumerate("xy")}
    a, b = feed["x"], feed["y"]
    wanted = [np.maximum(a, b), np.median(a, 1), np.sort(a, 1)[:, 1], np.maximum.accumulate(a, 1), a.min(1), a.reshape(5, 2, 2), a[:, 1:2]]
    wanted += [a / np.maximum(1, np.linalg.norm(a, axis=0)), np.searchsorted([0.2, 0.5], a)]
    for mine, right in zip(run(feed, *made), wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5)


@pytest.mark.parametrize(("call", "says"), [
    pytest.param(lambda x: paddle.put_along_axis(x, x, x, 0, "mean"), "reduce is 'mean'", id="another way to join"),
    pytest.param(lambda x: paddle.quantile(x, 1.5), "q is 1.5", id="a share above 1"),
    pytest.param(lambda x: paddle.tensordot(x, x, [[0], [1]]), "tensordot: axis 0", id="sizes that differ"),
    pytest.param(lambda x: paddle.diagonal(x, 9), "has no diagonal 9", id="no such diagonal"),
    pytest.param(lambda x: paddle.unfold(x, 0, 5, 1), "windows of 5", id="windows that are too large"),
    pytest.param(lambda x: paddle.kthvalue(x, 9), "k is 9", id="fewer entries"),
    pytest.param(lambda x: paddle.rot90(x, 1, [0, 0]), "axes are", id="one axis twice"),
    pytest.param(lambda x: paddle.broadcast_shape([2, 3], [4]), "broadcast_shape", id="shapes that do not fit"),
    pytest.param(lambda x: paddle.take(x, fluid.data("n", [1], "int64"), "none"), "mode is 'none'", id="another mode"),
    pytest.param(lambda x: paddle.select_scatter(x, x, 0, 0), "select_scatter", id="a part of another shape"),
    pytest.param(lambda x: paddle.cdist(x, x, -1.0), "p is -1", id="a negative power"),
    pytest.param(lambda x: paddle.combinations(fluid.data("v", [2]), 3), "3 of 2", id="more than there are"),
    pytest.param(lambda x: paddle.polygamma(x, -1), "n is -1", id="a negative order"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(fluid.data("x", [2, 3]))
