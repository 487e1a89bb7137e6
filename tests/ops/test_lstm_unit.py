"""lstm_unit against its definition in NumPy, and scanned against the layer lstm and PyTorch's cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.layers.control.loops import scan
from pe_cli.layers.define.registry import find
from pe_cli.program.backward import append_backward
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Variable
from pe_cli.program.param_attr import ParamAttr
from tests.ops.support import run_op


def s(v):
    return 1 / (1 + np.exp(-v))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["ifog", "igfo", "ifgo"])
def test_it_is_what_it_is_defined_as(order, dtype):
    rng = np.random.default_rng(1)
    x, before = rng.standard_normal((7, 4 * 33)), rng.standard_normal((7, 33))
    parts = dict(zip(order, np.split(x, 4, 1), strict=True))
    cell = s(parts["f"] + 0.5) * before + s(parts["i"]) * np.tanh(parts["g"])
    found = run_op("lstm_unit", {"X": x.astype(dtype), "C_prev": before.astype(dtype)}, {"forget_bias": 0.5, "order": order})
    tolerance = 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(found["C"], cell, rtol=0, atol=4 * tolerance)
    np.testing.assert_allclose(found["H"], s(parts["o"]) * np.tanh(cell), rtol=0, atol=4 * tolerance)


@pytest.mark.parametrize(
    ("x", "before"), [((3, 8), (3, 3)), ((3, 8), (2, 2)), ((8,), (2,)), ((3, 8, 1), (3, 2))]
)
def test_sizes_that_do_not_fit_are_refused(x, before):
    with pytest.raises(PeError, match="lstm_unit needs"):
        run_op("lstm_unit", {"X": np.zeros(x, "float32"), "C_prev": np.zeros(before, "float32")})


def trained(kind: str, x: Any, weights: dict[str, Any], threads: int = 1) -> list[Any]:
    """Return the outputs of all steps, and the gradients, of the layer `lstm` or of a scan of lstm_unit over the same weights."""
    units = weights["u"].shape[0]
    main = Program()
    with program_guard(main, Program()):
        block = main.global_block()
        given = block.create_var("x", TensorType((x.shape[0], -1, x.shape[2]), "float64"), is_data=True)
        w, u, b = (ParamAttr(name=n) for n in "wub")
        if kind == "lstm":
            attrs = {"weight_ih_attr": w, "weight_hh_attr": u, "bias_ih_attr": b, "bias_hh_attr": False}
            out = find("lstm").fn(given, units, time_major=True, **attrs)[0]
        else:
            zeros = find("fill_constant_batch_size_like").fn(given, [-1, units], "float64", 0.0, input_dim_idx=1)

            def body(each: list[Variable], states: list[Variable]) -> Any:
                gates = find("fc").fn([each[0], states[0]], 4 * units, param_attr=[w, u], bias_attr=b)
                made = {n: main.unique(n) for n in ("C", "H", "Gates")}
                op = block.append_op("lstm_unit", {"X": gates, "C_prev": states[1]}, made, {"order": "ifgo"})
                cell, hidden = (block.var(op.outputs[slot][0]) for slot in ("C", "H"))
                return [hidden, cell], [hidden]

            (out,), _ = scan(body, [given], [zeros, zeros])
        append_backward(find("mean").fn(find("square").fn(out)), also=["x"])
    scope = Scope([Place("cpu", 0)])
    executor = Executor(main, scope, build=BuildStrategy(), execution=ExecutionStrategy(num_threads=threads), seed=1)
    for name, value in weights.items():
        scope.set(name, value)
    names = [out.name, "x@GRAD", "w@GRAD", "u@GRAD", "b@GRAD"]
    found = executor.run({"x": x}, names, 0).values[0]
    return [np.asarray(found[n]) for n in names]


def test_a_scan_of_it_is_the_layer_lstm():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6, 17, 5))
    weights = {"w": rng.standard_normal((5, 28)), "u": rng.standard_normal((7, 28)), "b": rng.standard_normal(28)}
    expected = trained("lstm", x, weights)
    found = trained("scan", x, weights)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)
    for a, b in zip(trained("scan", x, weights, threads=2), found, strict=True):
        np.testing.assert_array_equal(a, b)
