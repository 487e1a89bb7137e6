"""Gradients of gradients: every op with a rule against central differences of its first gradient, on all its samples."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.types import FLOATS, TensorType
from pe_cli.ops.define.registry import discover
from pe_cli.ops.define.second_gradients import SECOND
from pe_cli.program.backward import gradients
from tests.ops.support import as_lists, build, execute, run_op, sample_arrays
from tests.rotation import of_today

OPS = discover()
#: What no second gradient is there for, and the test of it is another one's.
REFUSED = {"sigmoid_cross_entropy_with_logits": lambda a: a.get("normalize", False)}
CASES = [
    pytest.param(name, sample, id=f"{name}: {sample.name}")
    for name in of_today(sorted(SECOND), 3)
    for sample in OPS[name].samples
    if sample.grad and sample.name != "from int64" and not (name in REFUSED and REFUSED[name](sample.attrs))
]


def second_order(definition, sample, arrays, upstream):
    """Return the program, its arrays, the loss of first gradients, and variable -> its gradient."""
    program, outs = build(definition.name, arrays, sample.attrs, sample.outputs)
    block, arrays = program.global_block(), dict(arrays)
    rng = np.random.default_rng(5)

    def constant(kind, i, value):
        arrays.setdefault(kind, []).append(value)
        return block.create_var(f"{kind}_{i}", TensorType(value.shape, str(value.dtype)), persistable=True)

    targets = [block.var(n) for n in outs[next(iter(outs))]]
    starts = [constant("UP", i, value.astype(t.dtype)) for i, (t, value) in enumerate(zip(targets, upstream, strict=True))]
    wanted = [f"{s}_{i}" for s in definition.differentiable for i in range(len(arrays.get(s, [])))]
    wanted = [n for n in wanted if block.var(n).dtype in FLOATS]
    first = gradients(targets, [block.var(n) for n in wanted], starts)
    parts = []
    for i, g in enumerate(g for g in first if g is not None):
        weight = constant("WEIGHT", i, rng.standard_normal(g.shape).astype(g.dtype))
        block.append_op("elementwise_mul", {"X": g, "Y": weight}, {"Out": f"weighted_{i}"})
        block.append_op("reduce_sum", {"X": f"weighted_{i}"}, {"Out": f"part_{i}"}, {"reduce_all": True})
        parts.append(f"part_{i}")
    block.append_op("sum", {"X": parts}, {"Out": "loss"})
    inputs = [*wanted, *(s.name for s in starts)]
    found = gradients([block.var("loss")], [block.var(n) for n in inputs])
    return program, arrays, {n: None if g is None else g.name for n, g in zip(inputs, found, strict=True)}


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_gradients_of_gradients(name, sample):
    definition = OPS[name]
    arrays = sample_arrays(definition, sample, "float64")
    if definition.kinks is not None:
        arrays = as_lists(definition.kinks(arrays))
    rng = np.random.default_rng(11)
    made = run_op(name, arrays, sample.attrs, sample.outputs)
    made = next(iter(made.values())) if isinstance(made, dict) else made
    upstream = [rng.standard_normal(np.shape(v)) for v in (made if isinstance(made, list) else [made])]
    program, filled, found = second_order(definition, sample, arrays, upstream)
    values = execute(program, filled, ["loss", *(g for g in found.values() if g)])
    for variable, gradient in found.items():
        slot, _, index = variable.rpartition("_")
        at = filled[slot][int(index)]
        if not at.size:
            continue
        direction = rng.standard_normal(at.shape)

        def loss(sign, slot=slot, index=int(index), direction=direction):
            moved = {s: list(a) for s, a in filled.items()}
            moved[slot][index] = moved[slot][index] + sign * 1e-5 * direction
            return float(np.ravel(execute(program, moved, ["loss"])["loss"])[0])

        measured = (loss(1) - loss(-1)) / 2e-5
        claimed = 0.0 if gradient is None else float((values[gradient] * direction).sum())
        assert claimed == pytest.approx(measured, rel=2e-5, abs=2e-5), variable
