"""py_func: a Python function as a layer."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.core.errors import Span
from pe_cli.ops.define.lod import Leveled
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, to_lengths
from pe_cli.paddle.fluid.naming import use
from pe_cli.program.ir import Variable


def py_func(
    func: Callable[..., Any],
    x: Any,
    out: Any,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Any = None,
) -> Any:
    """Call a Python function in every step, between the native parts of it.

    On several devices it is called once for each, with that device's part of the batch, one after the other.

    Args:
        func: is given a LoDTensor for each x; returns an array, a LoDTensor, or several, for out; nothing where out is None. Sequences
            come and go with them where there is no backward_func.
        x: a variable, or several, or None.
        out: a variable, or several, made with `create_var` and the shape and dtype that func returns; a size of -1 is what func says,
            and with backward_func that of the same axis of the first x that has -1 there. What no layer reads may have any shape. None
            where func returns nothing.
        backward_func: is given x, out and the gradients of out (None where there is none); returns the gradients of x (None for 0).
            Without it no gradient flows through.
        skip_vars_in_backward_input: variables of x and out that backward_func is not given.

    Returns:
        out.

    Raises:
        FluidTypeError: func or backward_func is no function, or x or out are no variables; a TypeError.
        FluidValueError: an out without a shape, or a size that nothing tells; a variable to skip that is neither x nor out; a
            ValueError.
    """
    ensure_defaults()
    use({"py_func": 1})
    for function, what in ((func, "func"), (backward_func, "backward_func")):
        if not callable(function) and (what == "func" or function is not None):
            raise FluidTypeError(f"py_func: {what} must be a function, got {function!r:.60}")
    xs, outs, skipped = _variables(x, "x"), _variables(out, "out"), _variables(skip_vars_in_backward_input, "skip")
    if backward_func is not None and len({v.name for v in xs}) < len(xs):
        raise FluidValueError("py_func: a variable is given twice as x, but has one gradient", hint="give it once")
    for v in skipped:
        if v.name not in {u.name for u in (*xs, *outs)}:
            raise FluidValueError(f"py_func: '{v.name}' to skip is neither x nor out")
    attrs = {
        "forward": _on_tensors(func),
        "backward": None if backward_func is None else _on_tensors(backward_func),
        "skip": [v.name for v in skipped],
        "shapes": [list(v.shape) for v in outs],
        "dtypes": [v.dtype for v in outs],
        "sources": [_source(v, xs, alone=backward_func is None) for v in outs],
    }
    with raised_as(FluidValueError):
        # Without any variable the current program is meant.
        block = (xs or outs)[0].block if xs or outs else _block()
        block.append_op("py_func", {"X": xs}, {"Out": outs}, attrs, at=_caller())
    for v in outs:
        # Without a backward function nothing can flow back.
        v.stop_gradient = v.stop_gradient or backward_func is None
    return out


def _block() -> Any:
    from pe_cli.paddle.fluid.framework import default_main_program

    return default_main_program().global_block()


def _variables(given: Any, what: str) -> list[Variable]:
    found = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    for each in found:
        if not isinstance(each, Variable):
            raise FluidTypeError(f"py_func: {what} takes variables, got {each!r:.60}")
    return found


def _source(v: Variable, xs: list[Variable], *, alone: bool) -> int:
    """Return the input that gives an output's sizes of -1; -1 where none does and the function says them `alone`."""
    if getattr(v, "undefined", False) or not v.shape:
        raise FluidValueError(f"py_func: '{v.name}' has no shape", hint="give create_var a shape")
    # Sizes of -1 are only known in a step; the first input that has them at the same axes says them.
    open_axes = [axis for axis, size in enumerate(v.shape) if size == -1]
    for i, x in enumerate(xs):
        if all(axis < len(x.shape) and x.shape[axis] == -1 for axis in open_axes):
            return i
    if open_axes and alone:
        return -1
    if open_axes:
        raise FluidValueError(f"py_func: no x has the sizes of -1 of '{v.name}', {v.type}", hint="give every size of it")
    return 0


def _on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays, or of those with sequences, that calls one of LoDTensors; None stays None."""

    def call(*arrays: np.ndarray[Any, Any] | Leveled | None) -> Any:
        found = function(*[_tensor(a) for a in arrays])
        return [_leveled(v) for v in found] if isinstance(found, (list, tuple)) else _leveled(found)

    call.__name__ = getattr(function, "__name__", type(function).__name__)
    return call


def _tensor(value: np.ndarray[Any, Any] | Leveled | None) -> LoDTensor | None:
    if isinstance(value, Leveled):
        return LoDTensor(value.array, to_lengths(value.lod))
    return None if value is None else LoDTensor(value)


def _leveled(value: Any) -> Any:
    return Leveled(value.array, tuple(value.lod())) if isinstance(value, LoDTensor) and value.lod() else value


def _caller() -> Span:
    """Return the line of the script that called py_func."""
    frame = sys._getframe(2)
    # Out of the frames of this package: an error in the function is reported at the script's line.
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(f"{__package__}."):
        frame = frame.f_back
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).rstrip("\n")
    column = len(text) - len(text.lstrip()) + 1
    return Span(frame.f_code.co_filename, frame.f_lineno, column, max(1, len(text.strip())), text)


__all__ = ["py_func"]
