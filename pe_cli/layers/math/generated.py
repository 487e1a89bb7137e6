"""Layers that are made of a table: elementwise_* and reduce_*."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable

# --- elementwise ----------------------------------------------------------------------------------------------------

ELEMENTWISE = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x y",
    "div": "x / y",
    "max": "max(x, y)",
    "min": "min(x, y)",
    "pow": "x^y",
    "mod": "x - y floor(x / y)",
    "floordiv": "floor(x / y)",
}
_ELEMENTWISE_DOC = """Combine two tensors element by element.

Out = act({formula}), where y is broadcast: its axes are those of x from `axis` on, or the last ones.

Args:
    x: any shape.
    y: axes of x in a row, or sizes of 1; dtype of x.
    axis: axis of x that y's first axis stands for; -1 aligns the last axes.
    act: name of an activation, or None.
    name: prefix of the output's name.

Returns:
    Shape and dtype of x.

Raises:
    PeError: shapes do not fit.

Source:
    fluid.layers.elementwise_{name}.
"""


def _make_elementwise(kind: str, formula: str) -> Callable[..., Variable]:
    op_name = f"elementwise_{kind}"

    def made(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
        helper = LayerHelper(op_name, name)
        return helper.activate(helper.one(op_name, {"X": x, "Y": y}, {"axis": axis}), act)

    made.__name__ = made.__qualname__ = op_name
    made.__doc__ = _ELEMENTWISE_DOC.format(formula=formula, name=kind)
    return made


for _name, _formula in ELEMENTWISE.items():
    layer(_make_elementwise(_name, _formula))


# --- reductions -----------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": "Add up",
    "mean": "Average",
    "max": "Find the largest",
    "min": "Find the smallest",
    "prod": "Multiply",
}
_REDUCE_DOC = """{verb} elements along some axes.

Args:
    input: any shape.
    dim: axis or axes, negative ones count from the last; null for all.
    keep_dim: leave an axis of size 1 in place of each.
    name: prefix of the output's name.

Returns:
    input's shape without those axes; [1] when all are gone.

Raises:
    PeError: there is no such axis.

Source:
    fluid.layers.reduce_{name}.
"""


def _make_reduction(kind: str, verb: str) -> Callable[..., Variable]:
    op_name = f"reduce_{kind}"

    def made(
        input: Variable,
        dim: int | list[int] | None = None,
        keep_dim: bool = False,
        name: str | None = None,
    ) -> Variable:
        # reduce_all decides where no axis is given; [0] is what the original writes beside it.
        axes = [0] if dim is None else as_list(dim)
        attrs = {"dim": axes, "keep_dim": keep_dim, "reduce_all": dim is None}
        return LayerHelper(op_name, name).one(op_name, {"X": input}, attrs)

    made.__name__ = made.__qualname__ = op_name
    made.__doc__ = _REDUCE_DOC.format(verb=verb, name=kind)
    return made


for _name, _verb in REDUCTIONS.items():
    layer(_make_reduction(_name, _verb))
