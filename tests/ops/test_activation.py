"""Pointwise ops against closed forms, SciPy and torch; edges, NaN, infinity, gradients at kinks, work in place."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import discover
from pe_cli.ops.math.pointwise import POINTWISE
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

discover()
X = np.concatenate([np.linspace(-9, 9, 181), np.random.default_rng(5).standard_normal(60) * 3])
POSITIVE = np.abs(X) + 0.01
INF, NAN = np.inf, np.nan


def log1pexp(x):
    return np.logaddexp(0, x)


def stanh(x, a=0.67, b=1.7159):
    return b * np.tanh(a * x)


FORMULAS = {
    "relu": (X, lambda x: np.maximum(x, 0)),
    "relu6": (X, lambda x: np.clip(x, 0, 6)),
    "brelu": (X * 5, lambda x: np.clip(x, 0, 24)),
    "leaky_relu": (X, lambda x: np.where(x > 0, x, 0.02 * x)),
    "thresholded_relu": (X, lambda x: np.where(x > 1, x, 0)),
    "soft_relu": (X * 6, lambda x: log1pexp(np.clip(x, -40, 40))),
    "elu": (X, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "gelu": (X, lambda x: x * scipy.special.ndtr(x)),
    "sigmoid": (X, scipy.special.expit),
    "logsigmoid": (X, scipy.special.log_expit),
    "tanh": (X, np.tanh),
    "stanh": (X, stanh),
    "tanh_shrink": (X, lambda x: x - np.tanh(x)),
    "softplus": (X, log1pexp),
    "softsign": (X, lambda x: x / (1 + np.abs(x))),
    "softshrink": (X, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "hard_shrink": (X, lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "swish": (X, lambda x: x * scipy.special.expit(x)),
    "hard_sigmoid": (X, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "hard_swish": (X, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "exp": (X, np.exp),
    "log": (POSITIVE, np.log),
    "sqrt": (POSITIVE, np.sqrt),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "square": (X, np.square),
    "abs": (X, np.abs),
    "sign": (X, np.sign),
    "reciprocal": (POSITIVE, lambda x: 1 / x),
    "floor": (X, np.floor),
    "ceil": (X, np.ceil),
    "round": (X, np.round),
    "sin": (X, np.sin),
    "cos": (X, np.cos),
    "mish": (X, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "tan": (X, np.tan),
    "sinh": (X, np.sinh),
    "cosh": (X, np.cosh),
    "erf": (X, scipy.special.erf),
    "log1p": (POSITIVE, np.log1p),
    "log2": (POSITIVE, np.log2),
    "log10": (POSITIVE, np.log10),
    "acos": (X / 20, np.arccos),
    "asin": (X / 20, np.arcsin),
    "atan": (X, np.arctan),
    "pow": (POSITIVE, lambda x: x),
    "clip": (X, lambda x: np.clip(x, -1, 1)),
    "scale": (X, lambda x: x),
}


def test_every_pointwise_op_has_a_formula_here():
    assert set(FORMULAS) == set(POINTWISE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMULAS)
def test_values_at_the_defaults(name, dtype):
    x, formula = FORMULAS[name]
    x = x.astype(dtype)
    want = formula(x.astype("float64"))
    # x - tanh(x) cancels: its error is one of tanh(x), not of the result.
    loose = {"tanh_shrink": 2e-7, "gelu": 2e-6}.get(name, 1e-7)
    exact = {"float32": {"rtol": 3e-6, "atol": loose}, "float64": {"rtol": 1e-13, "atol": 1e-14}}[dtype]
    got = run_op(name, {"X": x})
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, **exact)


@pytest.mark.parametrize(
    ("name", "attrs", "formula"),
    [
        pytest.param(
            "gelu",
            {"approximate": True},
            lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            id="gelu by tanh",
        ),
        pytest.param(
            "leaky_relu", {"alpha": -0.5}, lambda x: np.where(x > 0, x, -0.5 * x), id="a falling slope below 0"
        ),
        pytest.param("leaky_relu", {"alpha": 2.0}, lambda x: np.where(x > 0, x, 2 * x), id="a steep slope below 0"),
        pytest.param(
            "elu", {"alpha": 0.3}, lambda x: np.where(x > 0, x, 0.3 * np.expm1(np.minimum(x, 0))), id="elu to -0.3"
        ),
        pytest.param(
            "mish",
            {"threshold": 1.0},
            lambda x: x * np.tanh(np.where(x > 1, x, np.where(x < -1, np.exp(x), np.logaddexp(0, x)))),
            id="mish with a softplus that is shortened early",
        ),
        pytest.param("swish", {"beta": 2.0}, lambda x: x * scipy.special.expit(2 * x), id="a sharper swish"),
        pytest.param(
            "softshrink", {"lambda": 2.0}, lambda x: np.sign(x) * np.maximum(np.abs(x) - 2, 0), id="softshrink by 2"
        ),
        pytest.param(
            "soft_relu", {"threshold": 1.0}, lambda x: log1pexp(np.clip(x, -1, 1)), id="soft_relu cut off at 1"
        ),
        pytest.param("pow", {"factor": 2.0}, np.square, id="the square has its own kernel"),
        pytest.param("pow", {"factor": 3.0}, lambda x: x**3, id="a cube keeps the sign"),
        pytest.param("pow", {"factor": 0.0}, np.ones_like, id="to the power of nothing"),
        pytest.param("clip", {"min": 0.5, "max": 0.5}, lambda x: np.full_like(x, 0.5), id="an interval of one point"),
        pytest.param("scale", {"scale": 2.0, "bias": 1.0}, lambda x: 2 * x + 1, id="scale, then bias"),
        pytest.param(
            "scale",
            {"scale": 2.0, "bias": 1.0, "bias_after_scale": False},
            lambda x: 2 * (x + 1),
            id="bias, then scale",
        ),
        pytest.param(
            "hard_swish",
            {"threshold": 2.0, "scale": 4.0, "offset": 1.0},
            lambda x: x * np.clip(x + 1, 0, 2) / 4,
            id="hard_swish of three numbers",
        ),
    ],
)
def test_values_with_attributes(name, attrs, formula):
    np.testing.assert_allclose(run_op(name, {"X": X}, attrs), formula(X), rtol=1e-12, atol=1e-14)


TORCH = {
    "relu": lambda t, x: t.relu(x),
    "relu6": lambda t, x: t.nn.functional.relu6(x),
    "leaky_relu": lambda t, x: t.nn.functional.leaky_relu(x, 0.02),
    "elu": lambda t, x: t.nn.functional.elu(x),
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "sigmoid": lambda t, x: t.sigmoid(x),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x),
    "tanh": lambda t, x: t.tanh(x),
    "tanh_shrink": lambda t, x: t.nn.functional.tanhshrink(x),
    "softplus": lambda t, x: t.nn.functional.softplus(x, threshold=100),
    "softsign": lambda t, x: t.nn.functional.softsign(x),
    "softshrink": lambda t, x: t.nn.functional.softshrink(x),
    "hard_shrink": lambda t, x: t.nn.functional.hardshrink(x),
    "swish": lambda t, x: t.nn.functional.silu(x),
    "hard_swish": lambda t, x: t.nn.functional.hardswish(x),
    "exp": lambda t, x: t.exp(x),
    "abs": lambda t, x: t.abs(x),
    "square": lambda t, x: t.square(x),
    "sin": lambda t, x: t.sin(x),
    "cos": lambda t, x: t.cos(x),
}


@pytest.mark.parametrize("name", TORCH)
def test_gradients_agree_with_torch(name, rng):
    x, up = rng.standard_normal((2, 5, 37)) * 3
    leaf = torch.tensor(x, requires_grad=True)
    TORCH[name](torch, leaf).backward(torch.tensor(up))
    np.testing.assert_allclose(
        run_gradient(name, {"X": x}, upstream=up)["X"], leaf.grad.numpy(), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - {"logsigmoid"}))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_stays_nan_in_vectors_and_in_remainders(name, dtype):
    x = np.full(69, 0.75, dtype)
    x[[0, 17, 40, 68]] = NAN
    got = run_op(name, {"X": x})
    assert np.isnan(got[[0, 17, 40, 68]]).all()
    assert np.isfinite(np.delete(got, [0, 17, 40, 68])).all()


def test_nan_stays_nan_in_logsigmoid():
    assert np.isnan(run_op("logsigmoid", {"X": np.array([NAN, 1.0])})).tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        pytest.param("relu", [-INF, INF, -0.0], [0, INF, 0], id="relu of infinities"),
        pytest.param("sigmoid", [-INF, INF, 1e4, -1e4], [0, 1, 1, 0], id="sigmoid saturates"),
        pytest.param("tanh", [-INF, INF, 1e4], [-1, 1, 1], id="tanh saturates"),
        pytest.param("softplus", [-INF, INF, 800.0, -800.0], [0, INF, 800, 0], id="softplus does not overflow"),
        pytest.param("logsigmoid", [-INF, INF, -800.0], [-INF, 0, -800], id="logsigmoid does not overflow"),
        pytest.param("elu", [-INF, INF], [-1, INF], id="elu of infinities"),
        pytest.param("exp", [-INF, INF, 1000.0], [0, INF, INF], id="exp of infinities"),
        pytest.param("log", [0.0, INF, -1.0], [-INF, INF, NAN], id="log at the border"),
        pytest.param("sqrt", [0.0, INF, -1.0], [0, INF, NAN], id="sqrt at the border"),
        pytest.param("rsqrt", [0.0, INF, -1.0], [INF, 0, NAN], id="rsqrt at the border"),
        pytest.param("reciprocal", [0.0, INF, -INF], [INF, 0, 0], id="reciprocal at the border"),
        pytest.param(
            "round", [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994], [0, 2, 2, -0.0, -2, 0], id="halves go to the even number"
        ),
        pytest.param("sign", [0.0, -3.0, INF], [0, -1, 1], id="sign of 0 is 0"),
        pytest.param("clip", [-INF, INF], [-1, 1], id="clip of infinities"),
        pytest.param("hard_sigmoid", [-INF, INF], [0, 1], id="hard_sigmoid of infinities"),
    ],
)
def test_values_at_borders(name, x, want):
    np.testing.assert_array_equal(run_op(name, {"X": np.array(x)}), np.array(want, "float64"))


@pytest.mark.parametrize(
    ("name", "attrs", "x", "want"),
    [
        pytest.param("relu", {}, [-1, 0, 1], [0, 0, 1], id="relu at 0"),
        pytest.param("relu6", {}, [0, 3, 6, 7], [0, 1, 0, 0], id="relu6 at both ends"),
        pytest.param("brelu", {}, [0, 3, 24], [0, 1, 0], id="brelu at both ends"),
        pytest.param("leaky_relu", {}, [-1, 0, 1], [0.02, 0.02, 1], id="leaky_relu at 0"),
        pytest.param("abs", {}, [-2, 0, 2], [-1, 0, 1], id="abs at 0"),
        pytest.param("clip", {}, [-1, 0, 1], [0, 1, 0], id="clip at both ends"),
        pytest.param("hard_sigmoid", {}, [-2.5, 0, 2.5], [0, 0.2, 0], id="hard_sigmoid at both ends"),
        pytest.param("pow", {"factor": 0.0}, [0.0, 2.0], [0, 0], id="a constant has no slope at 0 either"),
        pytest.param(
            "soft_relu",
            {"threshold": 1.0},
            [-2, 0, 0.9, 2],
            [0, 0.5, scipy.special.expit(0.9), 0],
            id="soft_relu of a small threshold",
        ),
        pytest.param("floor", {}, [-1.5, 0.2], [0, 0], id="steps are flat"),
        pytest.param("scale", {"scale": -3.0, "bias": 7.0}, [1.0, 2.0], [-3, -3], id="a bias has no slope"),
    ],
)
def test_gradients_at_kinks(name, attrs, x, want):
    np.testing.assert_allclose(run_gradient(name, {"X": np.array(x, "float64")}, attrs)["X"], want, rtol=1e-15)


def test_an_infinite_upstream_gradient_does_not_pass_a_closed_relu():
    got = run_gradient("relu", {"X": np.array([-1.0, 2.0])}, upstream=np.array([INF, INF]))["X"]
    np.testing.assert_array_equal(got, [0, INF])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("name", "attrs", "want"),
    [
        pytest.param("scale", {"scale": 3.0, "bias": -1.0}, [-10, -1, 11], id="scale"),
        pytest.param("abs", {}, [3, 0, 4], id="abs"),
        pytest.param("sign", {}, [-1, 0, 1], id="sign"),
        pytest.param("square", {}, [9, 0, 16], id="square"),
        pytest.param("clip", {"min": -2.0, "max": 3.0}, [-2, 0, 3], id="clip"),
    ],
)
def test_integers(name, attrs, want, dtype):
    got = run_op(name, {"X": np.array([-3, 0, 4], dtype)}, attrs)
    assert got.dtype == dtype
    assert got.tolist() == want


@pytest.mark.parametrize(("dtype", "step", "want"), [("int64", 1.0, 2**60 + 2), ("float32", 0.5, 1.5)])
def test_increment(dtype, step, want):
    start = 2**60 + 1 if dtype == "int64" else 1
    assert run_op("increment", {"X": np.array([start], dtype)}, {"step": step}).tolist() == [want]


def test_increment_of_itself_counts_steps():
    program = Program("counter")
    block = program.global_block()
    block.create_var("n", TensorType((1,), "int64"), persistable=True)
    block.append_op("increment", {"X": "n"}, {"Out": "n"}, {"step": 2.0})
    scope = Scope([Place("cpu", 0)])
    executor = Executor(program, scope)
    scope.set("n", np.array([5], "int64"))
    for step in range(3):
        values = executor.run({}, ["n"], step).values
    assert values[0]["n"].tolist() == [11]


def test_pointwise_ops_refuse_integers_with_a_remedy():
    with pytest.raises(PeError, match=r"relu takes float32 or float64, got int64\[3\]") as error:
        run_op("relu", {"X": np.arange(3)})
    assert "cast" in error.value.hint


def test_clip_refuses_an_empty_interval():
    with pytest.raises(PeError, match=r"clip needs min <= max, got min 2.0 and max 1.0"):
        run_op("clip", {"X": X}, {"min": 2.0, "max": 1.0})


def chain(name, x, *, share):
    """Return the gradient of x and the loss of mean(op(2 x)), whose op can work in place."""
    program = Program("chain")
    block = program.global_block()
    block.create_parameter("x", TensorType(x.shape, str(x.dtype)))
    block.append_op("scale", {"X": "x"}, {"Out": "a"}, {"scale": 2.0})
    block.append_op(name, {"X": "a"}, {"Out": "b"})
    block.append_op("mean", {"X": "b"}, {"Out": "loss"})
    append_backward(block.var("loss"))
    scope = Scope([Place("cpu", 0)])
    executor = Executor(program, scope, build=BuildStrategy(memory_optimize=share))
    scope.set("x", x)
    values = executor.run({}, ["x@GRAD", "loss"], 0).values
    return values[0]


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_work_in_place_changes_nothing(name, rng):
    x = rng.uniform(0.1, 0.45 if name in ("acos", "asin") else 2.0, 1037).astype("float32")  # doubled, it is in every domain
    shared, apart = chain(name, x, share=True), chain(name, x, share=False)
    for key, value in apart.items():
        np.testing.assert_array_equal(shared[key], value)
    want = FORMULAS[name][1](2 * x.astype("float64")).mean()
    np.testing.assert_allclose(shared["loss"], want, rtol=1e-5)
