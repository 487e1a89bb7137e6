"""elementwise_* and comparisons against NumPy: broadcasting by axis, edges, ties, gradients, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.kernels.cpu.non_temporal import FAR
from pe_cli.ops.math.broadcast import aligned, broadcast
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

INF, NAN = np.inf, np.nan
NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "mod": np.mod,
    "floordiv": np.floor_divide,
}
# shape of X, shape of Y, axis, shape of Y that NumPy broadcasts alike
SHAPES = [
    pytest.param((4, 5), (4, 5), -1, (4, 5), id="one shape"),
    pytest.param((6, 5), (5,), -1, (5,), id="the last axis"),
    pytest.param((2, 3, 4, 5), (3,), 1, (3, 1, 1), id="the channels of images"),
    pytest.param((2, 3, 4, 5), (3, 4), 1, (3, 4, 1), id="two axes in the middle"),
    pytest.param((2, 3, 4, 5), (2, 3), 0, (2, 3, 1, 1), id="the first two axes"),
    pytest.param((2, 3, 4, 5), (2,), 0, (2, 1, 1, 1), id="the first axis"),
    pytest.param((2, 3, 4), (3, 1), 1, (3, 1), id="a 1 at the end"),
    pytest.param((2, 3, 4), (4, 1), 2, (4,), id="a 1 at the end that sticks out"),
    pytest.param((2, 3, 4), (1,), -1, (1,), id="one number"),
    pytest.param((2, 3, 4), (), -1, (), id="a scalar"),
    pytest.param((2, 3, 4), (2, 1, 4), -1, (2, 1, 4), id="a 1 inside"),
    pytest.param((2, 3, 4, 2), (2, 1, 4, 1), -1, (2, 1, 4, 1), id="every second axis"),
    pytest.param((3, 1, 4), (2, 3, 5, 1), -1, (2, 3, 5, 1), id="both are broadcast"),
    pytest.param((5,), (4, 5), -1, (4, 5), id="X is the smaller one"),
    pytest.param((1000, 3), (3,), -1, (3,), id="many narrow rows"),
    pytest.param((999, 17), (17,), -1, (17,), id="narrow rows that do not come out even"),
    pytest.param((3, 300), (300,), -1, (300,), id="wide rows"),
    pytest.param((0, 3), (3,), -1, (3,), id="an empty batch"),
]


def operands(rng, x, y, dtype="float64"):
    low = 0.5 if dtype.startswith("float") else 1
    return [np.asarray(rng.uniform(low, 9, s) * 1).astype(dtype) for i, s in enumerate((x, y))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("x", "y", "axis", "like"), SHAPES)
@pytest.mark.parametrize("kind", ["add", "div", "max"])
def test_broadcasting(kind, x, y, axis, like, dtype, rng):
    a, b = operands(rng, x, y, dtype)
    got = run_op(f"elementwise_{kind}", {"X": a, "Y": b}, {"axis": axis})
    want = NUMPY[kind](a, b.reshape(like))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(("x", "y", "axis", "like"), [*SHAPES, pytest.param((2, 2500), (2500,), -1, (2500,), id="pieces")])
def test_results_larger_than_the_caches_have_the_same_bits(x, y, axis, like, dtype, rng, monkeypatch):
    a, b = operands(rng, x, y, dtype)
    plainly = run_op("elementwise_mul", {"X": a, "Y": b}, {"axis": axis})
    monkeypatch.setattr("pe_cli.ops.math.broadcast.FAR", 1)
    assert run_op("elementwise_mul", {"X": a, "Y": b}, {"axis": axis}).tobytes() == plainly.tobytes()


def test_results_larger_than_the_caches_may_take_the_place_of_x(rng):
    rows = FAR // 4000 + 1
    x, y = rng.standard_normal((rows, 1000)).astype("f4"), rng.standard_normal(1000).astype("f4")
    program = Program("in place")
    block = program.global_block()
    for name, array in (("x", x), ("y", y)):
        block.create_var(name, TensorType(array.shape, "float32"), persistable=True, stop_gradient=True)
    block.append_op("elementwise_add", {"X": "x", "Y": "y"}, {"Out": "x"}, {})
    executor = Executor(program, Scope([Place("cpu", 0)]))
    for name, array in (("x", x), ("y", y)):
        executor.scope.set(name, array)
    executor.run({}, [], 0)
    np.testing.assert_array_equal(executor.scope.get("x"), x + y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", NUMPY)
def test_values_of_all_signs(kind, dtype, rng):
    x, y = (rng.uniform(0.5, 4, (7, 33)) * rng.choice([-1, 1], (7, 33)) for _ in range(2))
    if kind == "pow":
        x = np.abs(x)
    x, y = x.astype(dtype), y.astype(dtype)
    exact = {"rtol": 2e-6, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-14, "atol": 1e-14}
    np.testing.assert_allclose(run_op(f"elementwise_{kind}", {"X": x, "Y": y}), NUMPY[kind](x, y), **exact)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "max", "min", "mod", "floordiv"])
def test_integers(kind, dtype):
    x, y = np.array([7, -7, 7, -7, 0], dtype), np.array([3, 3, -3, -3, 5], dtype)
    got = run_op(f"elementwise_{kind}", {"X": x, "Y": y})
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, NUMPY[kind](x, y))


@pytest.mark.parametrize(
    ("kind", "x", "y", "want"),
    [
        pytest.param(
            "max",
            [NAN, 1, NAN, INF, -0.0],
            [1, NAN, NAN, NAN, -INF],
            [NAN, NAN, NAN, NAN, 0],
            id="max hands NaN on from either side",
        ),
        pytest.param(
            "min",
            [NAN, 1, NAN, INF, -INF],
            [1, NAN, NAN, NAN, 0],
            [NAN, NAN, NAN, NAN, -INF],
            id="min hands NaN on from either side",
        ),
        pytest.param("add", [INF, INF, NAN], [-INF, 1, 1], [NAN, INF, NAN], id="infinities cancel to NaN"),
        pytest.param("mul", [INF, NAN, 0], [0, 0, 5], [NAN, NAN, 0], id="0 times infinity"),
        pytest.param("div", [1, -1, 0, NAN], [0, 0, 0, 1], [INF, -INF, NAN, NAN], id="division by 0"),
        pytest.param("pow", [0, 2, -8, NAN], [0, -INF, 1 / 3, 0], [1, 0, NAN, 1], id="powers at borders"),
        pytest.param("mod", [1, -1, INF, 5], [INF, INF, 2, 0], [1, INF, NAN, NAN], id="remainders at borders"),
    ],
)
def test_values_at_borders(kind, x, y, want):
    got = run_op(f"elementwise_{kind}", {"X": np.array(x, "float64"), "Y": np.array(y, "float64")})
    np.testing.assert_array_equal(got, np.array(want, "float64"))


@pytest.mark.parametrize(("x", "y", "axis", "like"), SHAPES)
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "max", "min", "pow"])
def test_gradients_agree_with_torch(kind, x, y, axis, like, rng):
    a, b = operands(rng, x, y)
    fn = {
        "sub": torch.sub,
        "div": torch.div,
        "max": torch.maximum,
        "min": torch.minimum,
        "pow": torch.pow,
        "add": torch.add,
        "mul": torch.mul,
    }[kind]
    ta, tb = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    out = fn(ta, tb.reshape(like))
    up = rng.standard_normal(out.shape)
    out.backward(torch.tensor(up))
    got = run_gradient(f"elementwise_{kind}", {"X": a, "Y": b}, {"axis": axis}, upstream=up)
    np.testing.assert_allclose(got["X"], ta.grad.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got["Y"], tb.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("kind", "dx", "dy"), [("max", [0, 0, 1], [1, 1, 0]), ("min", [1, 0, 0], [0, 1, 1])])
def test_the_gradient_of_a_tie_goes_to_y(kind, dx, dy):
    got = run_gradient(f"elementwise_{kind}", {"X": np.array([1.0, 2.0, 3.0]), "Y": np.array([2.0, 2.0, 2.0])})
    assert got["X"].tolist() == dx
    assert got["Y"].tolist() == dy


def test_a_power_of_zero_has_finite_gradients():
    got = run_gradient("elementwise_pow", {"X": np.array([0.0, 0.0]), "Y": np.array([2.0, 0.0])})
    assert got["X"].tolist() == [0, 0]
    assert got["Y"].tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(200_000, 3), (1_000_001, 1), (3, 70_000)], ids=["narrow", "a column", "wide"])
def test_float32_sums_over_a_large_batch_keep_their_digits(shape, rng):
    x = rng.standard_normal(shape).astype("float32") + np.float32(1)
    y = np.zeros(shape[1:], "float32")
    got = run_gradient("elementwise_add", {"X": x, "Y": y}, upstream=x)["Y"]
    np.testing.assert_allclose(got, x.sum(0, dtype="float64"), rtol=1e-6)


def test_an_operand_used_twice():
    x = np.array([1.0, -2.0, 3.0])
    program = Program("square")
    block = program.global_block()
    block.create_parameter("x", TensorType((3,), "float64"))
    block.append_op("scale", {"X": "x"}, {"Out": "a"}, {"scale": 2.0})
    block.append_op("elementwise_mul", {"X": "a", "Y": "a"}, {"Out": "b"})
    block.append_op("mean", {"X": "b"}, {"Out": "loss"})
    append_backward(block.var("loss"))
    scope = Scope([Place("cpu", 0)])
    executor = Executor(program, scope)
    scope.set("x", x)
    values = executor.run({}, ["loss", "x@GRAD"], 0).values
    np.testing.assert_allclose(values[0]["loss"], (4 * x * x).mean())
    np.testing.assert_allclose(values[0]["x@GRAD"], 8 * x / 3)


def chain(kind, x, y, axis, *, share):
    program = Program("chain")
    block = program.global_block()
    for name, a in (("x", x), ("y", y)):
        block.create_parameter(name, TensorType(a.shape, str(a.dtype)))
    block.append_op("scale", {"X": "x"}, {"Out": "a"}, {"scale": 2.0})
    block.append_op(f"elementwise_{kind}", {"X": "a", "Y": "y"}, {"Out": "b"}, {"axis": axis})
    block.append_op("square", {"X": "b"}, {"Out": "c"})
    block.append_op("mean", {"X": "c"}, {"Out": "loss"})
    append_backward(block.var("loss"))
    scope = Scope([Place("cpu", 0)])
    executor = Executor(program, scope, build=BuildStrategy(memory_optimize=share))
    scope.set("x", x)
    scope.set("y", y)
    values = executor.run({}, ["loss", "x@GRAD", "y@GRAD"], 0).values
    return values[0]


@pytest.mark.parametrize(("x", "y", "axis", "like"), SHAPES[:-1])
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "max", "pow"])
def test_work_in_place_changes_nothing(kind, x, y, axis, like, rng):
    a, b = operands(rng, x, y)
    b /= 9
    shared, apart = (chain(kind, a, b, axis, share=share) for share in (True, False))
    for key, value in apart.items():
        np.testing.assert_array_equal(shared[key], value)
    np.testing.assert_allclose(shared["loss"], (NUMPY[kind](2 * a, b.reshape(like)) ** 2).mean(), rtol=1e-12)


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "axis", "words"),
    [
        pytest.param((2, 3), (4,), -1, r"X is \[2, 3\], Y is \[4\], and 3 != 4 at axis 1", id="another size"),
        pytest.param((2, 3, 4), (3,), -1, r"X is \[2, 3, 4\], Y is \[3\], and 4 != 3 at axis 2", id="the wrong axis"),
        pytest.param((2, 3, 4), (2,), 1, r"Y is \[2\] from axis 1, and 3 != 2 at axis 1", id="another size at axis"),
        pytest.param(
            (2, 3),
            (3, 4, 5),
            1,
            r"X is \[2, 3\], Y is \[3, 4, 5\] from axis 1, and 2 != 4 at axis 1",
            id="X is smaller",
        ),
        pytest.param((2, 3), (3,), 2, r"more axes than are left", id="beyond the last axis"),
        pytest.param((2, 3), (3,), -2, r"axis must be -1 or an axis", id="a negative axis"),
    ],
)
def test_shapes_that_do_not_fit(x, y, axis, words):
    with pytest.raises(PeError, match=words):
        run_op("elementwise_add", {"X": np.zeros(x), "Y": np.zeros(y)}, {"axis": axis})


def test_dtypes_that_differ():
    with pytest.raises(
        PeError, match=r"elementwise_mul needs one dtype, X is float64\[2\] and Y is float32\[2\]"
    ) as error:
        run_op("elementwise_mul", {"X": np.zeros(2), "Y": np.zeros(2, "float32")})
    assert "cast" in error.value.hint


@pytest.mark.parametrize(
    ("x", "y", "axis", "out"),
    [
        pytest.param((-1, 3), (3,), -1, (-1, 3), id="bias of a batch"),
        pytest.param((-1, 3), (-1, 3), -1, (-1, 3), id="two batches"),
        pytest.param((-1, 3), (1, 3), -1, (-1, 3), id="one sample against a batch"),
        pytest.param((1, 3), (-1, 3), -1, (-1, 3), id="a batch against one sample"),
        pytest.param((-1, 3, 4), (-1,), 0, (-1, 3, 4), id="a number per sample"),
        pytest.param((-1, 3), (8, 3), -1, (8, 3), id="a batch that must be 8"),
    ],
)
def test_an_unknown_batch(x, y, axis, out):
    assert broadcast("elementwise_add", x, y, axis) == out


def test_alignment_drops_ones_only_where_they_stick_out():
    assert aligned((3, 1), 4, 1) == (1, 3, 1, 1)
    assert aligned((3, 1, 1), 2, 1) == (1, 3)


# --- comparisons ------------------------------------------------------------------------------------------------------

COMPARE = {
    "less_than": np.less,
    "less_equal": np.less_equal,
    "greater_than": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("name", COMPARE)
def test_comparisons(name, dtype, rng):
    x, y = (rng.integers(0, 3, (5, 37)).astype(dtype) for _ in range(2))
    got = run_op(name, {"X": x, "Y": y})
    assert got.dtype == bool
    np.testing.assert_array_equal(got, COMPARE[name](x, y))


@pytest.mark.parametrize("name", COMPARE)
def test_comparisons_with_nan_and_infinity(name):
    values = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0])
    x, y = np.repeat(values, 6), np.tile(values, 6)
    np.testing.assert_array_equal(run_op(name, {"X": x, "Y": y}), COMPARE[name](x, y))


@pytest.mark.parametrize("name", [*COMPARE, *LOGIC])
def test_comparisons_broadcast_both_ways(name, rng):
    x, y = rng.integers(0, 2, (2, 3, 4)).astype(bool), rng.integers(0, 2, 3).astype(bool)
    fn = {**COMPARE, **LOGIC}[name]
    np.testing.assert_array_equal(run_op(name, {"X": x, "Y": y}, {"axis": 1}), fn(x, y[:, None]))
    np.testing.assert_array_equal(run_op(name, {"X": y, "Y": x}, {"axis": 1}), fn(y[:, None], x))


@pytest.mark.parametrize("name", LOGIC)
def test_logic(name):
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    np.testing.assert_array_equal(run_op(name, {"X": x, "Y": y}), LOGIC[name](x, y))


def test_logical_not():
    assert run_op("logical_not", {"X": np.array([True, False])}).tolist() == [False, True]


def test_logic_refuses_numbers():
    with pytest.raises(PeError, match=r"logical_and takes bool, X is float64\[2\]"):
        run_op("logical_and", {"X": np.zeros(2), "Y": np.zeros(2)})
