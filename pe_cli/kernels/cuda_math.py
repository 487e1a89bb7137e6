"""Elementary functions on CUDA: what the helpers and intrinsics of the CPU are there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.kernels.far import is_large, prefetch_row, prefetch_run
from pe_cli.kernels.lang import Helper, Intrinsic, T, helper
from pe_cli.kernels.vecmath import (
    absolute,
    add,
    divide,
    erf,
    exp,
    expm1,
    fma,
    log,
    log1p,
    multiply,
    sigmoid,
    softplus,
    subtract,
    tanh,
)

#: Helper or intrinsic (by name) -> its text on CUDA.
_TEXTS: dict[Any, Helper] = {}
#: Those of them that the simulator does without.
_GPU_ONLY: set[Any] = set()
#: Likewise -> (function on the GPU, function in the simulator, where Python's math would raise on overflow).
_FUNCTIONS: dict[Any, tuple[Any, Any]] = {
    exp: (math.exp, np.exp),
    expm1: (math.expm1, np.expm1),
    log: (math.log, np.log),
    log1p: (math.log1p, np.log1p),
    tanh: (math.tanh, np.tanh),
    erf: (math.erf, math.erf),
    "sqrt": (math.sqrt, np.sqrt),
    "fabs": (math.fabs, np.abs),
    "copysign": (math.copysign, np.copysign),
}


def _key(value: Helper | Intrinsic) -> Any:
    return value.name if isinstance(value, Intrinsic) else value


def replaces(original: Any, *, simulated: bool = True) -> Callable[[Any], Helper]:
    """Give a helper or intrinsic another text on CUDA; in the simulator too, unless it has to see `cuda`."""

    def make(fn: Any) -> Helper:
        made: Helper = helper(fn)
        _TEXTS[_key(original)] = made
        if not simulated:
            _GPU_ONLY.add(_key(original))
        return made

    return make


def meaning(value: Helper | Intrinsic, simulated: bool) -> Any:
    """Return what a helper or intrinsic is on CUDA: a function of Python's, another helper, or itself."""
    key = _key(value)
    if key in _FUNCTIONS:
        return _FUNCTIONS[key][int(simulated)]
    return value if simulated and key in _GPU_ONLY else _TEXTS.get(key, value)


@replaces(sigmoid)
def _sigmoid(x):
    return T(1) / (T(1) + exp(-x))


@replaces(softplus)
def _softplus(x):
    return (x if x > T(0) or x != x else T(0)) + log1p(exp(-absolute(x)))


@replaces(fma)
def _fma(a, b, c):
    return a * b + c


@replaces(add)
def _add(a, b):
    return a + b


@replaces(subtract)
def _subtract(a, b):
    return a - b


@replaces(multiply)
def _multiply(a, b):
    return a * b


@replaces(divide)
def _divide(a, b):
    return a / b


@replaces(is_large)
def _is_large(count):
    """Say that nothing is to be asked for: other threads compute while one waits."""
    return False


@replaces(prefetch_row)
def _no_row(x, row, width):
    pass


@replaces(prefetch_run)
def _no_run(x, at, count):
    pass
