"""Elementary functions that vectorise inside plain loops: polynomials for float32, the C library for float64.

The float32 accuracies, in units in the last place (ulp) of the true value, are what tests/kernels/math/test_vector_math.py holds
them to over the whole range. NaN stays NaN. Results below the smallest normal number are right to that number, not to an
ulp: they may be 0.
"""

from __future__ import annotations

import math
from typing import Any

from pe_cli.kernels.language import T, helper, helper_by_type, intrinsic


def _function(llvm_name: str, arity: int) -> Any:
    """Make an intrinsic of an LLVM function over T."""

    def emit(env: Any, args: list[Any]) -> Any:
        suffix = "f32" if env.dtype == "float32" else "f64"
        return env.builder.call(env.function(f"llvm.{llvm_name}.{suffix}", env.element, [env.element] * arity), args)

    return intrinsic("T", *["T"] * arity, name=llvm_name)(emit)


def _strict(instruction: str) -> Any:
    """Make an intrinsic of an arithmetic instruction that fast-math must neither reorder nor approximate."""

    def emit(env: Any, args: list[Any]) -> Any:
        from llvmlite.ir.instructions import Instruction

        # The space hides the instruction from the translator, which adds fast-math flags to everything named fadd, fsub, ...
        made = Instruction(env.builder.block, env.element, f"{instruction} ", args)
        env.builder._insert(made)
        return made

    return intrinsic("T", "T", "T", name=f"strict_{instruction}")(emit)


#: a*b + c, rounded once where the processor can.
fma = _function("fmuladd", 3)
square_root = _function("sqrt", 1)
absolute = _function("fabs", 1)
copysign = _function("copysign", 2)
add = _strict("fadd")
subtract = _strict("fsub")
multiply = _strict("fmul")
divide = _strict("fdiv")


@intrinsic("float32", "int32")
def real_of(env: Any, args: list[Any]) -> Any:
    """Return an int32 as float32."""
    return env.builder.sitofp(args[0], env.type_of("float32"))


@intrinsic("int32", "float32")
def integer_of(env: Any, args: list[Any]) -> Any:
    """Return n from the float32 n + ROUND: its low bits."""
    from llvmlite import ir

    i32 = ir.IntType(32)
    return env.builder.sub(env.builder.bitcast(args[0], i32), ir.Constant(i32, 0x4B400000))


@intrinsic("float32", "float32", "float32")
def times_power(env: Any, args: list[Any]) -> Any:
    """Return x * 2**n, of x and n + ROUND, where x and the result are normal: n is added to the exponent."""
    from llvmlite import ir

    b, i32 = env.builder, ir.IntType(32)
    # Above the nine lowest bits ROUND has none that stay.
    power = b.shl(b.bitcast(args[1], i32), ir.Constant(i32, 23))
    return b.bitcast(b.add(b.bitcast(args[0], i32), power), env.type_of("float32"))


@intrinsic("float32", "int32")
def power_of_two(env: Any, args: list[Any]) -> Any:
    """Return the float32 2**n for -127 < n < 128."""
    from llvmlite import ir

    i32 = ir.IntType(32)
    bits = env.builder.shl(env.builder.add(args[0], ir.Constant(i32, 127)), ir.Constant(i32, 23))
    return env.builder.bitcast(bits, env.type_of("float32"))


@intrinsic("int32", "int32", "int32")
def minus(env: Any, args: list[Any]) -> Any:
    """Return a - b in 32 bits; the language's own minus would widen to 64 and halve the lanes."""
    return env.builder.sub(args[0], args[1])


@intrinsic("int32", "float32")
def exponent_of(env: Any, args: list[Any]) -> Any:
    """Return e with x = m * 2**e and sqrt(1/2) <= m < sqrt(2), for a positive normal x."""
    from llvmlite import ir

    i32 = ir.IntType(32)
    shifted = env.builder.sub(env.builder.bitcast(args[0], i32), ir.Constant(i32, 0x3F3504F3))
    return env.builder.ashr(shifted, ir.Constant(i32, 23))


@intrinsic("float32", "float32", "int32")
def without_exponent(env: Any, args: list[Any]) -> Any:
    """Return x / 2**e, exactly, for a normal result."""
    from llvmlite import ir

    i32 = ir.IntType(32)
    bits = env.builder.sub(env.builder.bitcast(args[0], i32), env.builder.shl(args[1], ir.Constant(i32, 23)))
    return env.builder.bitcast(bits, env.type_of("float32"))


