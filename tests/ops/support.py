"""Running one op, and checking its gradient against central differences; used by every test of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import FLOATS, Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.dynamic_programs import DynamicProgram
from pe_cli.execute.plan.program_parts import is_dynamic
from pe_cli.ops.define.registry import OpDef, Sample, find
from pe_cli.program.backward import gradients
from pe_cli.program.ir import Program

Arrays = dict[str, list[np.ndarray[Any, Any]]]
#: Where ops run; tests of other devices change it.
PLACE = Place("cpu", 0)


def as_lists(inputs: Mapping[str, Any]) -> Arrays:
    """Make every slot a list of arrays."""
    return {s: [np.asarray(a) for a in v] if isinstance(v, list) else [np.asarray(v)] for s, v in inputs.items()}


def build(
    op_name: str, inputs: Arrays, attrs: Mapping[str, Any], outputs: Mapping[str, int] | None = None
) -> tuple[Program, dict[str, list[str]]]:
    """Return a program of one op whose inputs are persistable variables `X_0`, ..., and its output names by slot."""
    program = Program(op_name)
    program.random_seed = 7
    block = program.global_block()
    definition = find(op_name)
    names: dict[str, list[str]] = {}
    for slot, arrays in inputs.items():
        names[slot] = [f"{slot}_{i}" for i in range(len(arrays))]
        for name, a in zip(names[slot], arrays, strict=True):
            block.create_var(
                name, TensorType(a.shape, str(a.dtype)), persistable=True, stop_gradient=a.dtype.name not in FLOATS
            )
    given = {s.name: (outputs or {}).get(s.name, 1) for s in definition.outputs}
    outs = {s: [f"{s}_out{i}" for i in range(n)] for s, n in given.items() if n}
    block.append_op(op_name, names, outs, dict(attrs))
    made = {s: [n for n in ns if n in block.vars] for s, ns in outs.items()}
    block.ops[-1].outputs = {s: ns for s, ns in made.items() if ns}
    return program, block.ops[-1].outputs


def runner(program: Program, fetches: Sequence[str], threads: int = 0) -> Callable[..., dict[str, np.ndarray[Any, Any]]]:
    """Return `run(inputs, step=0)`: it runs a program on one device with these values in its scope, and plans it only once."""
    scope = Scope([PLACE])
    scope.allocate({v.name: v.type for v in program.list_vars() if v.persistable})
    whole = None if is_dynamic(program) else Executor(program, scope, execution=ExecutionStrategy(num_threads=threads), seed=7)

    def run(inputs: Arrays, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        for slot, arrays in inputs.items():
            for i, a in enumerate(arrays):
                scope.set(f"{slot}_{i}", a)
        if whole is not None:
            return whole.run({}, list(fetches), step).values[0]

        def once(part, feeds, names, number):
            for v in part.list_vars():
                v.is_data = v.name in feeds[0]
            return Executor(part, scope, seed=7).run(feeds[0], names, step).values

        return DynamicProgram(program).run([{}], fetches, once, scope.get)[0]

    return run


def execute(
    program: Program, inputs: Arrays, fetches: Sequence[str], step: int = 0, threads: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a program on one device with these values in its scope."""
    return runner(program, fetches, threads)(inputs, step)


def op_runner(
    op_name: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, int] | None = None,
    threads: int = 0,
) -> Callable[..., Any]:
    """Return `run(inputs, step=0)`, which does what `run_op` does, for any values of the same sizes."""
    program, outs = build(op_name, as_lists(inputs), attrs or {}, outputs)
    run = runner(program, [n for ns in outs.values() for n in ns], threads)

    def call(inputs: Mapping[str, Any], step: int = 0) -> Any:
        found = run(as_lists(inputs), step)
        result = {s: found[ns[0]] if len(ns) == 1 else [found[n] for n in ns] for s, ns in outs.items()}
        return next(iter(result.values())) if len(result) == 1 else result

    return call


def run_op(
    op_name: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, int] | None = None,
    step: int = 0,
    threads: int = 0,
) -> Any:
    """Run one op on the CPU.

    Args:
        op_name: fluid's name.
        inputs: slot -> array or list of arrays.
        attrs: attributes that differ from the defaults.
        outputs: slot -> number of variables, for `Out*` (default 1 each; 0 leaves an output away).
        step: number of the step, for random ops.
        threads: that share it.

    Returns:
        Slot -> array, or a list of arrays for a slot with several; the array alone when the op has one output.
    """
    return op_runner(op_name, inputs, attrs, outputs, threads)(inputs, step)


