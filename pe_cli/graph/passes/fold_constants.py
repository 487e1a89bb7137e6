"""fold_constants: an op whose inputs are the same number everywhere, known now, becomes the fill_constant of its result.

Results are computed with the rounding of the kernels: one IEEE operation after the other, in the element type.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, TensorType
from pe_cli.graph.rewrite import Rewriter
from pe_cli.ops.define.traits import Folds
from pe_cli.program.ir import Operator, Program, Role

NAME = "fold_constants"
Number = Any  # a NumPy scalar


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
        if op.inputs:
            kind = r.block.var(name).type
            attrs = {"shape": list(kind.shape), "dtype": kind.dtype, "value": float(value)}
            made = Operator("fill_constant", {}, {"Out": [name]}, attrs, op.role, op.role_vars, op.at, op.scope)
            done += r.replace([place], made)
    return (r.finish() if done else program), f"{NAME}: {done} ops became constants"


def _value(r: Rewriter, op: Operator, known: dict[str, Number]) -> tuple[str, Number] | None:
    """Return the output of an op and the number that all its elements are, None where that is not known."""
    names = op.output_names()
    # The gradient of the loss looks like a constant but is scaled by devices later.
    if len(names) != 1 or op.role is Role.LOSS or r.writer(names[0]) is None or r.block.var(names[0]).persistable:
        return None
    kind: TensorType = r.block.var(names[0]).type
    # Element type of the result: a float64 computation rounded to float32 would give another last bit.
    if not kind.known or kind.dtype not in FLOATS:
        return None
    make = np.dtype(kind.dtype).type
    folds = op.definition.get(Folds)
    if folds is None or not (folds.alone or all(type(known.get(n)) is make for n in op.input_names())):
        return None
    with np.errstate(all="ignore"):
        value = folds.value((make,) if folds.alone else [known[n] for n in op.input_names()], op.attrs)
    # An overflow is left to the step, which reports it with the op's line.
    return (names[0], value) if np.isfinite(value) else None
