"""enable_addto on whole programs: the same bits in less memory."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program
from tests.graph.passes.support import minimise

WIDTH, STEPS = 192, 6


def unrolled() -> Program:
    """Return a recurrence h = tanh(h w) written out: every step's gradient of w is a part of its own."""
    program = Program("unrolled")
    block = program.global_block()
    block.create_var("x", TensorType((-1, WIDTH)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    block.create_parameter("w", TensorType((WIDTH, WIDTH)))
    h = "x"
    for t in range(STEPS):
        block.append_op("mul", {"X": h, "Y": "w"}, {"Out": f"m{t}"})
        block.append_op("tanh", {"X": f"m{t}"}, {"Out": f"h{t}"})
        h = f"h{t}"
    block.append_op("mean", {"X": h}, {"Out": "loss"})
    minimise(program, "loss")
    return program


def trained(devices: int, **build: object) -> tuple[int, np.ndarray]:
    """Return the bytes of all arenas, and the parameter after three steps."""
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(unrolled(), scope, build=BuildStrategy(**build))  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    scope.set("w", (rng.standard_normal((WIDTH, WIDTH)) * 0.2).astype("float32"))
    scope.set("lr", np.array([0.1], "float32"))
    for step in range(3):
        executor.run({"x": rng.standard_normal((7, WIDTH)).astype("float32")}, ["loss"], step)
    (plan,) = executor.plans.values()
    return plan.nbytes, scope.get("w")


@pytest.mark.parametrize("reduce_strategy", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_shared_weight_needs_one_gradient_instead_of_one_a_use(devices, reduce_strategy):
    size = WIDTH * WIDTH * 4
    plain, expected = trained(devices, reduce_strategy=reduce_strategy, enable_addto=False)
    added, found = trained(devices, reduce_strategy=reduce_strategy, enable_addto=True)
    np.testing.assert_array_equal(found, expected)
    assert plain >= devices * STEPS * size
    assert added < devices * 2 * size + size


def test_a_gradient_that_is_summed_over_devices_grows_where_it_is_summed():
    """Its bytes are set aside for the whole step: parts of it need no others."""
    apart, expected = trained(2, enable_addto=True, enable_inplace=False)
    there, found = trained(2, enable_addto=True)
    np.testing.assert_array_equal(found, expected)
    assert there < apart
