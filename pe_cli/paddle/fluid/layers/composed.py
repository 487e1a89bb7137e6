"""Layers made of the core's: each appends ops and nothing else."""

from __future__ import annotations

import functools
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.original_names import NAMINGS
from pe_cli.paddle.fluid.naming import named
from pe_cli.program.ir import Variable
from pe_cli.program.sparse import rows_of


def call(layer: str, *args: Any, **given: Any) -> Any:
    """Append a layer of the catalogue; its outputs have the original's names."""
    ensure_defaults()
    with raised_as(FluidValueError):
        return _layer(layer)(*args, **given)


@functools.cache
def _layer(name: str) -> Any:
    fn = find(name).fn
    return named(fn, NAMINGS[name]) if name in NAMINGS else fn


def stack(x: Any, axis: int = 0) -> Any:
    """Join tensors along a new axis."""
    return call("stack", list(x) if isinstance(x, (list, tuple)) else [x], axis)


def has_nan(x: Variable) -> Any:
    """Tell whether an element is NaN: bool [1]."""
    # NaN alone differs from itself.
    return _some(_compare("not_equal", x, x))


def has_inf(x: Variable) -> Any:
    """Tell whether an element is infinite: bool [1]."""
    limit = call("fill_constant", [1], x.dtype, float("inf"))
    return _some(_compare("equal", call("abs", x), limit))


def isfinite(x: Variable) -> Any:
    """Tell whether every element is finite: bool [1]."""
    from pe_cli.paddle.fluid.layers.ops import logical_not, logical_or

    return logical_not(logical_or(has_nan(x), has_inf(x)))


def _compare(op: str, x: Variable, y: Variable) -> Variable:
    return LayerHelper(op).one(op, {"X": x, "Y": y})


def _some(x: Variable) -> Any:
    return call("reduce_any", x)


def is_empty(x: Variable, cond: Variable | None = None) -> Any:
    """Tell whether a tensor has no element: bool [1]."""
    from pe_cli.paddle.fluid.layers import ops

    # In float64, since a product of sizes may be beyond int32 and has to be 0 only where a size is.
    sizes = call("cast", call("shape", x), "float64")
    return ops.equal(call("reduce_prod", sizes), call("fill_constant", [1], "float64", 0.0), cond=cond)


def merge_selected_rows(x: Variable, name: str | None = None) -> Any:
    """Return the rows of a row-sparse gradient, each once: it is made so; any other variable is copied."""
    return x if rows_of(x.block, x.name) else call("assign", x)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Any:
    """Return the values of the rows of a row-sparse gradient: [rows, width]; any other variable is copied.

    How many there are only a step tells: the program is cut there.
    """
    rows = rows_of(x.block, x.name)
    if rows is None:
        return call("assign", x)
    helper = LayerHelper("get_tensor_from_selected_rows", name)
    return helper.one("get_tensor_from_selected_rows", {"X": x, "Rows": rows})


__all__ = [
    "get_tensor_from_selected_rows",
    "has_inf",
    "has_nan",
    "is_empty",
    "isfinite",
    "merge_selected_rows",
    "stack",
]  # fmt: skip
