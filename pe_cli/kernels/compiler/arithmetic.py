"""Casts, operators and functions of numbers, as LLVM instructions: what numba makes of them with the error model of NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from pe_cli.kernels.compiler.value_kinds import (
    INTEGERS,
    REALS,
    Kind,
    Unclear,
    computed_in,
    is_number,
    llvm_type,
    signed,
    together,
)


class Value(NamedTuple):
    """A value of a kernel.

    Args:
        kind: see `value_kinds`.
        ir: LLVM's; None while only kinds are looked for.
        literal: the number, where the text or a global says it.
    """

    kind: Kind
    ir: Any
    literal: Any = None


def constant(value: Any, kind: Kind = None) -> Value:
    """Return a number as a value, of the kind that numba gives it unless another is told."""
    if kind is None:
        kind = "bool" if isinstance(value, bool) else "float64" if isinstance(value, float) else "int64"
        # Only uint64 holds such a literal, for example a mask with the highest bit.
        if kind == "int64" and value >= 1 << 63:
            kind = "uint64"
    number = float(value) if kind in REALS else int(value)
    return Value(kind, ir.Constant(llvm_type(kind), number), value)


def cast(b: Any, value: Value, kind: Kind) -> Value:  # noqa: PLR0911 - one case per pair of kinds
    """Return a value as one of another kind.

    Raises:
        Unclear: it cannot become one.
    """
    of = value.kind
    if of == kind:
        return value
    if isinstance(of, tuple) and isinstance(kind, tuple) and len(of) == len(kind):
        parts = [cast(b, Value(k, b.extract_value(value.ir, i)), kind[i]) for i, k in enumerate(of)]
        return packed(b, parts)
    if not (is_number(of) and is_number(kind)):
        raise Unclear(f"{of} as {kind}")
    # A literal remains one, because a power, the index of a tuple and the step of a range look for constants later.
    if value.literal is not None and (kind in REALS or (of not in REALS and kind != "bool")):
        return constant(value.literal, kind)
    to = llvm_type(kind)
    if kind == "bool":
        zero = ir.Constant(llvm_type(of), 0)
        # Unordered, so that NaN is true, as in Python.
        return Value(kind, b.fcmp_unordered("!=", value.ir, zero) if of in REALS else b.icmp_unsigned("!=", value.ir, zero))
    if of in REALS and kind in REALS:
        return Value(kind, (b.fptrunc if kind == "float32" else b.fpext)(value.ir, to))
    if of in REALS:
        return Value(kind, (b.fptosi if signed(kind) else b.fptoui)(value.ir, to))
    if kind in REALS:
        return Value(kind, (b.sitofp if signed(of) else b.uitofp)(value.ir, to))
    wide, narrow = INTEGERS[str(kind)], INTEGERS[str(of)]
    if wide == narrow:
        return Value(kind, value.ir)
    return Value(kind, (b.trunc if wide < narrow else b.sext if signed(of) else b.zext)(value.ir, to))


def packed(b: Any, values: list[Value]) -> Value:
    """Return a tuple of values."""
    kind = tuple(v.kind for v in values)
    whole: Any = ir.Constant(llvm_type(kind), ir.Undefined)
    for i, value in enumerate(values):
        whole = b.insert_value(whole, value.ir, i)
    return Value(kind, whole)


def binary(b: Any, operation: str, x: Value, y: Value) -> Value:
    """Return the result of an operator.

    Args:
        b: builder.
        operation: name of an `ast` operator.
        x, y: operands.

    Raises:
        Unclear: the language has no such operation.
    """
    if operation == "Pow":
        return _power(b, x, y)
    kind = computed_in(operation, x.kind, y.kind)
    left, right = cast(b, x, kind).ir, cast(b, y, kind).ir
    if kind in REALS:
        if operation in ("FloorDiv", "Mod"):
            return Value(kind, _real_divided(b, operation, kind, left, right))
        reals = {"Add": b.fadd, "Sub": b.fsub, "Mult": b.fmul, "Div": b.fdiv}
        if operation not in reals:
            raise Unclear(f"{operation} of {kind}")
        return Value(kind, reals[operation](left, right))
    if operation in ("FloorDiv", "Mod"):
        return Value(kind, _divided(b, operation, kind, left, right))
    whole = {
        "Add": b.add, "Sub": b.sub, "Mult": b.mul, "LShift": b.shl, "RShift": b.ashr if signed(kind) else b.lshr,
        "BitAnd": b.and_, "BitOr": b.or_, "BitXor": b.xor,
    }  # fmt: skip
    if operation not in whole:
        raise Unclear(f"{operation} of {kind}")
    return Value(kind, whole[operation](left, right))


def _divided(b: Any, operation: str, kind: Kind, x: Any, y: Any) -> Any:
    """Return a quotient that is rounded down, or what is left of it; 0 where the divisor is, and of the least number by -1."""
    if b.dry:
        return None
    first = operation == "FloorDiv"
    zero, one = ir.Constant(x.type, 0), ir.Constant(x.type, 1)
    # LLVM leaves both cases undefined, and x86 traps: a branch keeps the division from being executed, which a select would not.
    start, divide, last = b.block, b.append_basic_block("divide"), b.append_basic_block("divided")
    none = b.icmp_unsigned("==", y, zero)
    if signed(kind):
        least = ir.Constant(x.type, -1 << (x.type.width - 1))
        over = b.and_(b.icmp_signed("==", x, least), b.icmp_signed("==", y, ir.Constant(x.type, -1)))
        none = b.or_(none, over)
    b.cbranch(none, last, divide)
    b.position_at_end(divide)
    if signed(kind):
        quotient, rest = b.sdiv(x, y), b.srem(x, y)
        # sdiv rounds towards zero and srem has the dividend's sign; Python rounds down, and its remainder has the divisor's sign.
        down = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(y, rest), zero))
        found = b.select(down, b.sub(quotient, one), quotient) if first else b.select(down, b.add(rest, y), rest)
    else:
        found = b.udiv(x, y) if first else b.urem(x, y)
    b.branch(last)
    b.position_at_end(last)
    out = b.phi(x.type)
    out.add_incoming(zero, start)
    out.add_incoming(found, divide)
    return out


def _real_divided(b: Any, operation: str, kind: Kind, x: Any, y: Any) -> Any:
    """Return a quotient that is rounded down, or what is left of it with the divisor's sign, as CPython's `float_divmod` does."""
    number = llvm_type(kind)
    zero, one = ir.Constant(number, 0.0), ir.Constant(number, 1.0)
    # The remainder comes first: floor(x / y) would be one too large where x / y is rounded up to a whole number.
    rest = b.frem(x, y)
    quotient = b.fdiv(b.fsub(x, rest), y)
    below = b.fcmp_ordered("<", y, zero)
    some = b.fcmp_unordered("!=", rest, zero)
    other_side = b.and_(some, b.icmp_unsigned("!=", below, b.fcmp_ordered("<", rest, zero)))
    none = b.fcmp_ordered("==", y, zero)
    if operation == "Mod":
        # frem gives a remainder of 0 the sign of x; Python gives it the sign of the divisor.
        signed_zero = b.select(below, ir.Constant(number, -0.0), zero)
        return b.select(none, rest, b.select(some, b.select(other_side, b.fadd(rest, y), rest), signed_zero))
    quotient = b.select(other_side, b.fsub(quotient, one), quotient)
    down = b.library("floor", kind, [quotient])
    # The quotient may lie just below the whole number that it stands for; floor is then one too small.
    down = b.select(b.fcmp_ordered(">", b.fsub(quotient, down), ir.Constant(number, 0.5)), b.fadd(down, one), down)
    # For a quotient of 0: a zero with the sign of x / y.
    whole = b.fdiv(b.fmul(b.fmul(quotient, quotient), x), y)
    return b.select(none, b.fdiv(x, y), b.select(b.fcmp_ordered("!=", quotient, zero), down, whole))


#: Exponents that are multiplied out.
_LONGEST = 0x10000


def _power(b: Any, x: Value, y: Value) -> Value:
    if isinstance(y.literal, int) and not isinstance(y.literal, bool) and 0 <= y.literal <= _LONGEST:
        kind = x.kind if x.kind in REALS else computed_in("Mult", x.kind, "int64")
        base = cast(b, x, kind).ir
        times = b.fmul if kind in REALS else b.mul
        out, exponent = constant(1, kind).ir, y.literal
        while exponent:
            if exponent & 1:
                out = times(out, base)
            exponent >>= 1
            base = times(base, base) if exponent else base
        return Value(kind, out)
    kind = computed_in("Pow", x.kind, y.kind)
    if kind not in REALS or y.kind not in REALS:
        raise Unclear("a power of whole numbers that are no constants")
    return Value(kind, b.intrinsic("llvm.pow", kind, [cast(b, x, kind).ir, cast(b, y, kind).ir]))


_COMPARED = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}


def compare(b: Any, operation: str, x: Value, y: Value) -> Value:
    """Return whether a comparison holds.

    Raises:
        Unclear: the language has no such comparison.
    """
    if operation not in _COMPARED or not (is_number(x.kind) and is_number(y.kind)):
        raise Unclear(f"{operation} of {x.kind} and {y.kind}")
    kind, sign = together(x.kind, y.kind), _COMPARED[operation]
    left, right = cast(b, x, kind).ir, cast(b, y, kind).ir
    if kind in REALS:
        # Of all comparisons with NaN only != holds.
        return Value("bool", (b.fcmp_unordered if sign == "!=" else b.fcmp_ordered)(sign, left, right))
    return Value("bool", (b.icmp_signed if signed(kind) else b.icmp_unsigned)(sign, left, right))


def truth(b: Any, value: Value) -> Value:
    """Return a value as a bool."""
    return cast(b, value, "bool")


def unary(b: Any, operation: str, value: Value) -> Value:
    """Return the result of an operator with one operand.

    Raises:
        Unclear: the language has no such operation.
    """
    if operation == "Not":
        return Value("bool", b.not_(truth(b, value).ir))
    kind = value.kind if value.kind in REALS else computed_in("Mult", value.kind, value.kind)
    whole = cast(b, value, kind)
    if operation == "UAdd":
        return whole
    if operation == "USub" and kind in REALS:
        # -0.0 - x, because 0.0 - x would make +0.0 of +0.0.
        return Value(kind, b.fsub(ir.Constant(llvm_type(kind), -0.0), whole.ir))
    if operation == "USub":
        return Value(kind, b.sub(ir.Constant(llvm_type(kind), 0), whole.ir))
    if operation == "Invert" and kind in INTEGERS:
        return Value(kind, b.xor(whole.ir, ir.Constant(llvm_type(kind), -1)))
    raise Unclear(f"{operation} of {value.kind}")


def _extreme(b: Any, values: list[Value], sign: str) -> Value:
    """Return the least (`<`) or greatest (`>`) of values, the first of equal ones; a later NaN is passed over, as Python does."""
    best = values[0]
    for value in values[1:]:
        kind = together(best.kind, value.kind)
        x, y = cast(b, best, kind).ir, cast(b, value, kind).ir
        whole = b.icmp_signed if signed(kind) else b.icmp_unsigned
        best = Value(kind, b.select((b.fcmp_ordered if kind in REALS else whole)(sign, y, x), y, x))
    return best


def _size(b: Any, value: Value) -> Value:
    """Return a number without its sign."""
    if value.kind in REALS:
        return Value(value.kind, b.intrinsic("llvm.fabs", value.kind, [value.ir]))
    if not signed(value.kind):
        return value
    zero = ir.Constant(llvm_type(value.kind), 0)
    return Value(value.kind, b.select(b.icmp_signed("<", value.ir, zero), b.sub(zero, value.ir), value.ir))


_INTRINSICS: dict[Callable[..., Any], str] = {
    math.fabs: "llvm.fabs", math.exp: "llvm.exp", math.exp2: "llvm.exp2", math.log: "llvm.log", math.log10: "llvm.log10",
    math.sin: "llvm.sin", math.cos: "llvm.cos",
}  # fmt: skip
_NAMES = "log1p expm1 erf erfc tan asin acos atan sinh cosh tanh log2 sqrt asinh acosh atanh"
_LIBRARY = {getattr(math, name): name for name in _NAMES.split()}
_TO_WHOLE = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"}
#: Functions of one number.
FUNCTIONS = {*_INTRINSICS, *_LIBRARY, *_TO_WHOLE, math.isnan, math.isinf, abs}


def call(b: Any, function: Any, values: list[Value]) -> Value:  # noqa: PLR0911 - one case per kind of function
    """Return what a function of `math`, or of Python's own, gives.

    Raises:
        Unclear: the language has it not, or it takes other arguments.
    """
    if function is min or function is max:
        return _extreme(b, values, "<" if function is min else ">")
    if function is math.pow:
        return _power(b, *values)
    if function not in FUNCTIONS or len(values) != 1:
        raise Unclear(f"the function {getattr(function, '__name__', function)} of {len(values)} arguments")
    (value,) = values
    if function is abs:
        return _size(b, value)
    kind: Kind = value.kind if value.kind in REALS else "float64"
    x = cast(b, value, kind).ir
    if function is math.isnan:
        return Value("bool", b.fcmp_unordered("uno", x, x))
    if function is math.isinf:
        return Value("bool", b.or_(*(b.fcmp_ordered("==", x, ir.Constant(llvm_type(kind), s * math.inf)) for s in (1, -1))))
    if function in _INTRINSICS:
        return Value(kind, b.intrinsic(_INTRINSICS[function], kind, [x]))
    if function in _TO_WHOLE:
        if value.kind in INTEGERS:
            return cast(b, value, "int64" if signed(value.kind) or value.kind == "bool" else "uint64")
        return cast(b, Value(kind, b.library(_TO_WHOLE[function], kind, [x])), "int64")
    return Value(kind, b.library(_LIBRARY[function], kind, [x]))
