"""common_subexpressions: of ops that compute the same from the same, the first does it for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from pe_cli.graph.rewrite import Rewriter
from pe_cli.ops.define.traits import Random
from pe_cli.program.ir import EMPTY, Operator, Program, Role

NAME = "common_subexpressions"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program without repeated ops, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    same: dict[str, str] = {}
    version: Counter[str] = Counter()
    first: dict[Any, Operator] = {}
    done = 0
    for place, op in enumerate(r.ops):
        assert op is not None
        # Inputs are renamed first, so that chains of repetitions collapse in one walk.
        op.inputs = {s: [same.get(n, n) for n in names] for s, names in op.inputs.items()}
        key = _key(r, op, version)
        # Versions count writes: the same name before and after an update is two values.
        version.update(op.output_names())
        if key is None or not _replaceable(r, op):
            continue
        before = first.setdefault(key, op)
        if before is op:
            continue
        for slot, names in op.outputs.items():
            for name, stays in zip(names, before.outputs[slot], strict=True):
                same[name] = stays
                r.vanish([name], stays)
        r.ops[place] = None
        done += 1
    return (r.finish() if done else program), f"{NAME}: {done} ops repeated others"


def _key(r: Rewriter, op: Operator, version: Counter[str]) -> Any:
    """Return what two ops that compute the same have in common; None for ops that never do.

    Sizes of the results count: the gradient of a sum has those of what was summed, which it does not read.
    """
    computes = op.role in (Role.FORWARD, Role.BACKWARD) and not op.role_vars and op.outputs
    if any(map(callable, op.attrs.values())):  # a Python function may count its calls
        return None
    if not computes or op.definition.has(Random) or EMPTY in {n for names in op.outputs.values() for n in names}:
        return None
    # Slots in order of name: the same op may list them in another order.
    ins = tuple((s, tuple((n, version[n]) for n in names)) for s, names in sorted(op.inputs.items()))
    kinds = {n: r.block.var(n).type for n in (*op.input_names(), *op.output_names())}
    if not all(kinds[n].known for n in op.output_names()) and all(kinds[n].known for n in op.input_names()):
        return None  # only what is not read knows how many rows there are
    outs = tuple((s, tuple(kinds[n] for n in names)) for s, names in sorted(op.outputs.items()))
    # `repr`, because attributes may be lists, which no dictionary takes as keys.
    return op.type, ins, outs, tuple(sorted((k, repr(v)) for k, v in op.attrs.items()))


def _replaceable(r: Rewriter, op: Operator) -> bool:
    """Whether every output of an op may be another variable for its readers."""
    return not any(r.needed(n, r.readers(n)) not in ("", r.END) for n in op.output_names())
