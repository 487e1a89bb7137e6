"""Tensor functions by 1.8's names, distributions, readers and gradients of gradients, against PyTorch, NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from tests.needs import torch

L = fluid.layers

def run(*fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))


def test_functions_of_one_or_more_tensors(rng):
    a, b = rng.standard_normal((2, 3, 4)).astype("float32")
    x, y = fluid.data("x", [3, 4]), fluid.data("y", [3, 4])
    v = fluid.data("v", [4])
    found = run(
        L.clamp(x, max=0.5), L.clamp(x, -0.5, 0.5), L.addcmul(x, y, y, value=0.7), L.t(x), L.t(v), L.diag(v), L.nonzero(v),
        L.logsumexp(x, dim=1), L.trace(x, offset=1, dim1=0, dim2=1), L.index_select(x, L.assign(np.array([2, 0])), dim=1),
        L.roll(x, 1, dims=1), L.arange(3), L.mish(x, threshold=2), L.pow(x, v[0:1]), x=a, y=b, v=np.array([2.0, 0, 1, -1], "float32"),
    )  # fmt: skip
    vector = np.array([2.0, 0, 1, -1])
    soft = np.where(a > 2, a, np.where(a < -2, np.exp(a), np.logaddexp(0, a)))
    wanted = [
        np.minimum(a, 0.5), a.clip(-0.5, 0.5), a + 0.7 * b * b, a.T, vector, np.diag(vector), [[0], [2], [3]],
        torch.logsumexp(torch.tensor(a), 1), [np.trace(a, 1)], a[:, [2, 0]], np.roll(a, 1, 1), [0, 1, 2], a * np.tanh(soft), a * a,
    ]  # fmt: skip
    for i, (got, right) in enumerate(zip(found, wanted, strict=True)):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6, err_msg=str(i))


def test_what_cannot_be_is_an_error():
    x = fluid.data("x", [2, 3, 4])
    for call, kind in (
        (lambda: L.t(x), FluidValueError),
        (lambda: L.clamp(x), FluidValueError),
        (lambda: L.clamp(x, 2.0, 1.0), FluidValueError),
        (lambda: L.diag(x), FluidValueError),
        (lambda: L.reshape(x, [24], actual_shape=[24]), FluidTypeError),
        (lambda: L.randint(3, 3), FluidValueError),
        (lambda: L.Normal("a", 1.0), FluidTypeError),
        (lambda: L.Normal(0.0, 1.0).kl_divergence(L.Uniform(0.0, 1.0)), FluidTypeError),
    ):
        with pytest.raises(kind):
            call()


def test_reshape_to_sizes_that_are_fed(rng):
    a = rng.standard_normal((2, 6)).astype("float32")
    x, sizes = fluid.data("x", [2, 6]), fluid.data("sizes", [2], "int32")
    x.stop_gradient = False
    out = L.reshape(x, [4, 3], actual_shape=sizes)
    (g,) = fluid.gradients(L.reduce_sum(L.square(out)), x)
    for shape in ([3, 4], [12, 1]):
        got, slope = run(out, g, x=a, sizes=np.array(shape, "int32"))
        np.testing.assert_array_equal(got, a.reshape(shape))
        np.testing.assert_allclose(slope, 2 * a, rtol=1e-6)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        pytest.param(lambda a, b: L.Normal(a, b), torch.distributions.Normal, id="Normal"),
        pytest.param(lambda a, b: L.Uniform(a, b), torch.distributions.Uniform, id="Uniform"),
    ],
)
def test_densities_against_pytorch(mine, theirs):
    a, b, c = np.array([0.1, -1.0, 0.5]), np.array([1.0, 2.0, 3.5]), np.array([0.4, 1.5, 2.0])
    x, y, z = (fluid.data(n, [3], "float64") for n in "xyz")
    d, right = mine(x, y), theirs(torch.tensor(a), torch.tensor(b))
    wanted = [d.entropy(), d.log_prob(z), d.probs(z)]
    got = run(*wanted, x=a, y=b, z=c)
    for found, value in zip(got, [right.entropy(), right.log_prob(torch.tensor(c)), right.log_prob(torch.tensor(c)).exp()], strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-9)


def test_divergences_against_pytorch(rng):
    kl = torch.distributions.kl_divergence
    a, b = rng.standard_normal((2, 2, 4))
    x, y = fluid.data("x", [2, 4], "float64"), fluid.data("y", [2, 4], "float64")
    s, t = np.exp(a[0]), np.exp(b[0])
    first, other = L.MultivariateNormalDiag(a[1], np.diag(s)), L.MultivariateNormalDiag(b[1], np.diag(t))
    got = run(
        L.Categorical(x).kl_divergence(L.Categorical(y)), L.Categorical(x).entropy(), first.kl_divergence(other), first.entropy(),
        first.log_prob(L.assign(b[0])), x=a, y=b,
    )  # fmt: skip
    c, d = (torch.distributions.Categorical(logits=torch.tensor(v)) for v in (a, b))
    m, n = (torch.distributions.MultivariateNormal(torch.tensor(u), torch.diag(torch.tensor(v))) for u, v in ((a[1], s), (b[1], t)))
    wanted = [kl(c, d), c.entropy(), kl(m, n), m.entropy(), m.log_prob(torch.tensor(b[0]))]
    for found, value in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.ravel(found), np.ravel(value), rtol=1e-6)


def test_samples_have_the_right_moments():
    p = np.array([0.1, 0.2, 0.3, 0.4], "float32")
    fluid.default_main_program().random_seed = 3
    n, u, c, m = run(
        paddle.distribution.Normal(1.0, 2.0).sample([20000]),
        L.Uniform([-1.0, 0.0], [3.0, 1.0]).sample([20000]),
        L.Categorical(np.log(p)).sample([20000]),
        L.MultivariateNormalDiag([1.0, -1.0], np.diag([4.0, 0.25]).astype("float32")).sample([20000]),
    )
    assert n.shape == (20000,)
    np.testing.assert_allclose([n.mean(), n.std()], [1, 2], atol=0.06)
    np.testing.assert_allclose(u.mean(0), [1, 0.5], atol=0.05)
    np.testing.assert_allclose(np.bincount(c.ravel(), minlength=4) / 20000, p, atol=0.015)
    np.testing.assert_allclose([*m.mean(0), *m.std(0)], [1, -1, 2, 0.5], atol=0.06)


def test_a_reader_feeds_runs_without_a_feed():
    x = fluid.data("x", [None, 2])
    reader = L.create_py_reader_by_data(4, [x])
    out = L.scale(L.read_file(reader), 2.0)
    batches = [np.full((k + 1, 2), k, "float32") for k in range(3)]
    reader.decorate_tensor_provider(lambda: ((b,) for b in batches))
    executor = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        reader.start()
        found = [executor.run(feed={}, fetch_list=[out])[0] for _ in batches]
        with pytest.raises(fluid.core.EOFException):
            executor.run(feed={}, fetch_list=[out])
        reader.reset()
        assert [f.tolist() for f in found] == [(2 * b).tolist() for b in batches]


def test_a_gradient_penalty_trains_as_in_pytorch(rng):
    a = rng.standard_normal((4, 2, 6, 6)).astype("float32")
    w, u = rng.standard_normal((3, 2, 3, 3)).astype("float32"), rng.standard_normal((3 * 16, 1)).astype("float32")
    x = fluid.data("x", [4, 2, 6, 6])
    x.stop_gradient = False
    attr = fluid.initializer.NumpyArrayInitializer
    h = L.leaky_relu(L.conv2d(x, 3, 3, param_attr=fluid.ParamAttr("w", attr(w)), bias_attr=False), 0.2)
    score = L.fc(L.tanh(h), 1, param_attr=fluid.ParamAttr("u", attr(u)), bias_attr=False)
    (g,) = fluid.gradients(score, x)
    length = L.sqrt(L.reduce_sum(L.square(L.reshape(g, [4, -1])), 1))
    loss = L.mean(score) + L.mean(L.square(length - 1.0)) * 10.0
    fluid.optimizer.SGD(0.01).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for _ in range(3):
        executor.run(feed={"x": a}, fetch_list=[loss])
    p, q = (torch.tensor(v, requires_grad=True) for v in (w, u))
    for _ in range(3):
        b = torch.tensor(a, requires_grad=True)
        s = torch.tanh(torch.nn.functional.leaky_relu(torch.nn.functional.conv2d(b, p), 0.2)).reshape(4, -1) @ q
        (d,) = torch.autograd.grad(s.sum(), b, create_graph=True)
        total = s.mean() + 10 * ((d.reshape(4, -1).norm(dim=1) - 1) ** 2).mean()
        moves = torch.autograd.grad(total, (p, q))
        with torch.no_grad():
            p -= 0.01 * moves[0]
            q -= 0.01 * moves[1]
    for name, right in (("w", p), ("u", q)):
        found = np.array(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_allclose(found, right.detach().numpy(), rtol=2e-4, atol=2e-5)


def test_names_with_a_trailing_underscore(rng):
    a, F = rng.standard_normal((3, 4)).astype("float32"), paddle.nn.functional
    x, t = fluid.data("x", [3, 4]), torch.tensor(a)
    wanted = [torch.relu(t), torch.nn.functional.elu(t, 0.5), torch.softmax(t, 0)]
    for found, right in zip(run(F.relu_(x), F.elu_(x, 0.5), F.softmax_(x, 0), x=a), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def test_third_derivatives():
    x = fluid.data("x", [5], "float64")
    x.stop_gradient = False
    y = L.sigmoid(x) * x
    for _ in range(3):
        (y,) = fluid.gradients(y, x)
    a = np.linspace(-2, 2, 5)
    t = torch.tensor(a, requires_grad=True)
    z = torch.sigmoid(t) * t
    for _ in range(3):
        (z,) = torch.autograd.grad(z.sum(), t, create_graph=True)
    np.testing.assert_allclose(run(y, x=a)[0], z.detach(), rtol=1e-9)


def test_an_op_without_a_second_gradient_says_so():
    x = fluid.data("x", [4])
    x.stop_gradient = False
    (g,) = fluid.gradients(L.reduce_prod(L.square(x)), x)
    with pytest.raises(Exception, match=r"reduce_prod.*no gradient of its own"):
        fluid.gradients(L.square(g), x)
