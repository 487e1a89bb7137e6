"""scan: a region that runs once for each step of its inputs, and hands states from step to step."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.region import checked, region_attr, results_of, same_sizes
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import HasRegions, Runs


@op(
    "scan",
    traits=[HasRegions(Runs.ROUNDS, ("body",))],
    inputs="X* Init* Captured* Count? Like*",
    outputs="Out* Final*",
    differentiable="X Init Captured",
    attrs={
        "body": region_attr("a step: of X, the states and what is captured it computes the next states, then what Out collects"),
        "backwards": Attr(False, "the last step first"),
        "steps": Attr(0, "how many there are where there is no X"),
    },
)
def scan(
    x: list[TensorType],
    init: list[TensorType],
    captured: list[TensorType],
    count: TensorType | None,
    like: list[TensorType],
    *,
    body: Any,
    backwards: bool,
    steps: int,
) -> tuple[list[TensorType], list[TensorType]]:
    """Run a region once for each step of its inputs.

    state = Init; for every step t: state, Out[t] = body(X[t], state, Captured); Final = state

    Args:
        X: [steps, ...] each; the region gets one step, without that axis.
        Init: states before the first step.
        Captured: what every step gets alike.
        Count: [1] int64: how many of the steps are run, from the first one on; all without it. Rows of Out beyond are not written.
        Like: of a gradient, what the op that it is the gradient of is given in X, Init, Captured and Like; only the types count.
        body: of X, Init and Captured in this order; its results are the states, then what Out collects.
        backwards: the last step first; Out has its order.

    Returns:
        Out: [steps, ...] each.
        Final: states after the last step.

    Raises:
        PeError: inputs of different lengths, a region that does not fit, or a state that changes its type.

    Source:
        fluid's recurrent op, without its step scopes.
    """
    del backwards, count
    lengths = {kind.shape[0] if kind.shape else 0 for kind in x} or {steps}
    known = lengths - {-1}
    if len(known) > 1 or 0 in known:
        raise PeError(f"scan: its inputs have {sorted(lengths)} steps", hint="give all of them one number of steps, 1 at least")
    length = next(iter(known), -1)
    region = checked("scan", "body", body, len(x) + len(init) + len(captured))
    if len(region.results) < len(init):
        raise PeError(f"scan: its region has {len(region.results)} results for {len(init)} states")
    args = [*(kind.with_shape(*kind.shape[1:]) for kind in x), *init, *captured]
    found = results_of("scan", "body", region, args, like)
    # Not strict: behind the states come captured arguments on the one side, and what Out collects on the other.
    for name, before, after in zip(region.args[len(x) :], init, found, strict=False):
        if not same_sizes(before, after):
            raise PeError(f"scan: the state '{name}' begins as {before} and becomes {after}", hint="keep its type from step to step")
    return [kind.with_shape(length, *kind.shape) for kind in found[len(init) :]], list(init)

