"""while: a region that runs as long as another one gives true."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.region import StateVaries, checked, region_attr, results_of, same_sizes
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import HasRegions, ReportsData, Runs


@op(
    "while",
    traits=[HasRegions(Runs.WHILE, ("condition", "body")), ReportsData()],
    inputs="Init* Captured*",
    outputs="Out* Final* Count",
    differentiable="Init Captured",
    attrs={
        "condition": region_attr("of the states and what is captured it computes one bool"),
        "body": region_attr("of the states and what is captured it computes the next states, then what Out collects"),
        "bound": Attr(0, "rounds at most; needed where gradients flow through the loop, which keep what every round computed. 0: no bound"),
        "varying": Attr(False, "states have other sizes from round to round: every round is a step of its own, and no gradients flow"),
    },
)
def while_loop(
    init: list[TensorType], captured: list[TensorType], *, condition: Any, body: Any, bound: int, varying: bool
) -> tuple[list[TensorType], list[TensorType], TensorType]:
    """Run a region as long as a condition holds.

    state = Init; while condition(state, Captured): state, Out[round] = body(state, Captured); Final = state

    Args:
        Init: states before the first round.
        Captured: what every round gets alike.
        condition: gives one bool.
        body: its results are the states, then what Out collects.

    Returns:
        Out: [bound, ...] each; rows of rounds that there were not are not written.
        Final: states when the condition holds no more.
        Count: [1] int64, how many rounds there were.

    Raises:
        PeError: a region that does not fit, a state that changes its type, a negative bound, or Out without a bound.

    Source:
        fluid's while op, without its step scopes.
    """
    if bound < 0:
        raise PeError(f"while: bound is {bound}", hint="0 for no bound")
    init = _opened(init, body) if varying else init
    args = [*init, *captured]
    test = checked("while", "condition", condition, len(args), 1)
    region = checked("while", "body", body, len(args))
    (flag,) = results_of("while", "condition", test, args)
    if flag.dtype != "bool" or flag.size != 1:
        raise PeError(f"while: its condition is {flag}", hint="compute one bool")
    found = results_of("while", "body", region, args)
    if len(found) < len(init) or (len(found) > len(init) and not bound):
        raise PeError(f"while: its region has {len(found)} results for {len(init)} states, and {bound or 'no'} bound")
    # A state that the body never reads is free to change even the sizes that are known.
    init = [after if varying and name not in _reads(body) else a for name, a, after in zip(region.args, init, found, strict=False)]
    for name, before, after in zip(region.args, init, found, strict=False):
        if not same_sizes(before, after):
            message = f"while: the state '{name}' begins as {before} and becomes {after}"
            raise StateVaries(message, hint="keep its type from round to round")
    return [kind.with_shape(bound, *kind.shape) for kind in found[len(init) :]], list(init), TensorType((1,), "int64")


def _opened(init: list[TensorType], body: Any) -> list[TensorType]:
    """Return types of states with the unknown sizes that a round says, whatever sizes they begin with."""
    kinds = [body.block.vars[name].type for name in body.args[: len(init)]]
    pairs = [zip(kind.shape, a.shape, strict=True) for kind, a in zip(kinds, init, strict=True)]
    return [a.with_shape(*(-1 if size == -1 else own for size, own in pair)) for a, pair in zip(init, pairs, strict=True)]


def _reads(body: Any) -> set[str]:
    """Return what the ops of a region read; a state that is not there is written anew in every round."""
    return {name for op in body.block.ops for name in op.input_names()}
