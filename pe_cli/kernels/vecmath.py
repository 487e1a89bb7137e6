"""Elementary functions that vectorise inside plain loops: polynomials for float32, the C library for float64.

Accuracy in float32, in units in the last place (ulp) of the true value, measured by tests/kernels/test_vecmath.py. NaN stays
NaN everywhere. Results below the normal range keep at least the absolute accuracy of half the smallest normal number.
"""

from __future__ import annotations

import math
from typing import Any

from pe_cli.kernels.lang import T, helper, helper_by_type, intrinsic


def _unary(llvm_name: str) -> Any:
    @intrinsic("T", "T", name=llvm_name)
    def emit(env: Any, args: list[Any]) -> Any:
        suffix = "f32" if env.dtype == "float32" else "f64"
        return env.builder.call(env.function(f"llvm.{llvm_name}.{suffix}", env.element, [env.element]), args)

    return emit


#: Round to the nearest integer, halves to even.
nearest = _unary("nearbyint")
square_root = _unary("sqrt")
absolute = _unary("fabs")


@intrinsic("T", "T", "T", "T")
def fma(env: Any, args: list[Any]) -> Any:
    """Return a*b + c, rounded once where the processor can."""
    suffix = "f32" if env.dtype == "float32" else "f64"
    return env.builder.call(env.function(f"llvm.fmuladd.{suffix}", env.element, [env.element] * 3), args)


@intrinsic("T", "T", "T")
def copysign(env: Any, args: list[Any]) -> Any:
    """Return the magnitude of the first with the sign of the second."""
    suffix = "f32" if env.dtype == "float32" else "f64"
    return env.builder.call(env.function(f"llvm.copysign.{suffix}", env.element, [env.element] * 2), args)


@intrinsic("int32", "float32")
def bits_of(env: Any, args: list[Any]) -> Any:
    """Return the bits of a float32."""
    from llvmlite import ir

    return env.builder.bitcast(args[0], ir.IntType(32))


@intrinsic("float32", "int32")
def from_bits(env: Any, args: list[Any]) -> Any:
    """Return the float32 with these bits."""
    return env.builder.bitcast(args[0], env.type_of("float32"))


@intrinsic("int32", "T")
def truncate(env: Any, args: list[Any]) -> Any:
    """Return a number without its fraction, as int32; it must fit."""
    from llvmlite import ir

    return env.builder.fptosi(args[0], ir.IntType(32))


@intrinsic("float32", "int32")
def real_of(env: Any, args: list[Any]) -> Any:
    """Return an int32 as float32."""
    return env.builder.sitofp(args[0], env.type_of("float32"))


@intrinsic("int32", "int32")
def exponent_bits(env: Any, args: list[Any]) -> Any:
    """Return the bits of the float32 2**n, for -127 < n < 128."""
    from llvmlite import ir

    i32 = ir.IntType(32)
    return env.builder.shl(env.builder.add(args[0], ir.Constant(i32, 127)), ir.Constant(i32, 23))
