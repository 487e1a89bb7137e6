"""Branches, loops and arrays of tensors: programs have one block here, so they are written out when it is built.

Where the program alone says which branch is taken, only that one is appended. Where only a step knows, both are, and their
results are selected. Loops and indices must be known when the program is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.constants import sizes_of, value_of
from pe_cli.paddle.fluid.layers.selection import Switch, body, multiplex, select
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.paddle.names import missing
from pe_cli.program.ir import Variable

#: Rounds of a loop that are written out at most.
MAX_ROUNDS = 10_000


def _known(layer: str, what: Any) -> bool | None:
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
    """Return what one of two functions returns.

    Raises:
        FluidValueError: only a step knows pred, and the functions return different structures or types; a ValueError.
        NotThereYet: only a step knows pred, and a function writes to a variable from outside.
    """
    known = _known("cond", pred)
    if known is not None:
        chosen = true_fn if known else false_fn
        return None if chosen is None else chosen()
    made = []
    for fn in (true_fn, false_fn):
        with body() as part:
            made.append(None if fn is None else fn())
        if part.outer:
            message = (
                f"cond: a branch writes to '{part.outer[0]}', and only a step knows whether it is taken: not there yet"
            )
            raise NotThereYet(message, hint="return the value, or use Switch")
    return _selected(pred, *made)


def _selected(pred: Variable, yes: Any, no: Any) -> Any:
    if isinstance(yes, (list, tuple)) and isinstance(no, (list, tuple)) and len(yes) == len(no):
        return [_selected(pred, a, b) for a, b in zip(yes, no, strict=True)]
    if yes is None and no is None:
        return None
    if not isinstance(yes, Variable) or not isinstance(no, Variable) or yes.dtype != no.dtype:
        raise FluidValueError(f"cond: the functions return {yes} and {no}", hint="return tensors of one type from both")
    return select(pred, yes, no)


def case(pred_fn_pairs: Sequence[tuple[Any, Callable[[], Any]]], default: Any = None, name: str | None = None) -> Any:
    """Append the ops of the first function whose condition holds, else of default, or of the last one without default.

    Raises:
        FluidValueError: there is no pair of a condition and a function.
    """
    if not pred_fn_pairs:
        raise FluidValueError("case needs a pair of a condition and a function")
    (pred, fn), *rest = pred_fn_pairs
    otherwise = (lambda: case(rest, default)) if rest else default or fn
    return cond(pred, fn, otherwise)


def switch_case(branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None) -> Any:
    """Append the ops of the function of an index, else of default, or of the one with the largest index."""
    found: Any = branch_fns.items() if isinstance(branch_fns, dict) else branch_fns
    fns: dict[int, Any] = {}
    for place, fn in enumerate(found):
        index, chosen = fn if isinstance(fn, (tuple, list)) else (place, fn)
        fns[index] = chosen
    wanted = sizes_of("switch_case", "branch_index", branch_index, single=True)
    return (fns.get(wanted) or default or fns[max(fns)])()


def while_loop(cond: Any, body: Any, loop_vars: Any, is_test: bool = False, name: str | None = None) -> Any:
    """Append the ops of body, round after round, while cond of the variables holds; return the last ones.

    Raises:
        FluidValueError: more rounds than MAX_ROUNDS, or another number of variables; a ValueError.
    """
    state = list(loop_vars)
    for _ in range(MAX_ROUNDS):
        goes_on = _known("while_loop", cond(*state))
        if goes_on is None:
            message = "while_loop: the condition depends on what is fed, kept or drawn: not there yet"
            raise NotThereYet(message, hint="repeat a known number of times")
        if not goes_on:
            return state
        made = body(*state)
        state_after = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(state_after) != len(state):
            raise FluidValueError(f"body of while_loop returns {len(state_after)} variables for {len(state)}")
        state = state_after
    raise FluidValueError(f"while_loop is written out when the program is built: more than {MAX_ROUNDS} rounds")


class TensorArray:
    """Variables by index, for `array_write` and `array_read`.

    Args:
        dtype: of the tensors.
    """

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = dtype
        self.name = default_main_program().unique("array")
        self.items: dict[int, Variable] = {}


def create_array(dtype: Any) -> TensorArray:
    """Return an empty array of tensors."""
    return TensorArray(dtype)


def _index(layer: str, i: Any) -> int:
    return int(sizes_of(layer, "i", i, single=True))


def array_write(x: Variable, i: Any, array: TensorArray | None = None) -> TensorArray:
    """Put a copy of a tensor at a place of an array and return the array."""
    array = array or TensorArray(x.dtype)
    array.items[_index("array_write", i)] = call("assign", x)
    return array


def array_read(array: TensorArray, i: Any) -> Any:
    """Return the tensor at a place of an array.

    Raises:
        FluidValueError: there is none; a ValueError.
    """
    index = _index("array_read", i)
    if index not in array.items:
        raise FluidValueError(f"nothing was written at {index} of the array")
    return call("assign", array.items[index])


def array_length(array: TensorArray) -> Any:
    """Return one more than the last place that was written, int64 [1]."""
    return call("fill_constant", [1], "int64", max(array.items, default=-1) + 1)


def tensor_array_to_tensor(
    input: TensorArray, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Any, Any]:
    """Join the tensors of an array along an axis, a new one with use_stack; return the sizes along it too."""
    parts = [input.items[i] for i in sorted(input.items)]
    joined = call("stack", parts, axis) if use_stack else call("concat", parts, axis)
    return joined, assign(np.array([1 if use_stack else v.shape[axis] for v in parts], "int32"))


__all__ = [
    "Switch",
    "array_length",
    "array_read",
    "array_write",
    "case",
    "cond",
    "create_array",
    "multiplex",
    "switch_case",
    "tensor_array_to_tensor",
    "while_loop",
]  # fmt: skip
__getattr__ = missing("fluid.layers.control_flow", lambda: globals())