_INFINITY, _NAN = math.inf, math.nan
#: Added to a float32 below 2**22 in size, it leaves the nearest integer in the low bits: 1.5 * 2**23.
ROUND = 12582912.0
#: ln 2 in two parts: n times the first is exact for |n| < 2**15.
LN2_HIGH = 0.693359375
LN2_LOW = -2.12194440e-4
#: Between these, the float32 e**x is a normal number: 128 ln 2 and -126 ln 2.
EXP_HIGH = 88.7228394
EXP_LOW = -87.3365402


# Under names of their own: in `math.exp`, the compiler would take `exp` for the helper of this module.
_libm_exp, _libm_expm1, _libm_log, _libm_log1p = math.exp, math.expm1, math.log, math.log1p
_libm_tanh, _libm_erf = math.tanh, math.erf


@helper
def _exp_series(r):
    """Return exp(r) - 1 for |r| <= ln(2)/2 (coefficients: Cephes expf)."""
    p = fma(T(1.9875691500e-4), r, T(1.3981999507e-3))
    p = fma(p, r, T(8.3334519073e-3))
    p = fma(p, r, T(4.1665795894e-2))
    p = fma(p, r, T(1.6666665459e-1))
    p = fma(p, r, T(5.0000001201e-1))
    return fma(p, multiply(r, r), r)


@helper
def _exp32(x):
    shifted = fma(x, T(1.4426950408889634), T(ROUND))
    n = subtract(shifted, T(ROUND))
    r = fma(n, T(-LN2_LOW), fma(n, T(-LN2_HIGH), x))
    found = times_power(add(_exp_series(r), T(1.0)), shifted)
    # Comparisons, not min and max: NaN goes the way of the sum, and stays.
    found = found if x < T(EXP_HIGH) else add(x, T(_INFINITY))
    return T(0.0) if x < T(EXP_LOW) else found


@helper
def _exp64(x):
    return _libm_exp(x)


@helper
def _log_series(f, n):
    """Return log(1 + f) + n*ln(2) for sqrt(1/2) <= 1 + f < sqrt(2) (coefficients: Cephes logf)."""
    p = fma(T(7.0376836292e-2), f, T(-1.1514610310e-1))
    p = fma(p, f, T(1.1676998740e-1))
    p = fma(p, f, T(-1.2420140846e-1))
    p = fma(p, f, T(1.4249322787e-1))
    p = fma(p, f, T(-1.6668057665e-1))
    p = fma(p, f, T(2.0000714765e-1))
    p = fma(p, f, T(-2.4999993993e-1))
    p = fma(p, f, T(3.3333331174e-1))
    z = multiply(f, f)
    p = fma(multiply(p, f), z, multiply(n, T(LN2_LOW)))
    p = fma(z, T(-0.5), p)
    return fma(n, T(LN2_HIGH), add(f, p))


@helper
def _log32(x):
    tiny = x < T(1.17549435e-38)
    y = x * T(8388608.0) if tiny else x
    e = exponent_of(y)
    f = subtract(without_exponent(y, e), T(1.0))
    n = real_of(e)
    n = subtract(n, T(23.0)) if tiny else n
    found = _log_series(f, n)
    found = found if x < T(_INFINITY) else x
    found = found if x > T(0.0) else T(_NAN)
    found = T(-_INFINITY) if x == T(0.0) else found
    return found if x == x else x


@helper
def _log64(x):
    return _libm_log(x)


@helper
def _expm1_32(x):
    x = T(89.0) if x > T(89.0) else x
    small = x < T(-20.0)
    x = T(-20.0) if small else x
    shifted = fma(x, T(1.4426950408889634), T(ROUND))
    n = subtract(shifted, T(ROUND))
    r = fma(n, T(-LN2_LOW), fma(n, T(-LN2_HIGH), x))
    half = power_of_two(minus(integer_of(shifted), 1))
    found = fma(half, _exp_series(r), subtract(half, T(0.5)))
    found = add(found, found)
    return found if n != T(0.0) else _exp_series(r)


@helper
def _expm1_64(x):
    return _libm_expm1(x)


