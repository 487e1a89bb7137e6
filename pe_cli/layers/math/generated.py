"""Layers that are one op each, generated: activations, elementwise_* and reduce_*."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.layers.define.helper import ACTIVATIONS, LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.ops.define.registry import Attr, OpDef, find
from pe_cli.program.ir import Variable

#: Activations whose input is called otherwise in fluid.
_INPUT = {"softmax": "input", "log_softmax": "input"}
#: Attributes called otherwise in fluid's layer: (layer, argument) -> attribute.
_RENAMED = {("softshrink", "alpha"): "lambda"}
#: Attributes that a layer does not offer.
_HIDDEN = {"use_cudnn", "use_mkldnn", "data_format", "is_test"}

_KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD
_LISTS = {int: "list[int]", float: "list[float]", str: "list[str]"}


def _annotation(attr: Attr) -> str:
    if isinstance(attr.default, list):
        return _LISTS[type(attr.default[0])] if attr.default else "list[int]"
    return type(attr.default).__name__


def _argument(name: str, attribute: str) -> str:
    found = [a for (layer_name, a), b in _RENAMED.items() if layer_name == name and b == attribute]
    return found[0] if found else attribute


def _documented(definition: OpDef, x: str, args: Mapping[str, Attr]) -> str:
    """Return the op's doc with the layer's argument names."""

    def renamed(text: str) -> str:
        return re.sub(r"\bX(?=\b|_)", x, text)

    lines = [f"    {a}: {renamed(attr.doc or 'no unit')}; {attr.default!r} by default." for a, attr in args.items()]
    doc = renamed(definition.doc)
    for (_, argument), attribute in _RENAMED.items():
        doc = re.sub(rf"\b{attribute}\b", argument, doc) if argument in args else doc
    head, found, rest = doc.partition("\nArgs:\n")
    if not found:
        return doc
    shapes, found, rest = rest.partition("\nReturns:\n")
    first = [line for line in shapes.splitlines() if line.strip()][:1]
    body = "\n".join([*first, *lines])
    return f"{head}\nArgs:\n{body}\n\nReturns:\n{rest}" if found else f"{head}\nArgs:\n{body}\n"


def make_unary(name: str, definition: OpDef) -> Callable[..., Variable]:
    """Return a layer function for an op X -> Out: `name(x, attributes..., name=None)`.

    Args:
        name: of the layer.
        definition: its op, whose attributes become arguments.
    """
    x = _INPUT.get(name, "x")
    attrs = {_argument(name, a): attr for a, attr in definition.attrs.items() if a not in _HIDDEN}
    parameters = [inspect.Parameter(x, _KEYWORD, annotation="Variable")]
    for a, v in attrs.items():
        parameters.append(inspect.Parameter(a, _KEYWORD, default=v.default, annotation=_annotation(v)))
    parameters.append(inspect.Parameter("name", _KEYWORD, default=None, annotation="str | None"))
    signature = inspect.Signature(parameters, return_annotation="Variable")

    def made(*args: Any, **given: Any) -> Variable:
        bound = signature.bind(*args, **given)
        bound.apply_defaults()
        values = dict(bound.arguments)
        helper = LayerHelper(name, values.pop("name"))
        source = values.pop(x)
        given_attrs = {_RENAMED.get((name, a), a): v for a, v in values.items()}
        return helper.one(definition.name, {"X": source}, given_attrs)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = _documented(definition, x, attrs)
    made.__signature__ = signature  # type: ignore[attr-defined]
    return made


for _name in (name for name in ACTIVATIONS if name != "pow"):  # it takes a variable: arithmetic.py
    layer(make_unary(_name, find(_name)))


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
        axes = [0] if dim is None else as_list(dim)
        attrs = {"dim": axes, "keep_dim": keep_dim, "reduce_all": dim is None}
        return LayerHelper(op_name, name).one(op_name, {"X": input}, attrs)

    made.__name__ = made.__qualname__ = op_name
    made.__doc__ = _REDUCE_DOC.format(verb=verb, name=kind)
    return made


for _name, _verb in REDUCTIONS.items():
    layer(_make_reduction(_name, _verb))
