"""Functions whose arguments 2.x calls otherwise than fluid: NumPy is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import paddle
from pe_cli.paddle import fluid

X = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.0]], "float32")
V = np.array([1.0, 2.0, 3.0], "float32")


def run(*made):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(feed={"x": X, "v": V}, fetch_list=list(made))]


CASES = [
    ("concat", lambda p, x, v: p.concat(x=[x, x], axis=1), np.concatenate([X, X], 1)),
    ("stack", lambda p, x, v: p.stack([x, x], 1), np.stack([X, X], 1)),
    ("add_n", lambda p, x, v: p.add_n([x, x]), 2 * X),
    ("gather rows", lambda p, x, v: p.gather(x, p.assign(np.array([1, 0]))), X[[1, 0]]),
    ("gather columns", lambda p, x, v: p.gather(x, p.assign(np.array([2, 0])), axis=1), X[:, [2, 0]]),
    ("smallest of columns", lambda p, x, v: p.topk(x, 1, axis=0, largest=False)[0], np.sort(X, 0)[:1]),
    ("places of columns", lambda p, x, v: p.topk(x, 1, axis=0, largest=False)[1], np.argsort(X, 0)[:1]),
    ("argmax of all", lambda p, x, v: p.argmax(x), X.argmax()),
    ("argmin", lambda p, x, v: p.argmin(x, axis=1, keepdim=True, dtype="int32"), X.argmin(1)[:, None]),
    ("equal", lambda p, x, v: p.equal(x, x, name="n"), X == X),
    ("sum", lambda p, x, v: p.sum(x, 1, "float64", True), X.astype("float64").sum(1, keepdims=True)),
    ("prod", lambda p, x, v: p.prod(x, axis=0), X.prod(0)),
    ("ones", lambda p, x, v: p.ones([2, 2], "int64"), np.ones((2, 2))),
    ("zeros_like", lambda p, x, v: p.zeros_like(x), np.zeros_like(X)),
    ("full_like", lambda p, x, v: p.full_like(x, 7, "int32"), np.full_like(X, 7)),
    ("eye", lambda p, x, v: p.eye(2, 3), np.eye(2, 3)),
    ("linspace", lambda p, x, v: p.linspace(0.0, 1.0, 3), np.linspace(0, 1, 3)),
    ("mm", lambda p, x, v: p.mm(input=x, mat2=p.transpose(x, [1, 0])), X @ X.T),
    ("addmm", lambda p, x, v: p.addmm(x, p.eye(2), x, 2.0, 3.0), 5 * X),
    ("tril", lambda p, x, v: p.tril(x=x, diagonal=-1), np.tril(X, -1)),
    ("diag of a vector", lambda p, x, v: p.diag(v, 1, 9.0), np.where(np.eye(4, k=1) > 0, np.diag(V, 1), 9.0)),
    ("diag of a matrix", lambda p, x, v: p.diag(x, -1), np.diag(X, -1)),
    ("flatten", lambda p, x, v: p.flatten(p.stack([x, x], 2), 1), np.stack([X, X], 2).reshape(2, -1)),
    ("crop", lambda p, x, v: p.crop(x, shape=[1, 2], offsets=[1, 1]), X[1:, 1:]),
    ("nonzero", lambda p, x, v: p.nonzero(p.tril(x), as_tuple=True)[1], np.nonzero(np.tril(X))[1][:, None]),
    ("sigmoid", lambda p, x, v: p.sigmoid(x), 1 / (1 + np.exp(-X))),
    ("linalg", lambda p, x, v: p.linalg.norm(x), np.linalg.norm(X)),
]


@pytest.mark.parametrize(("make", "wanted"), [pytest.param(m, w, id=i) for i, m, w in CASES])
def test_functions_of_the_top_level(make, wanted):
    found = run(make(paddle, fluid.data("x", [2, 3]), fluid.data("v", [3])))[0]
    np.testing.assert_allclose(found.reshape(np.shape(wanted)), wanted, rtol=1e-6)


def test_axes_that_do_not_follow_each_other_are_refused():
    with pytest.raises(ValueError, match="stop_axis 0 stands before start_axis 1"):
        paddle.flatten(fluid.data("x", [2, 3]), 1, 0)
    with pytest.raises(ValueError, match="has no diagonal 5"):
        paddle.diag(fluid.data("y", [2, 3]), 5)


def test_names_stand_where_the_original_has_them():
    assert paddle.static.nn.while_loop is fluid.layers.while_loop
    assert paddle.nn.ClipGradByNorm is fluid.clip.GradientClipByNorm
    assert paddle.vision.Resize is paddle.vision.transforms.Resize
    assert paddle.static.ExponentialMovingAverage is fluid.optimizer.ExponentialMovingAverage
    with pytest.raises(ValueError, match="Assign takes an array"):
        paddle.nn.initializer.Assign(fluid.data("x", [2]))


def test_initializers_by_their_names_in_2_x():
    kinds, x = paddle.nn.initializer, fluid.data("x", [2, 3])
    fluid.data("v", [3])
    first = [kinds.Constant(2.0), kinds.Assign([[1.0, 2.0]]), kinds.Uniform(3.0, 3.5), kinds.Normal(50.0, 0.1), kinds.KaimingNormal()]
    for i, kind in enumerate(first):
        fluid.layers.fc(fluid.layers.slice(x, [1], [0], [1]), 2, param_attr=fluid.ParamAttr(name=f"w{i}", initializer=kind))
    values = run(*(f"w{i}" for i in range(len(first))))
    assert values[0].tolist() == [[2.0, 2.0]]
    assert values[1].tolist() == [[1.0, 2.0]]
    assert ((values[2] >= 3) & (values[2] < 3.5)).all()
    assert (abs(values[3] - 50) < 5).all()


def test_initializers_of_2_6():
    kinds, static = paddle.nn.initializer, paddle.static
    made = {"dirac": (kinds.Dirac(2), [4, 3, 3]), "square": (kinds.Orthogonal(2.0), [4, 6]), "tall": (kinds.Orthogonal(), [6, 2, 2])}
    made["leaky"] = (kinds.KaimingNormal(negative_slope=2.0, nonlinearity="leaky_relu"), [300, 400])
    made["even"] = (kinds.KaimingUniform(nonlinearity="tanh"), [300, 400])
    for name, (kind, shape) in made.items():
        static.create_parameter(shape, "float32", name, paddle.ParamAttr(name=name, initializer=kind))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    values = {name: np.asarray(v) for name, v in zip(made, exe.run(fetch_list=list(made)), strict=True)}
    # 2.6.2 has these places, and the deviations 0.0365 and 0.0963.
    assert np.argwhere(values["dirac"]).tolist() == [[0, 0, 1], [1, 1, 1], [2, 0, 1], [3, 1, 1]]
    np.testing.assert_allclose(values["square"] @ values["square"].T, 4 * np.eye(4), atol=1e-5)
    np.testing.assert_allclose(values["tall"].reshape(6, 4).T @ values["tall"].reshape(6, 4), np.eye(4), atol=1e-5)
    assert abs(values["leaky"].std() - 0.0365) < 5e-4
    assert abs(values["even"].std() - 0.0963) < 5e-4


def test_gains():
    gain = paddle.nn.initializer.calculate_gain
    assert gain("tanh") == 5 / 3
    assert gain("relu") == 2**0.5
    assert gain("leaky_relu", 1.0) == 1.0
    assert gain("conv2d_transpose") == 1
    with pytest.raises(ValueError, match="nonlinearity is 'gelu'"):
        gain("gelu")


def test_first_values_of_all_layers():
    kinds = paddle.nn.initializer
    kinds.set_global_initializer(kinds.Constant(2.0), kinds.Constant(3.0))
    try:
        layer = paddle.nn.Linear(2, 2)
        own = paddle.nn.Linear(2, 2, weight_attr=paddle.ParamAttr(initializer=kinds.Constant(5.0)))
    finally:
        kinds.set_global_initializer(None)
    later = paddle.nn.Linear(2, 2)
    fluid.data("x", [2, 3]), fluid.data("v", [3])
    found = run(layer.weight, layer.bias, own.weight, later.bias)
    assert [v.ravel()[0] for v in found] == [2.0, 3.0, 5.0, 0.0]
    with pytest.raises(TypeError, match="weight_init is 1"):
        kinds.set_global_initializer(1)
    with pytest.raises(ValueError, match="groups is 0"):
        kinds.Dirac(0)
    with pytest.raises(ValueError, match="at least two axes"):
        later.create_parameter([3], default_initializer=kinds.Orthogonal())