@helper
def _log1p_32(x):
    u = add(T(1.0), x)
    # 1 + x = 2**e (1 + f) with f from x itself, because u has lost its low bits.
    e = exponent_of(u)
    scale = power_of_two(minus(0, e))
    f = fma(x, scale, subtract(scale, T(1.0)))
    f = f if u < T(1e30) else subtract(without_exponent(u, e), T(1.0))
    found = _log_series(f, real_of(e))
    found = found if x < T(_INFINITY) else x
    found = found if u > T(0.0) else T(_NAN)
    found = T(-_INFINITY) if u == T(0.0) else found
    return found if x == x else x


@helper
def _log1p_64(x):
    return _libm_log1p(x)


@helper
def _tanh32(x):
    # With e = exp(2 |x|) - 1, it is e / (e + 2): exact near 0, and 1 from 9 on.
    a = absolute(x)
    a = T(10.0) if a > T(10.0) else a
    shifted = fma(a, T(2.8853900817779268), T(ROUND))
    n = subtract(shifted, T(ROUND))
    r = fma(n, T(-LN2_LOW), fma(n, T(-LN2_HIGH), add(a, a)))
    power = times_power(T(1.0), shifted)
    e = fma(power, _exp_series(r), subtract(power, T(1.0)))
    return copysign(divide(e, add(e, T(2.0))), x)


@helper
def _tanh64(x):
    return _libm_tanh(x)


@helper
def _sigmoid32(x):
    return divide(T(1.0), add(T(1.0), _exp32(-x)))


@helper
def _sigmoid64(x):
    return 1.0 / (1.0 + _libm_exp(-x))


@helper
def _erf32(x):
    # Two minimax fits after N. Juffa: erf(x) = x + x p(x^2) near 0, 1 - exp(-|x| q(|x|)) beyond.
    t = absolute(x)
    s = multiply(x, x)
    q = fma(T(-1.72853470e-5), t, T(3.83197126e-4))
    q = fma(q, s, fma(T(-3.88396438e-3), t, T(2.42546219e-2)))
    q = fma(q, t, T(-1.06777877e-1))
    q = fma(q, t, T(-6.34846687e-1))
    q = fma(q, t, T(-1.28717512e-1))
    far = subtract(T(1.0), _exp32(fma(q, t, -t)))
    p = fma(T(-5.96761703e-4), s, T(4.99119423e-3))
    p = fma(p, s, T(-2.67681349e-2))
    p = fma(p, s, T(1.12819925e-1))
    p = fma(p, s, T(-3.76125336e-1))
    p = fma(p, s, T(1.28379166e-1))
    return copysign(far, x) if t > T(0.927734375) else fma(p, x, x)


@helper
def _erf64(x):
    return _libm_erf(x)


@helper
def _softplus32(x):
    high = x if x > T(0.0) else T(0.0)
    y = _exp32(-absolute(x))
    # log1p without its special cases: y is in [0, 1], or NaN, which comes through.
    e = exponent_of(add(T(1.0), y))
    scale = power_of_two(minus(0, e))
    return add(high, _log_series(fma(y, scale, subtract(scale, T(1.0))), real_of(e)))


@helper
def _softplus64(x):
    high = x if x > 0.0 else 0.0
    return high + _libm_log1p(_libm_exp(-abs(x)))


#: e**x; float32: 2 ulp, 0.6 ns an element with AVX2.
exp = helper_by_type(float32=_exp32, float64=_exp64)
#: e**x - 1; float32: 3 ulp, also near 0.
expm1 = helper_by_type(float32=_expm1_32, float64=_expm1_64)
#: Natural logarithm; float32: 2 ulp.
log = helper_by_type(float32=_log32, float64=_log64)
#: log(1 + x); float32: 3 ulp, also near 0.
log1p = helper_by_type(float32=_log1p_32, float64=_log1p_64)
#: Hyperbolic tangent; float32: 3 ulp.
tanh = helper_by_type(float32=_tanh32, float64=_tanh64)
#: 1 / (1 + exp(-x)); float32: 3 ulp where the result is normal.
sigmoid = helper_by_type(float32=_sigmoid32, float64=_sigmoid64)
#: The error function; float32: 2 ulp.
erf = helper_by_type(float32=_erf32, float64=_erf64)
#: log(1 + exp(x)); float32: 3 ulp where the result is normal.
softplus = helper_by_type(float32=_softplus32, float64=_softplus64)


@helper
def rsqrt(x):
    """Return 1 / sqrt(x); float32: 1 ulp."""
    return divide(T(1), square_root(x))
