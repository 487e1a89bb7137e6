"""Gradient ops that add: what they give is, to the bit, what they were given plus the gradient that they write alone."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import OPS, Sample, added_slot, discover
from pe_cli.ops.define.traits import AddsUp
from pe_cli.program.backward import gradients
from pe_cli.program.ir import EMPTY, Program
from tests.ops import support
from tests.ops.support import as_lists, build, sample_arrays

discover()
CASES = [
    pytest.param(d, s, id=f"{d.name}: {s.name or i}")
    for d in OPS.values()
    if d.grad_op is not None and d.grad_op.has(AddsUp)
    for i, s in enumerate(d.samples)
    if s.grad
]


def backward(definition, sample, dtype, rng) -> tuple[Program, dict[str, np.ndarray]]:
    """Return the op's program with its gradients from a random upstream, and the values of its persistable variables."""
    arrays = sample_arrays(definition, sample, dtype)
    if definition.kinks is not None:
        arrays = as_lists(definition.kinks(arrays))
    program, outs = build(definition.name, arrays, sample.attrs, sample.outputs)
    block = program.global_block()
    values = {f"{slot}_{i}": a for slot, row in arrays.items() for i, a in enumerate(row)}
    (target,) = next(iter(outs.values()))
    upstream = rng.standard_normal(block.var(target).shape).astype(dtype)
    block.create_var("up", TensorType(upstream.shape, dtype), persistable=True)
    values["up"] = upstream
    wanted = [block.var(f"{s}_0") for s in definition.differentiable if f"{s}_0" in values]
    gradients([block.var(target)], [v for v in wanted if v.dtype == dtype], [block.var("up")])
    return program, values


def run(program: Program, values, fetches, threads=0, **strategy) -> dict[str, np.ndarray]:
    scope = Scope([support.PLACE])
    execution = ExecutionStrategy(num_threads=threads)
    executor = Executor(program, scope, build=BuildStrategy(**strategy), execution=execution, seed=7)
    for name, value in values.items():
        scope.set(name, value)
    return executor.run({}, fetches).values[0]


def check_bits_of_the_sum(definition, sample, dtype, rng, threads=0) -> None:
    program, values = backward(definition, sample, dtype, rng)
    (op,) = [op for op in program.global_block().ops if op.type == f"{definition.name}_grad"]
    slots = [s for s in op.definition.get(AddsUp).slots if op.outputs.get(s, [EMPTY]) != [EMPTY]]
    names = {s: op.outputs[s][0] for s in slots}
    alone = run(program, values, list(names.values()), threads)
    block = program.global_block()
    at = block.ops.index(op)
    for slot, name in names.items():
        kind = block.var(name).type
        block.create_var(f"start {slot}", kind, persistable=True)
        values[f"start {slot}"] = rng.standard_normal(kind.shape).astype(dtype)
        block.append_op("scale", {"X": f"start {slot}"}, {"Out": f"total {slot}"}, {"scale": 1.0}, index=at)
        op.inputs[added_slot(slot)] = [f"total {slot}"]
    for slot, name in names.items():  # one after the other: what is fetched is written where it lies
        for strategy in ({}, {"enable_inplace": False}):
            found = run(program, values, [name], threads, **strategy)[name]
            np.testing.assert_array_equal(found, values[f"start {slot}"] + alone[name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("definition", "sample"), CASES)
def test_an_added_gradient_has_the_bits_of_the_sum(definition, sample, dtype, rng):
    check_bits_of_the_sum(definition, sample, dtype, rng)


@pytest.mark.parametrize("shapes", [((3, 20), (20, 700)), ((40, 9), (9, 512)), ((600, 70), (70, 3)), ((1, 30), (30, 40))], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_any_length_and_width_are_added_to_the_bit(shapes, dtype, rng):
    sample = Sample(dict(zip("XY", shapes, strict=True)), name="")
    check_bits_of_the_sum(OPS["mul"], sample, dtype, rng)


@pytest.mark.parametrize("kept", [False, True], ids=["may go", "is fetched too"])
def test_the_memory_of_what_is_added_to_is_taken_over_unless_it_stays(kept, rng):
    program = Program("p")
    block = program.global_block()
    for name in ("a", "g"):
        block.create_var(name, TensorType((50, 20)), persistable=True)
    block.append_op("scale", {"X": "a"}, {"Out": "start"}, {"scale": 1.0})
    block.append_op("scale", {"X": "g"}, {"Out": "out@GRAD"}, {"scale": 2.0})
    block.create_var("x", TensorType((50, 20)))
    block.append_op("tanh_grad", {"Out": "g", "Out@GRAD": "out@GRAD", "X@ADDTO": "start"}, {"X@GRAD": "x@GRAD"})
    block.append_op("scale", {"X": "x@GRAD"}, {"Out": "end"}, {"scale": 1.0})
    a, g = rng.standard_normal((2, 50, 20)).astype("float32")
    scope = Scope([support.PLACE])
    executor = Executor(program, scope)
    scope.set("a", a)
    scope.set("g", g)
    found = executor.run({}, ["end", "start"] if kept else ["end"]).values[0]
    np.testing.assert_allclose(found["end"], a + 2 * g * (1 - g * g), rtol=1e-5, atol=1e-6)
    if kept:
        np.testing.assert_array_equal(found["start"], a)
    (plan,) = executor.plans.values()
    offsets = {b.name: at for b, at in plan.memory[0].plan.offsets.items()}
    assert (offsets["start"] == offsets["x@GRAD"]) is not kept
