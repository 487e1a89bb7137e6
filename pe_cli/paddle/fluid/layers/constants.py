"""Sizes that scripts give as variables: programs have fixed sizes here, so their values must be known when it is built."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.errors import NotThereYet
from pe_cli.program.ir import Operator, Variable


def value_of(v: Variable) -> np.ndarray[Any, Any] | None:
    """Return the value of a variable where the program alone says it: constants and shapes."""
    writers = [op for op in v.block.ops if v.name in op.output_names()]
    if len(writers) != 1:
        return None
    return _evaluate(v, writers[0])


def _evaluate(v: Variable, op: Operator) -> np.ndarray[Any, Any] | None:
    if op.type == "fill_constant":
        return np.full(op.attrs["shape"], op.attrs["value"], v.type.numpy)
    if op.type == "assign_value":
        return np.array(op.attrs["values"], v.type.numpy).reshape(op.attrs["shape"])
    sources = [v.block.vars[n] for n in op.input_names()]
    if op.type == "shape" and sources[0].type.known:
        return np.array(sources[0].shape, v.type.numpy)
    if op.type in ("cast", "assign", "slice"):
        found = value_of(sources[0])
        if found is None or op.type != "slice":
            return None if found is None else found.astype(v.type.numpy)
        for axis, start, end in zip(op.attrs["axes"], op.attrs["starts"], op.attrs["ends"], strict=True):
            found = np.take(found, range(*slice(start, end).indices(found.shape[axis])), axis)
        return found
    return None


def sizes_of(layer: str, argument: str, value: Any, *, single: bool = False) -> Any:
    """Return sizes as integers, None as -1, variables by their constant values.

    Args:
        layer: for errors.
        argument: for errors.
        value: a variable, an array, or a list of numbers and variables.
        single: one number is wanted.

    Raises:
        NotThereYet: a variable whose value only a step knows.
    """
    if isinstance(value, Variable):
        found = value_of(value)
        if found is None:
            message = (
                f"{layer}: {argument} is the variable '{value.name}', whose value only a step knows: not there yet"
            )
            raise NotThereYet(message, hint="give numbers, or a constant")
        numbers = found.ravel().tolist()
        return numbers[0] if single and len(numbers) == 1 else numbers
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple, range)):
        return [
            -1
            if v is None
            else sizes_of(layer, argument, v, single=True)
            if isinstance(v, (Variable, np.generic))
            else v
            for v in value
        ]
    return value
