"""Tensor functions of 2.x against NumPy, and their random numbers against what they should be on average."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid


def run(*fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))


def data(name, array):
    return fluid.data(name, [-1, *array.shape[1:]], dtype=array.dtype.name)


@pytest.fixture
def cube(rng):
    return rng.standard_normal((2, 4, 6)).astype("float32")


def test_functions_of_one_tensor(cube):
    x = data("x", cube)
    calls = {
        "norm": (paddle.norm(x, axis=(1, 2)), np.linalg.norm(cube, axis=(1, 2))),
        "norm of all": (paddle.norm(x), [np.sqrt((cube**2).sum())]),
        "std": (paddle.std(x, (1, 2)), cube.std((1, 2), ddof=1)),
        "var": (paddle.var(x, -1, False, True), cube.var(-1, keepdims=True)),
        "numel": (paddle.numel(x), [48]),
        "expand": (paddle.expand(paddle.slice(x, [1], [0], [1]), [-1, 4, -1]), np.repeat(cube[:, :1], 4, 1)),
        "expand_as": (paddle.expand_as(paddle.slice(x, [1], [0], [1]), x), np.repeat(cube[:, :1], 4, 1)),
        "reshape_": (paddle.reshape_(x, [0, 24]), cube.reshape(2, 24)),
        "unsqueeze_": (paddle.unsqueeze_(x, 1), cube[:, None]),
        "squeeze_": (paddle.squeeze_(paddle.unsqueeze(x, [2]), 2), cube),
        "tanh_": (paddle.tanh_(x), np.tanh(cube)),
        "roll": (paddle.roll(x, [1, 2], axis=[1, 2]), np.roll(cube, (1, 2), (1, 2))),
        "logsumexp": (paddle.logsumexp(x, [1, 2]), np.log(np.exp(cube).sum((1, 2)))),
        "median": (paddle.median(x, axis=1), np.median(cube, 1)),
        "trace": (paddle.trace(x, axis1=1, axis2=2), np.trace(cube, axis1=1, axis2=2)),
        "isfinite": (paddle.isfinite(x), np.ones_like(cube, bool)),
        "histogram": (paddle.histogram(x, bins=4, min=-1, max=1), np.histogram(cube, 4, (-1, 1))[0]),
        "inverse": (paddle.inverse(paddle.slice(x, [2], [0], [4])), np.linalg.inv(cube[:, :, :4].astype("float64"))),
        "empty_like": (paddle.empty_like(x), 0 * cube),
    }
    for name, value in zip(calls, run(*(made for made, _ in calls.values()), x=cube), strict=True):
        np.testing.assert_allclose(value, calls[name][1], rtol=2e-4, atol=1e-5, err_msg=name)


def test_chunks(cube):
    parts = run(*paddle.chunk(data("x", cube), 3, axis=-1), x=cube)
    assert all(np.array_equal(a, b) for a, b in zip(parts, np.split(cube, 3, -1), strict=True))


def test_axes_have_the_names_and_defaults_of_2_x(cube):
    x = data("x", cube)
    found = run(paddle.flip(x, axis=[1, 2]), paddle.unsqueeze(x, axis=[0, 2]), paddle.squeeze(paddle.unsqueeze(x, 1), axis=1), x=cube)
    for value, exact in zip(found, (cube[:, ::-1, ::-1], cube[None, :, None], cube), strict=True):
        assert np.array_equal(value, exact)
    rows = paddle.full([4, 6], 1.0)
    assert [tuple(part.shape) for part in paddle.split(rows, 2)] == [(2, 6)] * 2
    assert [tuple(part.shape) for part in paddle.split(rows, [1, -1], axis=1)] == [(4, 1), (4, 5)]


def test_grids():
    one, two = paddle.arange(0, 3, 1, "int64"), paddle.arange(0, 2, 1, "int64")
    exact = np.meshgrid(np.arange(3), np.arange(2), indexing="ij")
    for found in run(*paddle.meshgrid(one, two)), run(*paddle.meshgrid([one, two])):
        assert all(np.array_equal(a, b) for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        pytest.param([1, 2], [1, 2.00001], id="near"),
        pytest.param([1, 2], [1, 2.1], id="far"),
        pytest.param([1, np.inf], [1, np.inf], id="both infinite"),
        pytest.param([1, 2], [1, np.inf], id="one infinite"),
        pytest.param([np.inf], [-np.inf], id="infinite, of other signs"),
        pytest.param([np.nan], [np.nan], id="NaN"),
    ],
)
@pytest.mark.parametrize("equal_nan", [False, True])
def test_allclose(x, y, equal_nan):
    a, b = np.array([x], "float64"), np.array([y], "float64")
    u, v = data("x", a), data("y", b)
    near, same = run(paddle.allclose(u, v, 1e-5, 1e-8, equal_nan), paddle.equal_all(u, v), x=a, y=b)
    assert near.tolist() == [np.allclose(a, b, equal_nan=equal_nan)]
    assert same.tolist() == [np.array_equal(a, b)]


def test_equal_all_of_other_shapes():
    u, v = paddle.ones([2], "float32"), paddle.ones([3], "float32")
    assert run(paddle.equal_all(u, v))[0].tolist() == [False]


def test_the_default_dtype():
    assert paddle.get_default_dtype() == "float32"
    try:
        paddle.set_default_dtype("float64")
        assert [paddle.rand([2]).dtype, paddle.empty([2]).dtype, paddle.randn([2]).dtype, paddle.full([2], 1).dtype] == ["float64"] * 4
    finally:
        paddle.set_default_dtype("float32")
    with pytest.raises(TypeError, match="float32 or float64"):
        paddle.set_default_dtype("int64")


def test_is_tensor():
    assert paddle.is_tensor(paddle.ones([1], "float32"))
    assert not paddle.is_tensor(np.ones(1))


def test_uniform_and_normal_numbers():
    n = [200, 100]
    mean = paddle.full([200, 100], 3.0)
    flat, normal = [paddle.rand(n), paddle.uniform(n, "float64", 2.0, 4.0)], [paddle.normal(1.0, 2.0, n), paddle.normal(mean, 0.5)]
    found = run(*flat, *normal, paddle.randn(n))
    for value, (centre, spread) in zip(found, [(0.5, 12**-0.5), (3, 3**-0.5), (1, 2), (3, 0.5), (0, 1)], strict=True):
        assert value.mean() == pytest.approx(centre, abs=5 * spread / np.sqrt(20_000))
        assert value.std() == pytest.approx(spread, rel=0.03)
    assert found[1].dtype == np.float64
    for name, sizes in (("p", [2, -1]), ("q", [2, 3, -1])):
        with pytest.raises(ValueError, match="only the first size may be unknown"):
            paddle.bernoulli(fluid.data(name, sizes))


def test_whole_numbers():
    below, negative = run(paddle.randint(3, shape=[6000]), paddle.randint(-2, 2, [4000], "int32"))
    assert below.dtype == np.int64
    assert negative.dtype == np.int32
    np.testing.assert_allclose(np.bincount(below), [2000] * 3, rtol=0.1)
    np.testing.assert_allclose(np.bincount(negative + 2), [1000] * 4, rtol=0.15)
    with pytest.raises(ValueError, match="no integer"):
        paddle.randint(0)


def test_bernoulli():
    p = np.tile(np.array([0, 0.25, 1], "float32"), (4000, 1))
    (found,) = run(paddle.bernoulli(data("p", p)), p=p)
    assert set(np.unique(found)) == {0, 1}
    assert found[:, [0, 2]].tolist() == [[0, 1]] * 4000
    assert found[:, 1].mean() == pytest.approx(0.25, abs=0.035)


def test_multinomial_with_replacement():
    weights = np.array([[1, 0, 3], [2, 2, 0]], "float32")
    (found,) = run(paddle.multinomial(data("w", weights), 8000, True), w=weights)
    counts = np.array([np.bincount(row, minlength=3) for row in found])
    assert found.dtype == np.int64
    assert counts[0, 1] == counts[1, 2] == 0
    np.testing.assert_allclose(counts[:, 0] / 8000, [0.25, 0.5], atol=0.03)


def test_multinomial_without_replacement():
    weights = np.tile(np.array([1, 0, 3, 4], "float32"), (8000, 1))
    (found,) = run(paddle.multinomial(data("w", weights), 2), w=weights)
    assert (found[:, 0] != found[:, 1]).all()
    assert 1 not in found
    np.testing.assert_allclose(np.bincount(found[:, 0]) / 8000, [1 / 8, 0, 3 / 8, 4 / 8], atol=0.03)
    assert (found[found[:, 0] == 3, 1] == 2).mean() == pytest.approx(0.75, abs=0.04)
    with pytest.raises(ValueError, match="5 different ones of 4"):
        paddle.multinomial(data("v", weights), 5)
