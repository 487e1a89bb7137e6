"""Branches: of functions one runs in a step. Where the program alone says which, only that one is appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.layers.control import loops
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.constant_sizes import BRANCHES, sizes_of, value_of
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import equal
from pe_cli.paddle.fluid.layers.original_counts import branches
from pe_cli.paddle.fluid.layers.utils import flatten, like
from pe_cli.paddle.fluid.naming import rename, use
from pe_cli.program.ir import Variable, agrees
from pe_cli.program.outline import Outline


def known(layer: str, what: Any) -> bool | None:
    """Return a condition's value, None where only a step knows it.

    Raises:
        FluidTypeError: it is neither a variable nor a bool; a TypeError.
        FluidValueError: it is more than one bool; a ValueError.
    """
    if isinstance(what, bool):
        return what
    if not isinstance(what, Variable):
        raise FluidTypeError(f"{layer}: a condition is a bool variable, got {type(what).__name__}")
    found = value_of(what)
    if found is None:
        return None
    if found.size != 1:
        raise FluidValueError(f"{layer}: a condition is one bool, '{what.name}' is {what.type}")
    return bool(found.ravel()[0])


def cond(pred: Any, true_fn: Any = None, false_fn: Any = None, name: str | None = None) -> Any:
    """Return what one of two functions returns; a step runs that one alone.

    Raises:
        FluidValueError: only a step knows pred, and the functions return different structures or types; a ValueError.
    """
    taken_one = known("cond", pred)
    functions = sum(fn is not None for fn in (true_fn, false_fn))
    if taken_one is not None:
        chosen = true_fn if taken_one else false_fn
        taken = None if chosen is None else chosen()
        count = sum(isinstance(v, Variable) for v in flatten(taken))
        use(branches(count, functions))
        use({"_generated_var": count})
        return taken
    block = default_main_program().global_block()
    parts, made = [], []
    for fn in (true_fn, false_fn):
        # Both branches are appended behind each other and cut out again: layers append to the block that is current, and need no other way.
        parts.append(Outline(block))
        parts[-1].varied = set()
        BRANCHES.append(parts[-1])
        try:
            made.append(None if fn is None else fn())
        finally:
            BRANCHES.pop()
        # Before the second is cut out, while the variables of both are in the block.
        if len(made) == 2:
            _check_alike(*made)
        parts[-1].cut()
    rows = [[v for v in flatten(m) if v is not None] for m in made]
    with raised_as(FluidValueError):
        varied = {name for part in parts for name in part.varied or ()}
        outs = loops.branch(pred, parts[0], parts[1], (rows[0], rows[1]), varied)
    use(branches(len(outs), functions))
    for out in outs:
        rename(out.block, out, unique_name.generate("_generated_var"))
    return like(made[0], iter(outs))


def _check_alike(yes: Any, no: Any) -> None:
    """Check that two branches return the same: called before the second is cut out, so that its variables are there."""
    pairs = zip(flatten(yes), flatten(no), strict=False)
    same = len(flatten(yes)) == len(flatten(no)) and all(
        (a is None and b is None) or (isinstance(a, Variable) and isinstance(b, Variable) and agrees(a.type, b.type))
        for a, b in pairs
    )
    if not same:
        raise FluidValueError(f"cond: the functions return {yes} and {no}", hint="return tensors of one type from both")


def case(pred_fn_pairs: Sequence[tuple[Any, Callable[[], Any]]], default: Any = None, name: str | None = None) -> Any:
    """Run the first function whose condition holds, else default, or the last one without default.

    Raises:
        FluidValueError: there is no pair of a condition and a function.
    """
    if not pred_fn_pairs:
        raise FluidValueError("case needs a pair of a condition and a function")
    use({"case": 1})
    return _first_that_holds(pred_fn_pairs, default)


def _first_that_holds(pred_fn_pairs: Sequence[tuple[Any, Callable[[], Any]]], default: Any) -> Any:
    (pred, fn), *rest = pred_fn_pairs
    # Without default the last function runs if no condition before holds, so its own need not be asked.
    if not rest and default is None and known("case", pred) is None:
        return fn()
    otherwise = (lambda: _first_that_holds(rest, default)) if rest else default or fn
    return cond(pred, fn, otherwise)


def switch_case(branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None) -> Any:
    """Run the function of an index, else default, or the one with the largest index.

    Raises:
        FluidTypeError: the index is neither a number nor a variable; a TypeError.
    """
    found: Any = branch_fns.items() if isinstance(branch_fns, dict) else branch_fns
    fns: dict[int, Any] = {}
    for place, fn in enumerate(found):
        index, chosen = fn if isinstance(fn, (tuple, list)) else (place, fn)
        fns[index] = chosen
    # The one with the largest index stands for all others, as in the original.
    rest = fns if default else {index: fn for index, fn in fns.items() if index != max(fns)}
    otherwise = default or fns[max(fns)]
    use({"switch_case": 1, "cast": int(isinstance(branch_index, Variable) and branch_index.dtype != "int64")})
    if not isinstance(branch_index, Variable) or value_of(branch_index) is not None:
        wanted = sizes_of("switch_case", "branch_index", branch_index, single=True)
        return fns.get(wanted, otherwise)()
    pairs = [(equal(branch_index, call("fill_constant", [1], branch_index.dtype, float(i))), fn) for i, fn in rest.items()]
    return _first_that_holds(pairs, otherwise)


__all__ = ["case", "cond", "known", "switch_case"]
