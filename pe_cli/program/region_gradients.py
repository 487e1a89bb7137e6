"""Gradients of ops with regions: the gradient of a loop is a loop that runs backwards, that of a branch is a branch.

What a gradient reads of a round's intermediate values is kept: the loop collects it, one row for each round. A branch's forward ops run
again instead, those that its gradient needs.
"""

from __future__ import annotations

from pe_cli.ops.define.traits import HasRegions, Runs
from pe_cli.program.branch_gradient import BranchGradient
from pe_cli.program.ir import Block, Operator
from pe_cli.program.loop_gradient import LoopGradient
from pe_cli.program.region_gradient_parts import Grads, MakeWalk


def append_region_gradient(block: Block, op: Operator, grads: Grads, wanted: Grads, walk: MakeWalk) -> None:
    """Append the gradient of an op with regions.

    Args:
        block: of the op.
        op: it may get further outputs: what its gradient reads.
        grads: output -> its gradient.
        wanted: input -> the name that its gradient gets.
        walk: over regions.

    Raises:
        PeError: a loop without a bound.
    """
    regions = op.definition.get(HasRegions)
    assert regions is not None
    (BranchGradient if regions.runs is Runs.BRANCH else LoopGradient)(block, op, grads, wanted, walk).append()
