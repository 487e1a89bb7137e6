"""fuse_grad_update: text in, text out; and trainings that end in the same bits with it and without, in less memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.graph.passes import fuse_grad_update
from pe_cli.graph.pipeline import Target, passes
from pe_cli.program.ir import Program
from tests.graph.passes.support import minimise
from tests.graph.passes.test_text import text

PROGRAM = """\
  var x: float32[batch, 4] is_data stop_gradient
  var g: float32[batch, 3] is_data stop_gradient
  var rate: float32[1] persistable stop_gradient
  var count: int64[1] persistable stop_gradient
  param w: float32[4, 3]
"""
GRADIENT = "  backward mul_grad(X=x, Y=w, Out@GRAD=g) -> Y@GRAD=w@GRAD: float32[4, 3] vars(w, w@GRAD)\n"
SCHEDULE = """\
  lr_sched increment(X=count) -> Out=count
  lr_sched piecewise_decay(Step=count) -> Out=lr: float32[1] stop_gradient {"boundaries": [2], "values": [0.1, 0.01]}
"""
STEP = "  optimize sgd(Param=w, Grad=w@GRAD, LearningRate={rate}) -> ParamOut=w vars(w, w@GRAD)\n"
FUSED = "  backward mul_grad(X=x, Y=w, Out@GRAD=g, Y@ADDTO=w, Y@RATE={rate}) -> Y@GRAD=w\n"


def test_the_operator_of_the_gradient_writes_the_parameter():
    made, said = text(fuse_grad_update.run, PROGRAM + GRADIENT + STEP.format(rate="rate"))
    assert made == PROGRAM + FUSED.format(rate="rate")
    assert said == "fuse_grad_update: 1 of 1 updates are done by gradients"


def test_a_schedule_goes_first():
    made, _ = text(fuse_grad_update.run, PROGRAM + GRADIENT + SCHEDULE + STEP.format(rate="lr"))
    assert made == PROGRAM + SCHEDULE + FUSED.format(rate="lr")


@pytest.mark.parametrize(
    ("between", "fetches", "why"),
    [
        pytest.param("", ["w@GRAD"], "1 x a gradient is fetched", id="fetched"),
        pytest.param("  optimize mean(X=w@GRAD) -> Out=m: float32[1]\n", [], "1 x a gradient is also read by mean", id="read"),
        pytest.param(
            "  optimize mean(X=w) -> Out=m: float32[1]\n",
            [],
            "1 x a parameter or a rate is used between gradient and update",
            id="parameter read",
        ),
        pytest.param(
            "  optimize scale(X=rate) -> Out=rate\n",
            [],
            "1 x a parameter or a rate is used between gradient and update",
            id="rate written",
        ),
    ],
)
def test_what_somebody_looks_at_stays(between, fetches, why):
    given = PROGRAM + GRADIENT + between + STEP.format(rate="rate")
    made, said = text(fuse_grad_update.run, given, fetches)
    assert made == given
    assert said == f"fuse_grad_update: nothing fused: {why}"


def test_a_schedule_that_the_step_itself_decides_stays_where_it_is():
    schedule = '  lr_sched scale(X=s) -> Out=lr: float32[1] {"scale": 0.1}\n'
    given = PROGRAM + "  forward mean(X=g) -> Out=s: float32[1]\n" + GRADIENT + schedule + STEP.format(rate="lr")
    made, _ = text(fuse_grad_update.run, given)
    assert made == given


def test_decayed_and_momentum_s_gradients_are_left_alone():
    decay = (
        '  optimize l2_decay(Grad=w@GRAD, Param=w) -> Out=d: float32[4, 3] {"coeff": 0.1}\n'
        "  optimize sgd(Param=w, Grad=d, LearningRate=rate) -> ParamOut=w vars(w, w@GRAD)\n"
    )
    _, said = text(fuse_grad_update.run, PROGRAM + GRADIENT + decay)
    assert said == "fuse_grad_update: nothing fused: 1 x a gradient is made by l2_decay, which updates nothing"
    momentum = "  var v: float32[4, 3] persistable stop_gradient\n" + GRADIENT
    momentum += "  optimize momentum(Param=w, Grad=w@GRAD, Velocity=v, LearningRate=rate) -> ParamOut=w, VelocityOut=v vars(w, w@GRAD)\n"
    _, said = text(fuse_grad_update.run, PROGRAM + momentum)
    assert said == "fuse_grad_update: nothing fused: no parameter is updated by sgd, and no table by adam"


def test_only_one_cpu_device_of_one_process_uses_gradients_up():
    assert Target.of([Place("cpu", 0)]).alone
    assert not Target.of([Place("cpu", 0), Place("cpu", 1)]).alone
    assert not Target.of([Place("cuda", 0)]).alone
    assert not Target.of([Place("cpu", 0)], processes=2).alone
    for alone in (False, True):
        assert (fuse_grad_update.run in passes(BuildStrategy(), Target(caches=True, alone=alone))) is alone
    assert fuse_grad_update.run not in passes(BuildStrategy(fuse_grad_update=False), Target(caches=True, alone=True))


def network(dtype: str, width: int = 70) -> Program:
    """Return layers of some widths, tanh between them; the first gets no gradient of its input."""
    program = Program("layers")
    block = program.global_block()
    block.create_var("x", TensorType((-1, width), dtype), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,), "float32"), persistable=True, stop_gradient=True)
    widths = [width, 2 * width, 3, width, width + 1]
    h = "x"
    for i, (rows, columns) in enumerate(pairwise(widths)):
        block.create_parameter(f"w{i}", TensorType((rows, columns), dtype))
        block.append_op("mul", {"X": h, "Y": f"w{i}"}, {"Out": f"m{i}"})
        block.append_op("tanh", {"X": f"m{i}"}, {"Out": f"h{i}"})
        h = f"h{i}"
    block.append_op("mean", {"X": h}, {"Out": "loss"})
    minimise(program, "loss")
    return program


def start(program: Program) -> dict[str, np.ndarray]:
    """Return what persistable variables begin with."""
    rng = np.random.default_rng(0)
    kinds = {v.name: v.type for v in program.list_vars() if v.persistable}
    values = {name: rng.uniform(-0.3, 0.3, kind.shape).astype(kind.numpy) for name, kind in sorted(kinds.items())}
    return values | {"lr": np.full(1, 3, "float32")}


def trained(program: Program, dtype: str, batch: int, threads: int, *, checks: bool = False, **build: bool):
    """Return the parameters after three steps, and the executor."""
    scope = Scope([Place("cpu", 0)])
    execution = ExecutionStrategy(num_threads=threads)
    executor = Executor(program, scope, build=BuildStrategy(**build), execution=execution, check_nan_inf=checks)
    rng = np.random.default_rng(0)
    for name, value in start(program).items():
        scope.set(name, value)
    for step in range(3):
        x = rng.standard_normal((batch, program.global_block().var("x").shape[1])).astype(dtype)
        executor.run({"x": x}, ["loss"], step)
    return {name: scope.get(name) for name in scope}, executor


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 40, 600])  # of 600 rows, a product is added up in several sums
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_bit_changes(dtype, batch, threads):
    program = network(dtype)
    expected, _ = trained(program, dtype, batch, 1, fuse_grad_update=False)
    found, executor = trained(program, dtype, batch, threads)
    assert [op.type for op in executor.stages(["loss"]).graph().program.global_block().ops].count("sgd") == 0
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert all(np.any(expected[name] != first) for name, first in start(program).items() if name != "lr")


def test_large_products_are_shared_by_threads_and_wait_for_those_that_read_the_parameter():
    """Cut in two, so that the second half of a layer's gradient of data might still read what its first half has moved."""
    program = network("float32", 260)
    expected, _ = trained(program, "float32", 128, 1, fuse_grad_update=False)
    for threads in (2, 4):
        found, executor = trained(program, "float32", 128, threads)
        (plan,) = executor.plans.values()
        parts = {c.part for t in plan.tasks for c in t.calls if c.kernel.name.endswith("product_times")}
        assert parts >= {0, 1}
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_gradients_take_no_memory():
    program = network("float32", 260)
    (without,), (fused,) = (
        trained(program, "float32", 8, 1, fuse_grad_update=on)[1].plans.values() for on in (False, True)
    )
    assert fused.nbytes < 0.7 * without.nbytes
    assert not [b.name for b in fused.memory[0].plan.offsets if b.name.startswith("w")]


def test_who_looks_for_nan_gets_the_gradient_s_name():
    _, executor = trained(network("float32"), "float32", 4, 1, checks=True)
    assert "w0@GRAD" in executor.stages(["loss"]).graph().program.global_block().vars
