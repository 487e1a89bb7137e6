"""What `train.adapt` trains, and the cost of a step with and without it: a part of pe check."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pe_cli.cli.layers_table import one_sample_types
from pe_cli.ops.define.traits import Counted
from pe_cli.program.operator import Role

if TYPE_CHECKING:
    from pe_cli.cli.common import Source
    from pe_cli.core.types import TensorType
    from pe_cli.program.ir import Operator, Program


def lines(source: Source, bytes_of: Callable[[tuple[Program, ...]], int]) -> list[str]:
    """Return a line for what is adapted; none without `train.adapt`.

    Args:
        source: a run and its programs.
        bytes_of: what training programs need on one device.
    """
    adapted, run = source.built.adapted, source.run
    if adapted is None or run is None or not source.built.programs or source.built.programs[0].prefix:  # phases may name that, too
        return []
    from dataclasses import replace

    from pe_cli.build.build import build
    from pe_cli.graph.dot import size_text

    assert run.train is not None
    section = run.train.model_copy(update={"adapt": None, "groups": [], "by_depth": None})  # which may name what adapt adds
    whole = build(run.model, replace(run, train=section)).programs
    parameters = source.built.eval.parameters()
    trained = sum(p.type.size for p in parameters if p.trainable)
    where = f" beside {len(adapted.weights)} weights" if adapted.weights else ""
    ours, all_of_it = (sum(map(_products, programs)) for programs in (source.built.programs, whole))
    said = f"train.adapt: {adapted.type}{where} trains {trained:,} of {sum(p.type.size for p in parameters):,} values"
    cost = f"{size_text(bytes_of(source.built.programs))} of memory and {ours:,} FLOPs per sample in products"
    found = [f"{said}; a step takes {cost}, and without it {size_text(bytes_of(whole))} and {all_of_it:,}"]
    return found + [f"train.adapt: nothing stands beside {name}: {why}" for name, why in dict(adapted.left).items()]


def _products(program: Program) -> int:
    """Return the floating-point operations of a training step's products for one sample, forward and backward."""
    types = one_sample_types(program)
    return sum(_flops(op, types) for op in program.top_ops)


def _flops(op: Operator, types: dict[str, TensorType]) -> int:
    """Return the operations of a forward op as it counts them, and as many for each gradient that an op makes; 0 where none are counted."""
    from pe_cli.ops.define.registry import discover

    forward = discover().get(op.type.removesuffix("_grad")) if op.role is Role.BACKWARD else op.definition
    counted = forward.get(Counted) if forward is not None else None
    if counted is None or forward is None:
        return 0
    slots = [op.inputs.get(slot.name) for slot in forward.inputs]
    if not all(slot and slot[0] in types for slot in slots):
        return 0
    attrs = {name: op.attrs[name] for name in forward.attrs if name in op.attrs}
    found = counted.flops(*(types[slot[0]] for slot in slots if slot), **attrs)
    times = len(op.output_names()) if op.role is Role.BACKWARD else 1
    return max(0, found) * times
