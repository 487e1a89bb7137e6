"""check_nan_inf: the first op whose result is not finite is named, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.kernels.cpu.finite_check import CHUNK
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role


def program(dtype: str = "float32", width: int = 3) -> Program:
    """loss = mean(log(x) * w), SGD; log stands in line 7."""
    made = Program("logs")
    block = made.global_block()
    block.create_var("x", TensorType((-1, width), dtype), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,), dtype), persistable=True, stop_gradient=True)
    block.create_parameter("w", TensorType((width, 1), dtype))
    with made.place(Span("model.yaml", 7, 3)):
        block.append_op("log", {"X": "x"}, {"Out": "logs"})
    with made.place(Span("model.yaml", 8, 3)):
        block.append_op("mul", {"X": "logs", "Y": "w"}, {"Out": "out"})
    block.append_op("mean", {"X": "out"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        with made.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            ins = {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}
            block.append_op("sgd", ins, {"ParamOut": parameter})
    return made


def make(devices: int = 1, dtype: str = "float32", width: int = 3, check: bool = True) -> Executor:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(program(dtype, width), scope, check_nan_inf=check)
    scope.set("w", np.ones((width, 1), dtype))
    scope.set("lr", np.ones(1, dtype))
    return executor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [pytest.param(-1.0, "nan", id="the log of -1"), pytest.param(0.0, "-inf", id="the log of 0")],
)
def test_the_first_op_is_named_with_its_layer_and_element(dtype, value, kind):
    executor = make(dtype=dtype)
    x = np.ones((4, 3), dtype)
    executor.run({"x": x}, ["loss"], 0)
    x[2, 1] = value
    with pytest.raises(PeError, match=rf"log: its result 'logs' is {kind} at \[2, 1\], in step 6") as caught:
        executor.run({"x": x}, ["loss"], 5)
    assert caught.value.code == ExitCode.DIVERGED
    assert caught.value.at is not None
    assert caught.value.at.line == 7


def test_a_parameter_that_an_update_makes_infinite_is_named():
    executor = make()
    executor.scope.set("lr", np.full(1, 3e38, np.float32))
    with pytest.raises(PeError, match="sgd: its result 'w' is -inf"):
        executor.run({"x": np.full((4, 3), 1e10, np.float32)})


@pytest.mark.parametrize("threads_and_devices", [2, 3])
def test_the_device_is_named_where_there_are_several(threads_and_devices):
    executor = make(threads_and_devices)
    x = np.ones((6, 3), np.float32)
    x[5, 2] = -1
    row = [1, 2] if threads_and_devices == 3 else [2, 2]
    where = rf"at \[{row[0]}, {row[1]}\] on cpu:{threads_and_devices - 1}"
    with pytest.raises(PeError, match=where):
        executor.run({"x": x}, ["loss"])
    x[5, 2] = 1
    assert np.isfinite(executor.run({"x": x}, ["loss"]).values[0]["loss"]).all()


@pytest.mark.parametrize("element", [0, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_every_element_is_looked_at(element):
    executor = make(width=2 * CHUNK + 6)
    x = np.ones((1, 2 * CHUNK + 6), np.float32)
    x[0, element] = np.inf
    with pytest.raises(PeError, match=rf"'logs' is inf at \[0, {element}\]"):
        executor.run({"x": x})


def test_looking_changes_no_bit():
    x = np.random.default_rng(3).uniform(1, 2, (7, 3)).astype(np.float32)
    found = []
    for check in (False, True):
        executor = make(2, check=check)
        for step in range(3):
            executor.run({"x": x}, [], step)
        found.append(executor.scope.get("w"))
    np.testing.assert_array_equal(*found)


def test_without_it_nothing_is_said():
    executor = make(check=False)
    assert np.isnan(executor.run({"x": -np.ones((4, 3), np.float32)}, ["loss"]).values[0]["loss"])


def test_of_layers_that_are_computed_together_the_way_to_tell_them_apart_is_said():
    made = Program("joined")
    block = made.global_block()
    block.create_var("x", TensorType((-1, 3), "float32"), is_data=True, stop_gradient=True)
    block.append_op("log", {"X": "x"}, {"Out": "logs"})
    block.append_op("scale", {"X": "logs"}, {"Out": "twice"}, {"scale": 2.0})
    block.append_op("mul", {"X": "twice", "Y": block.create_parameter("w", TensorType((3, 1), "float32"))}, {"Out": "out"})
    hints = {}
    for joined in (True, False):
        scope = Scope([Place("cpu", 0)])
        executor = Executor(made, scope, check_nan_inf=True, build=BuildStrategy(enable_auto_fusion=joined))
        scope.set("w", np.ones((3, 1), "float32"))
        with pytest.raises(PeError, match="'twice'" if joined else "'logs'") as caught:
            executor.run({"x": np.zeros((4, 3), "float32")}, ["out"], 0)
        hints[joined] = caught.value.hint
    assert "enable_auto_fusion=false tells which" in hints[True]
    assert "enable_auto_fusion" not in hints[False]
