"""Elementary functions on CUDA, in the place of the CPU's helpers and intrinsics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.kernels.cpu.non_temporal import is_large, prefetch_row, prefetch_run
from pe_cli.kernels.cuda.intrinsics import cuda_intrinsic
from pe_cli.kernels.language import Helper, Intrinsic, T, helper
from pe_cli.kernels.math.vector_math import (
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
_TEXTS: dict[Any, Helper | Intrinsic] = {}
#: Likewise -> function of Python's that CUDA has.
_FUNCTIONS: dict[Any, Any] = {
    exp: math.exp,
    expm1: math.expm1,
    log: math.log,
    log1p: math.log1p,
    tanh: math.tanh,
    erf: math.erf,
    "sqrt": math.sqrt,
    "fabs": math.fabs,
    "copysign": math.copysign,
}


def _key(value: Helper | Intrinsic) -> Any:
    return value.name if isinstance(value, Intrinsic) else value


def replaces(original: Any) -> Callable[[Any], Helper | Intrinsic]:
    """Give a helper or intrinsic another text on CUDA, or instructions."""

    def make(fn: Any) -> Helper | Intrinsic:
        made: Helper | Intrinsic = fn if isinstance(fn, Intrinsic) else helper(fn)
        _TEXTS[_key(original)] = made
        return made

    return make


def meaning(value: Helper | Intrinsic) -> Any:
    """Return what a helper or intrinsic is on CUDA: a function of Python's, another helper, or itself."""
    key = _key(value)
    if key in _FUNCTIONS:
        return _FUNCTIONS[key]
    return _TEXTS.get(key, value)


_U32: Any = np.uint32
_I64: Any = np.int64


@helper
def quotient(a, b):
    """Return a // b of numbers from 0 to 2**32 - 1: divided in 32 bits, by some 20 instructions where 64 bits take a hundred."""
    return _I64(_U32(a) // _U32(b))


@helper
def floor(x):
    """As math.floor on the CPU, which gives an int64."""
    return int(math.floor(x))  # noqa: RUF046 - CUDA's is a float64


@helper
def ceil(x):
    """As math.ceil on the CPU, which gives an int64."""
    return int(math.ceil(x))  # noqa: RUF046 - CUDA's is a float64


@replaces(sigmoid)
def _sigmoid(x):
    # For very negative x the exponential overflows to infinity, and 1 / inf is the right result: no second form is needed.
    return T(1) / (T(1) + exp(-x))


@replaces(softplus)
def _softplus(x):
    # The exponent is never positive, so it cannot overflow, and log1p keeps the digits of small results; NaN is passed on.
    return (x if x > T(0) or x != x else T(0)) + log1p(exp(-absolute(x)))


@replaces(fma)
@cuda_intrinsic("T", "T", "T", "T")
def _fma(env, args):
    """Return a * b + c, rounded once."""
    return env.builder.fma(*args)


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
