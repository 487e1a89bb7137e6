"""fold_constants: an op whose inputs are the same number everywhere, known now, becomes the fill_constant of its result.

Results are computed with the rounding of the kernels: one IEEE operation after the other, in the element type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, TensorType
from pe_cli.graph.rewrite import Rewriter
from pe_cli.program.ir import Operator, Program, Role

NAME = "fold_constants"
Number = Any  # a NumPy scalar


def _scale(values: Sequence[Number], attrs: dict[str, Any]) -> Number:
    (x,) = values
    bias = attrs["bias"] if attrs["bias_after_scale"] else attrs["bias"] * attrs["scale"]
    kind = type(x)
    return kind(attrs["scale"]) * x + kind(bias)


def _sum(values: Sequence[Number], attrs: dict[str, Any]) -> Number:
    del attrs
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


RULES: dict[str, Callable[[Sequence[Number], dict[str, Any]], Number]] = {
    "scale": _scale,
    "sum": _sum,
    "assign": lambda values, attrs: values[0],
    "elementwise_add": lambda values, attrs: values[0] + values[1],
    "elementwise_sub": lambda values, attrs: values[0] - values[1],
    "elementwise_mul": lambda values, attrs: values[0] * values[1],
    "elementwise_div": lambda values, attrs: values[0] / values[1],
    "sqrt": lambda values, attrs: np.sqrt(values[0]),
    "square": lambda values, attrs: values[0] * values[0],
    "relu": lambda values, attrs: type(values[0])(0) if values[0] <= 0 else values[0],
}


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fewer constants to compute, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    known: dict[str, Number] = {}
    done = 0
    for place, op in enumerate(r.ops):
        assert op is not None
        found = _value(r, op, known)
        if found is None:
            continue
        name, value = found
        known[name] = value
        if op.type != "fill_constant":
            kind = r.block.var(name).type
            attrs = {"shape": list(kind.shape), "dtype": kind.dtype, "value": float(value)}
            made = Operator("fill_constant", {}, {"Out": [name]}, attrs, op.role, op.role_vars, op.at, op.scope)
            done += r.replace([place], made)
    return (r.finish() if done else program), f"{NAME}: {done} ops became constants"


def _value(r: Rewriter, op: Operator, known: dict[str, Number]) -> tuple[str, Number] | None:
    """Return the output of an op and the number that all its elements are, None where that is not known."""
    names = op.output_names()
    if len(names) != 1 or op.role is Role.LOSS or r.writer(names[0]) is None or r.block.var(names[0]).persistable:
        return None
    kind: TensorType = r.block.var(names[0]).type
    if not kind.known or kind.dtype not in FLOATS:
        return None
    make = np.dtype(kind.dtype).type
    if op.type in ("fill_constant", "fill_like"):
        value = make(op.attrs["value"])
    elif op.type in RULES and all(type(known.get(n)) is make for n in op.input_names()):
        with np.errstate(all="ignore"):
            value = RULES[op.type]([known[n] for n in op.input_names()], op.attrs)
    else:
        return None
    return (names[0], value) if np.isfinite(value) else None
