"""Random programs: memory that is shared, work that is taken over and threads that race change no bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role
from tests.rotation import of_today

WIDTH = 6
UNARY = ("relu", "tanh", "square", "sigmoid", "abs")
BINARY = ("elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_max")


def random_program(seed: int) -> Program:
    """Return a program of some twenty ops over a batch, with several readers of most variables, a loss and updates."""
    rng = np.random.default_rng(seed)
    program = Program(f"random{seed}")
    block = program.global_block()
    block.create_var("x", TensorType((-1, WIDTH)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    names = ["x"]
    for i in range(20):
        kind = rng.choice(["unary", "binary", "sum", "mul", "reshape", "concat"])
        out = f"v{i}"
        a, b = (str(n) for n in rng.choice(names, 2))
        if kind == "unary":
            block.append_op(str(rng.choice(UNARY)), {"X": a}, {"Out": out})
        elif kind == "binary":
            block.append_op(str(rng.choice(BINARY)), {"X": a, "Y": b}, {"Out": out}, {"axis": -1})
        elif kind == "sum":
            block.append_op("sum", {"X": [a, b, a]}, {"Out": out})
        elif kind == "mul":
            block.create_parameter(f"w{i}", TensorType((WIDTH, WIDTH)))
            block.append_op("mul", {"X": a, "Y": f"w{i}"}, {"Out": out})
        elif kind == "reshape":
            block.append_op("reshape", {"X": a}, {"Out": f"{out}r"}, {"shape": [0, 2, WIDTH // 2]})
            block.append_op("reshape", {"X": f"{out}r"}, {"Out": out}, {"shape": [0, WIDTH]})
        else:
            block.append_op("concat", {"X": [a, b]}, {"Out": f"{out}c"}, {"axis": 1})
            block.append_op("slice", {"Input": f"{out}c"}, {"Out": out}, {"axes": [1], "starts": [3], "ends": [3 + WIDTH]})
        names.append(out)
    block.create_parameter("w", TensorType((WIDTH, WIDTH)))
    block.append_op("sum", {"X": names[-6:]}, {"Out": "all"})
    block.append_op("mul", {"X": "all", "Y": "w"}, {"Out": "last"})
    block.append_op("tanh", {"X": "last"}, {"Out": "squashed"})
    block.append_op("mean", {"X": "squashed"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            ins = {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}
            block.append_op("sgd", ins, {"ParamOut": parameter})
    return program


def train(seed: int, devices: int, threads: int, fetches: list[str], **build: object) -> list[np.ndarray]:
    program = random_program(seed)
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(
        program,
        scope,
        build=BuildStrategy(**build),  # type: ignore[arg-type]
        execution=ExecutionStrategy(num_threads=threads),
    )
    rng = np.random.default_rng(1)
    for name in sorted(scope):
        scope.set(name, (rng.standard_normal(scope.type(name).shape) * 0.3).astype("float32"))
    scope.set("lr", np.array([0.01], "float32"))
    seen = []
    for step in range(3):
        x = np.random.default_rng(step).standard_normal((7, WIDTH)).astype("float32")
        values = executor.run({"x": x}, fetches, step).values
        seen += [value for device in values for value in device.values()]
    return seen + [scope.get(name) for name in sorted(scope)]


@pytest.mark.parametrize(("seed", "devices"), of_today(list(itertools.product(range(16), [1, 2, 3])), 2))
def test_sharing_memory_and_racing_threads_change_no_bit(seed, devices):
    fetches = ["loss", "v3", "v11", "all"]
    expected = train(seed, devices, 1, fetches, memory_optimize=False, enable_inplace=False, enable_addto=False)
    for threads in (1, 2, 5):
        for build in ({}, {"enable_sequential_execution": True}, {"enable_backward_optimizer_op_deps": False}):
            found = train(seed, devices, threads, fetches, **build)
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, found, strict=True)), (threads, build)
    for build in ({"enable_addto": False}, {"enable_inplace": False}):
        found = train(seed, devices, 3, fetches, **build)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, found, strict=True)), build
    reduced = train(seed, devices, 3, fetches, reduce_strategy="Reduce")
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(expected, reduced, strict=True))