def run_gradient(
    op_name: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    out: str | None = None,
    upstream: Any = None,
    outputs: Mapping[str, int] | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Return the gradient of sum(upstream * output) for every differentiable input: slot -> array (or list).

    Args:
        out: output slot; default the first.
        upstream: array(s) of the output's shape; default ones.
        outputs, threads: as for `run_op`.
    """
    arrays = as_lists(inputs)
    program, outs = build(op_name, arrays, attrs or {}, outputs)
    block = program.global_block()
    slot = out or next(iter(outs))
    targets = [block.var(n) for n in outs[slot]]
    given = [] if upstream is None else (upstream if isinstance(upstream, list) else [upstream])
    starts = []
    for i, target in enumerate(targets):
        seed = np.asarray(given[i], target.dtype) if given else np.ones(target.shape, target.dtype)
        starts.append(block.create_var(f"UP_{i}", TensorType(seed.shape, str(seed.dtype)), persistable=True))
        arrays.setdefault("UP", []).append(seed)
    definition = find(op_name)
    wanted = [f"{s}_{i}" for s in definition.differentiable for i in range(len(arrays.get(s, [])))]
    wanted = [n for n in wanted if block.var(n).dtype in FLOATS]
    found = gradients(targets, [block.var(n) for n in wanted], starts)
    names = {w: g.name for w, g in zip(wanted, found, strict=True) if g is not None}
    values = execute(program, arrays, list(names.values()), threads=threads)
    result: dict[str, Any] = {}
    for s in definition.differentiable:
        got = [values[names[f"{s}_{i}"]] for i in range(len(arrays.get(s, []))) if f"{s}_{i}" in names]
        if got:
            result[s] = got[0] if len(got) == 1 and not isinstance(inputs.get(s), list) else got
    return result


def sample_arrays(definition: OpDef, sample: Sample, dtype: str, seed: int = 3) -> Arrays:
    """Return a sample's inputs: shapes become normal numbers of dtype; makers `f(rng)` are called (floats are cast to dtype)."""
    rng = np.random.default_rng(seed)

    def one(slot: str, spec: Any) -> np.ndarray[Any, Any]:
        made = np.asarray(spec(rng)) if callable(spec) else rng.standard_normal(spec)
        return made.astype(dtype) if made.dtype.kind == "f" and slot not in sample.keep else made

    return {
        s: [one(s, v) for v in spec] if isinstance(spec, list) else [one(s, spec)] for s, spec in sample.inputs.items()
    }


def directional_error(definition: OpDef, sample: Sample, outputs: Mapping[str, int] | None = None) -> float:
    """Return the largest relative gap between the gradient and central differences in float64, over random directions.

    An op with `kinks` gives `kinks(arrays) -> arrays` moved away from where it is not smooth.
    """
    arrays = sample_arrays(definition, sample, "float64")
    if definition.kinks is not None:
        arrays = as_lists(definition.kinks(arrays))
    rng = np.random.default_rng(11)
    first = next(s.name for s in definition.outputs)
    run = op_runner(definition.name, arrays, sample.attrs, outputs)
    shapes = run(arrays)
    value = shapes[first] if isinstance(shapes, dict) else shapes
    values = [np.asarray(v) for v in (value if isinstance(value, list) else [value])]  # the rows of sequences
    upstream = [rng.standard_normal(v.shape) for v in values]
    gradient = run_gradient(definition.name, arrays, sample.attrs, first, upstream, outputs)
    worst = 0.0
    for slot, found in gradient.items():
        for i, g in enumerate(found if isinstance(found, list) else [found]):
            direction = rng.standard_normal(g.shape)

            def loss(sign: float, slot: str = slot, i: int = i, direction: np.ndarray[Any, Any] = direction) -> float:
                moved = {s: list(a) for s, a in arrays.items()}
                moved[slot][i] = moved[slot][i] + sign * 1e-6 * direction
                out = run(moved)
                got = out[first] if isinstance(out, dict) else out
                return float(
                    sum((u * np.asarray(v)).sum() for u, v in zip(upstream, got if isinstance(got, list) else [got], strict=True))
                )

            measured = (loss(1) - loss(-1)) / 2e-6
            claimed = float((g * direction).sum())
            worst = max(worst, abs(measured - claimed) / max(1.0, abs(measured), abs(claimed)))
    return worst
