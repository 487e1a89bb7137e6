"""Gradients of gradients of arithmetic, reductions and products; those of pointwise ops follow from their text (`scalar_ops`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.ops.define.second_gradients import Again, bilinear, linear, second
from pe_cli.ops.math import elementwise
from pe_cli.ops.math.scalar_ops import as_ops

# --- two tensors, one of which may be broadcast ---------------------------------------------------------------------------


def _spread(r: Again, x: str, g: str) -> str:
    """Return an operand in the shape of the result."""
    if r.type_of(x).shape == r.type_of(g).shape:
        return x
    return r.one("elementwise_add", {"X": r.like(g, 0.0), "Y": x}, {"axis": r.attrs["axis"]})


def _gathered(r: Again, slot: str, whole: str) -> str:
    """Return the sum of a gradient over the axes that an operand was broadcast along."""
    like = r.of(slot)
    if r.type_of(like).shape == r.type_of(whole).shape:
        return whole
    # elementwise_add's gradient op sums; which of its outputs is the operand depends on which of the two was the smaller one.
    return r.back("elementwise_add_grad", {"Out@GRAD": whole}, slot, like, {"axis": r.attrs["axis"]})


def _sum(sign: float) -> Callable[[Again], None]:
    def rule(r: Again) -> None:
        g = r.input("Out@GRAD")
        for slot, factor in (("X@GRAD", 1.0), ("Y@GRAD", sign)):
            if r.has(slot):
                whole = _spread(r, r.grad(slot), g)
                r.given.append((g, whole if factor == 1 else r.scaled(whole, factor)))

    return rule


second("elementwise_add")(_sum(1.0))
second("elementwise_sub")(_sum(-1.0))
bilinear("elementwise_mul")


def _quotient_back_x(g: Any, y: Any) -> Any:
    return g / y


@second("elementwise_div")
def _division(r: Again) -> None:
    g, y = r.input("Out@GRAD"), _spread(r, r.input("Y"), r.input("Out@GRAD"))
    for slot, fn, args in (("X@GRAD", _quotient_back_x, [g, y]), ("Y@GRAD", elementwise.div_back_y, [g, y, r.input("Out")])):
        if r.has(slot):
            r.instead[r.op.outputs[slot][0]] = _gathered(r, slot, as_ops(r, fn, args, g))


def _binary(back_x: Callable[..., Any], back_y: Callable[..., Any]) -> Callable[[Again], None]:
    def rule(r: Again) -> None:
        g = r.input("Out@GRAD")
        x, y = (_spread(r, r.input(slot), g) for slot in ("X", "Y"))
        for slot, fn in (("X@GRAD", back_x), ("Y@GRAD", back_y)):
            if r.has(slot):
                r.instead[r.op.outputs[slot][0]] = _gathered(r, slot, as_ops(r, fn, [g, x, y], g))

    return rule


second("elementwise_max")(_binary(elementwise.larger_back_x, elementwise.larger_back_y))
second("elementwise_min")(_binary(elementwise.smaller_back_x, elementwise.smaller_back_y))
second("elementwise_pow")(_binary(elementwise.power_back_x, elementwise.power_back_y))


# --- products, sums -------------------------------------------------------------------------------------------------------

bilinear("mul")
bilinear("matmul")
linear("reduce_sum")
linear("reduce_mean")
linear("mean")
linear("cumsum")


@second("reduce_max", "reduce_min")
def _extreme(r: Again) -> None:
    """The gradient goes where a constant mask is 1: that of a gradient is the sum over the mask."""
    g, slots = r.input("Out@GRAD"), ("X", "Out")
    # That gradient with ones for what comes in is the mask itself.
    mask = r.back(r.op.type, {**{s: r.input(s) for s in slots}, "Out@GRAD": r.like(g, 1.0)}, "X@GRAD", r.of("X@GRAD"), r.attrs)
    r.given.append((g, r.one("reduce_sum", {"X": r.times(r.grad("X@GRAD"), mask)}, r.attrs)))


@second("squared_l2_norm")
def _squares(r: Again) -> None:
    g = r.one("reshape", {"X": r.input("Out@GRAD")}, {"shape": [1]})
    r.instead[r.op.outputs["X@GRAD"][0]] = r.scaled(r.times(r.input("X"), g), 2.0)
