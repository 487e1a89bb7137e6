"""Layers that compare, and combine truths and bits: less_than, ..., logical_and, ..., bitwise_and, ..., reduce_all, reduce_any."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable

COMPARISONS = {
    "less_than": "less",
    "less_equal": "less, or the same",
    "greater_than": "greater",
    "greater_equal": "greater, or the same",
    "equal": "the same",
    "not_equal": "another",
}
_COMPARISON_DOC = """Tell where the first of two tensors is {what}.

Args:
    x: any shape, numbers.
    y: shape and dtype of x, or sizes of 1.
    name: prefix of the output's name.

Returns:
    Shape of x, bool; gradients stop there.

Raises:
    PeError: shapes or dtypes do not fit.

Source:
    fluid.layers.{name}.
"""
LOGIC = {"logical_and": "both are true", "logical_or": "one is true, or both", "logical_xor": "exactly one is true"}
BITWISE = {
    "bitwise_and": "Keep the bits that both of two tensors have.",
    "bitwise_or": "Keep the bits that one of two tensors has, or both.",
    "bitwise_xor": "Keep the bits that exactly one of two tensors has.",
    "bitwise_left_shift": "Shift the bits of one tensor to the left, by the numbers of another.",
    "bitwise_right_shift": "Shift the bits of one tensor to the right, by the numbers of another; the sign stays.",
}
_BITWISE_DOC = """{what}

Args:
    x: any shape, int64, int32, uint8 or bool.
    y: shape and dtype of x, or sizes of 1.
    name: prefix of the output's name.

Returns:
    Shape and dtype of x; gradients stop there.

Raises:
    PeError: shapes or dtypes do not fit.

Source:
    numpy.{name}.
"""
_LOGIC_DOC = """Tell where {what} of two tensors.

Args:
    x: any shape, bool.
    y: shape of x, bool.
    name: prefix of the output's name.

Returns:
    Shape of x, bool.

Raises:
    PeError: shapes do not fit, or an input is not bool.

Source:
    fluid.layers.{name}.
"""


def _make(op: str, doc: str, what: str) -> Callable[..., Variable]:
    def made(x: Variable, y: Variable, name: str | None = None) -> Variable:
        return LayerHelper(op, name).one(op, {"X": x, "Y": y})

    # The catalogue reads name, signature and docstring of a layer, so that a function made of a table needs all three.
    made.__name__ = made.__qualname__ = op
    made.__doc__ = doc.format(what=what, name=op)
    return made


for _name, _what in COMPARISONS.items():
    layer(_make(_name, _COMPARISON_DOC, _what))
for _name, _what in LOGIC.items():
    layer(_make(_name, _LOGIC_DOC, _what))
for _name, _what in BITWISE.items():
    layer(_make(_name, _BITWISE_DOC, _what))


_REDUCED = {"reduce_all": ("all elements are", "reduce_min"), "reduce_any": ("one element is", "reduce_max")}
_REDUCED_DOC = """Tell whether {what} true, along some axes.

Args:
    input: any shape, bool; numbers other than 0 are true.
    dim: axis or axes, negative ones count from the last; null for all.
    keep_dim: leave an axis of size 1 in place of each.
    name: prefix of the output's name.

Returns:
    input's shape without those axes, bool; [1] when all are gone. Gradients stop there.

Raises:
    PeError: there is no such axis.

Source:
    fluid.layers.{name}.
"""


def _make_reduced(kind: str, what: str, op: str) -> Callable[..., Variable]:
    def made(input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None) -> Variable:
        helper = LayerHelper(kind, name)
        attrs = {"dim": [0] if dim is None else as_list(dim), "keep_dim": keep_dim, "reduce_all": dim is None}
        # Reductions are of floating-point numbers: truths are 0 and 1 there.
        truth = input if input.dtype == "bool" else helper.one("cast", {"X": input}, {"out_dtype": "bool"})
        numbers = helper.one("cast", {"X": truth}, {"out_dtype": "float32"})
        return helper.one("cast", {"X": helper.one(op, {"X": numbers}, attrs)}, {"out_dtype": "bool"})

    made.__name__ = made.__qualname__ = kind
    made.__doc__ = _REDUCED_DOC.format(what=what, name=kind)
    return made


for _name, (_what, _op) in _REDUCED.items():
    layer(_make_reduced(_name, _what, _op))
