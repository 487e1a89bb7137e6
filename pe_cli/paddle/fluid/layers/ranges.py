"""range, arange and linspace with bounds, steps and counts that may be variables."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.fluid.constant_sizes import known_or_fed
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.dynamic_sizes import expand
from pe_cli.program.ir import Variable


def _known(layer: str, *values: Any) -> list[Any] | None:
    """Return numbers where the program alone says all of them."""
    found = [known_or_fed(layer, "a number", v, single=True) for v in values]
    return [number for number, _ in found] if all(fed is None for _, fed in found) else None


def _real(value: Any) -> Any:
    """Return a float64 variable [1]."""
    return call("cast", value, "float64") if isinstance(value, Variable) else call("fill_constant", [1], "float64", float(value))


def _counted(count: Any, start: Any, step: Any, dtype: str) -> Any:
    """Return start, start + step, ..., count of them."""
    # A running sum of ones counts as far as a step says, since no op makes a range of a length that only values know.
    ones = expand(call("fill_constant", [1], "float64", 1.0), call("cast", count, "int64"))
    steps = call("elementwise_mul", call("scale", call("cumsum", ones, 0), 1.0, -1.0), step)
    made = call("cast", call("elementwise_add", steps, start), dtype)
    made.stop_gradient = True
    return made


def range_(start: Any, end: Any, step: Any, dtype: Any) -> Any:
    """Make numbers from start up to, not including, end; each is a number or a variable [1]."""
    ensure_defaults()
    known = _known("range", start, end, step)
    if known is not None:
        return call("range", *known, as_dtype(dtype))
    first, last, by = _real(start), _real(end), _real(step)
    # In float64: in float32 the number of steps of a range such as 0 to 1 by 0.1 would depend on rounding.
    return _counted(call("ceil", call("elementwise_div", call("elementwise_sub", last, first), by)), first, by, as_dtype(dtype))


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
    """Make numbers from start up to, not including, end; from 0 up to start where there is no end; float32 where no dtype is given."""
    first, last = (0, start) if end is None else (start, end)
    return range_(first, last, step, dtype or "float32")


def linspace(start: Any, stop: Any, num: Any, dtype: Any = None) -> Any:
    """Make numbers at equal distances, both ends included; each argument is a number or a variable [1]."""
    ensure_defaults()
    kind = as_dtype(dtype or "float32")
    known = _known("linspace", start, stop, num)
    if known is not None:
        return call("linspace", *known, kind)
    first, count = _real(start), _real(num)
    # One number has no gap, and the division must not be by 0.
    gaps = call("elementwise_max", call("scale", count, 1.0, -1.0), _real(1))
    return _counted(count, first, call("elementwise_div", call("elementwise_sub", _real(stop), first), gaps), kind)


__all__ = ["arange", "linspace", "range_"]
