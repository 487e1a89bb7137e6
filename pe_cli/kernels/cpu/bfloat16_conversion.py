"""LLVM instructions that convert between bfloat16 and float32.

A number of bfloat16 is the upper half of one of float32. Rounding is to the nearest, of ties to the even one; a NaN stays one, of its
sign, as the lower half alone might have made it a NaN. Both are operations on integers that vectorise, and give the same bits on every
processor: the instructions that some have for it take denormal numbers for zeros.
"""

from __future__ import annotations

from typing import Any


def widen_bfloat16(builder: Any, half: Any) -> Any:
    """Return the float32 that a bfloat16 is."""
    from llvmlite import ir

    word = builder.shl(builder.zext(half, ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
    return builder.bitcast(word, ir.FloatType())


def round_bfloat16(builder: Any, number: Any) -> Any:
    """Return the bfloat16 next to a float32, as an integer of 16 bits."""
    from llvmlite import ir

    kind = ir.IntType(32)
    word = builder.bitcast(number, kind)
    upper = builder.lshr(word, ir.Constant(kind, 16))
    odd = builder.and_(upper, ir.Constant(kind, 1))
    rounded = builder.lshr(builder.add(builder.add(word, ir.Constant(kind, 0x7FFF)), odd), ir.Constant(kind, 16))
    size = builder.and_(word, ir.Constant(kind, 0x7FFFFFFF))
    nan = builder.icmp_unsigned(">", size, ir.Constant(kind, 0x7F800000))
    quiet = builder.or_(builder.and_(upper, ir.Constant(kind, 0x8000)), ir.Constant(kind, 0x7FC0))
    return builder.trunc(builder.select(nan, quiet, rounded), ir.IntType(16))


