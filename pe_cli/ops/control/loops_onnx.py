"""scan, while and cond in ONNX: Scan, Loop and If, whose bodies read what is captured by its name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import Writer, in_onnx


def _outputs(o: Writer, slot: str) -> list[str]:
    return list(o.op.outputs.get(slot, ()))


def _typed(o: Writer, names: Sequence[str]) -> list[tuple[str, TensorType]]:
    return [(n, o.type_of(n)) for n in names]


@in_onnx("scan")
def scan_onnx(o: Writer) -> None:
    """States, then rows; without rows the numbers of the steps are gone through."""
    if o.has("Count"):
        _counted(o)
        return
    given, init, inside = o.ins("X"), o.ins("Init"), o.inside()
    states = [(inside.fresh(), o.type_of(n)) for n in init]
    rows = [(inside.fresh(), o.type_of(n).with_shape(*o.type_of(n).shape[1:])) for n in given]
    found = inside.region(o.attrs["body"], [*rows, *states, *_typed(o, o.ins("Captured"))])
    if not given:
        given, rows = [o.const(np.arange(o.attrs["steps"]))], [(inside.fresh(), TensorType((), "int64"))]
    back, outs = int(o.attrs["backwards"]), len(found) - len(states)
    ways = {"scan_input_directions": [back] * len(given)} | ({"scan_output_directions": [back] * outs} if outs else {})
    # ONNX gives a body its states first, then the rows; the op's region takes rows first.
    body = inside.body([*states, *rows], found)
    o.nodes("Scan", [*init, *given], [*_outputs(o, "Final"), *_outputs(o, "Out")], body=body, num_scan_inputs=len(given), **ways)


def _counted(o: Writer) -> None:
    """Write a scan of which only a step knows how many rounds there are: a Loop, which picks its rows itself."""
    given, init, back, inside = o.ins("X"), o.ins("Init"), o.attrs["backwards"], o.inside()
    most = o.node("Gather", [o.node("Shape", [given[0]]), o.const([0])]) if given else o.const([o.attrs["steps"]])
    # A count above the number of rows would gather behind them.
    rounds = o.node("Min", [o.x("Count"), most])
    number, flag = (inside.fresh(), TensorType((), "int64")), (inside.fresh(), TensorType((), "bool"))
    at = number[0]
    if back:
        last = inside.node("Sub", [rounds, o.const([1])])
        at = inside.node("Squeeze", [inside.node("Sub", [last, at])])
    states = [(inside.fresh(), o.type_of(n)) for n in init]
    rows = [(inside.node("Gather", [n, at]), o.type_of(n).with_shape(*o.type_of(n).shape[1:])) for n in given]
    found = inside.region(o.attrs["body"], [*rows, *states, *_typed(o, o.ins("Captured"))])
    # The flag is handed on as it came, true: only the number of rounds ends this loop.
    body, made = inside.body([number, flag, *states], [flag, *found]), [o.fresh() for _ in found[len(init) :]]
    o.nodes("Loop", [rounds, o.const(True, dtype="bool"), *init], [*_outputs(o, "Final"), *made], body=body)
    if back:  # the first row that was collected is the last one
        ends = [o.const([v]) for v in (-1, -(2**31), 0, -1)]
        made = [o.node("Slice", [name, *ends]) for name in made]
    args = [(o.node("Gather", [n, o.const(0)]), o.type_of(n).with_shape(*o.type_of(n).shape[1:])) for n in given]
    _filled(o, made, found[len(init) :], o.node("Sub", [most, rounds]), [*args, *_typed(o, [*init, *o.ins("Captured")])])


def _filled(
    o: Writer, made: Sequence[str], rows: Sequence[tuple[str, TensorType]], behind: str, first: Sequence[tuple[str, TensorType]]
) -> None:
    """Write Out: the rows that were collected, and zeros.

    Args:
        o: writer of the operator.
        made: names of what was collected.
        rows: one of each, with its type.
        behind: how many zeros.
        first: arguments of a first round.
    """
    sizes = _sizes(o, made, [kind for _, kind in rows], first)
    for name, (_, kind), size, out in zip(made, rows, sizes, _outputs(o, "Out"), strict=True):
        # The native loop leaves these rows as they are; a graph has to give them a value.
        zeros = o.node("Expand", [o.const(0, dtype=kind.dtype), o.node("Concat", [behind, size], axis=0)])
        o.nodes("Concat", [name, zeros], [out], axis=0)


def _sizes(
    o: Writer, made: Sequence[str], kinds: Sequence[TensorType], first: Sequence[tuple[str, TensorType]]
) -> list[str]:
    """Return the sizes of a row of everything that was collected; where there was no round, a first one tells those that vary."""
    if all(-1 not in kind.shape for kind in kinds):
        return [o.const(np.array(kind.shape, np.int64)) for kind in kinds]
    after, before = o.inside(), o.inside()
    told = TensorType((-1,), "int64")
    shapes = [(after.node("Slice", [after.node("Shape", [name]), o.const([1]), o.const([2**31])]), told) for name in made]
    round_ = before.region(o.attrs["body"], first)[-len(made) :]
    again = [(before.node("Shape", [name]), told) for name, _ in round_]
    there = o.node("Greater", [o.node("Squeeze", [o.node("Shape", [made[0]], start=0, end=1)]), o.const(0)])
    found = [o.fresh() for _ in made]
    o.nodes("If", [there], found, then_branch=after.body([], shapes), else_branch=before.body([], again))
    return found


def _flag(o: Writer, states: Sequence[tuple[str, TensorType]]) -> str:
    """Write the condition of a while, as a scalar."""
    ((flag, _),) = o.region(o.attrs["condition"], states)
    return o.node("Reshape", [flag, o.const(np.zeros(0))])


@in_onnx("while")
def while_onnx(o: Writer) -> None:
    """States and how many rounds there were. More rounds than the bound end the run by a place that there is not; its node says why."""
    init, captured, bound, inside = o.ins("Init"), _typed(o, o.ins("Captured")), o.attrs["bound"], o.inside()
    # Loop tests its condition before the first round, too: it is written here for Init, and in the body for the next states.
    begins = _flag(o, [*_typed(o, init), *captured])
    number, flag = (inside.fresh(), TensorType((), "int64")), (inside.fresh(), TensorType((), "bool"))
    states, count = [(inside.fresh(), o.type_of(n)) for n in init], (inside.fresh(), TensorType((1,), "int64"))
    found = inside.region(o.attrs["body"], [*states, *captured])
    again = _flag(inside, [*found[: len(init)], *captured])
    one = o.const([1])
    # Once the bound is reached, the 1 that is counted comes from behind the end of [1]: a runtime stops there, and says the node's name.
    if bound:
        over = inside.node("Cast", [inside.node("GreaterOrEqual", [number[0], o.const([bound])])], to_=7)
        one = inside.node("Gather", [one, over], name=f"while: its condition still holds after {bound} rounds")
    counted = inside.node("Add", [count[0], one])
    rows = found[len(init) :]
    body = inside.body([number, flag, *states, count], [(again, flag[1]), *found[: len(init)], (counted, count[1]), *rows])
    (rounds,) = _outputs(o, "Count") or [o.fresh()]
    made = [o.fresh() for _ in rows]
    # The empty name is a Loop without a number of rounds: the condition alone ends it.
    o.nodes("Loop", ["", begins, *init, o.const([0])], [*_outputs(o, "Final"), rounds, *made], body=body)
    if rows:
        _filled(o, made, rows, o.node("Sub", [o.const([bound]), rounds]), [*_typed(o, init), *captured])


@in_onnx("cond")
def cond_onnx(o: Writer) -> None:
    """If: each branch is written inside."""
    captured = _typed(o, o.ins("Captured"))
    branches = []
    for name in ("yes", "no"):
        inside = o.inside()
        branches.append(inside.body([], inside.region(o.attrs[name], captured)))
    o.nodes("If", [o.x("Condition")], _outputs(o, "Out"), then_branch=branches[0], else_branch=branches[1])
