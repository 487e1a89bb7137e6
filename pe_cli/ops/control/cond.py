"""cond: one of two regions runs."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.region import checked, either, region_attr, results_of, same_sizes
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import HasRegions, ReportsData, Runs


@op(
    "cond",
    traits=[HasRegions(Runs.BRANCH, ("yes", "no")), ReportsData()],
    inputs="Condition Captured*",
    outputs="Out*",
    differentiable="Captured",
    attrs={
        "yes": region_attr("runs where the condition holds"),
        "no": region_attr("runs where it does not"),
        "varying": Attr(False, "the regions give results of other shapes: the host takes the branch, and no gradients flow"),
    },
)
def cond(condition: TensorType, captured: list[TensorType], *, yes: Any, no: Any, varying: bool) -> tuple[list[TensorType]]:
    """Run one of two regions.

    Out = yes(Captured) if Condition else no(Captured)

    Args:
        Condition: one bool; an axis whose size only a step knows has one element then.
        Captured: what both regions get.
        yes: computes Out where the condition holds.
        no: computes Out where it does not.
        varying: results may have other shapes in one region than in the other.

    Returns:
        Out: the results of the region that ran.

    Raises:
        PeError: the condition is not one bool, or the regions do not give the same types.

    Source:
        fluid's conditional_block op.
    """
    if condition.dtype != "bool" or any(size not in (1, -1) for size in condition.shape):
        raise PeError(f"cond: its condition is {condition}", hint="compute one bool")
    first = checked("cond", "yes", yes, len(captured))
    second = checked("cond", "no", no, len(captured), len(first.results))
    found = results_of("cond", "yes", first, captured), results_of("cond", "no", second, captured)
    if varying and all(a.dtype == b.dtype for a, b in zip(*found, strict=True)):
        return ([either(a, b) for a, b in zip(*found, strict=True)],)
    for a, b in zip(*found, strict=True):
        if not same_sizes(a, b):
            raise PeError(f"cond: one branch gives {a}, the other {b}", hint="give the same types from both")
    # A size that only one branch knows is the size of both: -1 is the smaller number.
    return ([a.with_shape(*(max(p, q) for p, q in zip(a.shape, b.shape, strict=True))) for a, b in zip(*found, strict=True)],)
