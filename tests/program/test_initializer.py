"""Initializers: the op that each appends, fans as fluid counts them, and values."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.startup import run_startup
from pe_cli.program.initializer import (
    INITIALIZERS,
    MSRA,
    Bilinear,
    Constant,
    Normal,
    NumpyArray,
    TruncatedNormal,
    Uniform,
    Xavier,
    compute_fans,
)
from pe_cli.program.ir import Program
from pe_cli.program.param_attr import ParamAttr


def appended(initializer, shape, dtype="float32"):
    main, startup = Program(), Program()
    variable = main.global_block().create_parameter("w", TensorType(shape, dtype))
    return initializer(variable, startup.global_block()), startup


def first_value(initializer, shape, dtype="float32"):
    _, startup = appended(initializer, shape, dtype)
    scope = Scope([Place("cpu", 0)])
    run_startup(startup, scope, 3)
    return scope.get("w")


@pytest.mark.parametrize(
    ("shape", "fans"),
    [
        pytest.param((), (1, 1), id="a scalar"),
        pytest.param((7,), (7, 7), id="a vector"),
        pytest.param((3, 5), (3, 5), id="a matrix"),
        pytest.param((8, 3, 5, 2), (30, 80), id="a convolution's field counts"),
    ],
)
def test_fans(shape, fans):
    assert compute_fans(shape) == fans


@pytest.mark.parametrize(
    ("initializer", "op", "attrs"),
    [
        pytest.param(Constant(2.5), "fill_constant", {"value": 2.5}, id="Constant"),
        pytest.param(Uniform(-2.0, 3.0, 7), "uniform_random", {"min": -2.0, "max": 3.0, "seed": 7}, id="Uniform"),
        pytest.param(Normal(1.0, 2.0), "gaussian_random", {"mean": 1.0, "std": 2.0, "seed": 0}, id="Normal"),
        pytest.param(
            TruncatedNormal(1.0, 2.0), "truncated_gaussian_random", {"mean": 1.0, "std": 2.0}, id="TruncatedNormal"
        ),
        pytest.param(Xavier(), "uniform_random", {"min": -math.sqrt(0.6), "max": math.sqrt(0.6)}, id="Xavier"),
        pytest.param(Xavier(uniform=False), "gaussian_random", {"std": math.sqrt(0.2)}, id="Xavier, normal"),
        pytest.param(Xavier(fan_in=2, fan_out=22), "uniform_random", {"max": 0.5}, id="Xavier, given fans"),
        pytest.param(MSRA(), "uniform_random", {"min": -1.0, "max": 1.0}, id="MSRA"),
        pytest.param(MSRA(uniform=False), "gaussian_random", {"std": math.sqrt(1 / 3)}, id="MSRA, normal"),
        pytest.param(MSRA(fan_in=24), "uniform_random", {"max": 0.5}, id="MSRA, given fan"),
    ],
)
def test_a_matrix_of_6_by_4_gets(initializer, op, attrs):
    made, startup = appended(initializer, (6, 4))
    assert made.type == op
    assert made.attrs["shape"] == [6, 4]
    for name, value in attrs.items():
        assert made.attrs[name] == pytest.approx(value, rel=1e-15)
    variable = startup.global_block().var("w")
    assert variable.persistable
    assert variable.shape == (6, 4)


def test_given_values_arrive():
    values = np.array([[1.5, -2.0], [0.1, 7.0]])
    np.testing.assert_array_equal(first_value(NumpyArray(values), (2, 2), "float64"), values)
    np.testing.assert_array_equal(first_value(NumpyArray(values.tolist()), (2, 2)), values.astype("float32"))
    np.testing.assert_array_equal(first_value(Constant(-1.0), (1,), "int64"), [-1])


def test_bilinear_weights_enlarge_by_two():
    row = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(first_value(Bilinear(), (2, 1, 4, 4))[1, 0], np.outer(row, row))


@pytest.mark.parametrize("name", INITIALIZERS)
def test_every_type_has_named_arguments_only(name):
    kinds = {p.kind for p in inspect.signature(INITIALIZERS[name]).parameters.values()}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: appended(NumpyArray([1.0]), (2,)), r"NumpyArray has shape \[1\], 'w' is float32\[2\]"),
        (lambda: appended(NumpyArray(np.zeros(2**20 + 1)), (2**20 + 1,)), "at most 1048576 elements"),
        (lambda: appended(Bilinear(), (2, 2)), "Bilinear needs a weight"),
        (lambda: appended(Normal(), (2,), "int64"), r"Normal needs a float variable, 'w' is int64\[2\]"),
        (lambda: appended(Xavier(), (-1, 2)), "cannot initialize 'w'|needs connections"),
        (lambda: Uniform(2.0, 1.0), "low <= high, got low 2.0 and high 1.0"),
        (lambda: Normal(0.0, -1.0), "Normal needs scale >= 0, got -1.0"),
        (lambda: ParamAttr(learning_rate=-1.0), "must be >= 0, got -1.0"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(PeError, match=message):
        make()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shared", [(), ("w0", "w1")])
def test_every_device_gets_the_same_values_from_any_number_of_threads(threads, shared):
    main, startup = Program(), Program()
    for i in range(5):
        Normal(1.0, 2.0)(main.global_block().create_parameter(f"w{i}", TensorType((40, 30))), startup.global_block())
    alone, scope = Scope([Place("cpu", 0)]), Scope([Place("cpu", d) for d in range(3)])
    scope.share(shared)
    run_startup(startup, alone, 3)
    run_startup(startup, scope, 3, threads=threads)
    for name in alone:
        assert alone.get(name).std() > 1
        assert all(np.array_equal(scope.get(name, d), alone.get(name)) for d in range(3))
        assert len({scope.spot(name, d).memory for d in range(3)}) == (1 if name in shared else 3)
