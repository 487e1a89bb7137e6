"""Decimal numbers in text become float64, rounded correctly."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from pe_cli.kernels.lang import helper
from pe_cli.kernels.text import below, byte, double_of_bits, leading_zeros, multiply_high, shift_right

#: What `read_decimal` found: a number; one that Python's `float` must round; none.
READ, HARD, NO_NUMBER = 0, 1, 2
#: Powers of ten of the table.
LOWEST, HIGHEST = -342, 308
#: Digits whose value is below 2^64.
DIGITS = 19
#: Digits of an exponent, above which it is certainly out of range.
EXPONENT = 5
#: The bit of a negative number.
SIGN = -(2**63)
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _E, _SMALL_E = 45, 43, 46, 48, 57, 69, 101


@functools.cache
def powers_of_five() -> NDArray[np.int64]:
    """Return 128-bit reciprocals and powers of five for `LOWEST` to `HIGHEST`, as pairs of upper and lower words.

    Source:
        Lemire 2021, "Number parsing at a gigabyte per second", section 5 and appendix B.
    """
    words = []
    for q in range(LOWEST, HIGHEST + 1):
        power = 5 ** abs(q)
        if q < 0:
            shift = (power - 1).bit_length()
            found = (1 << (shift + 127 if q >= -27 else 2 * shift + 128)) // power + 1
        else:
            found = power << 128
        found >>= max(0, found.bit_length() - 128)
        words += [found >> 64, found & (2**64 - 1)]
    return np.array(words, np.uint64).view(np.int64)


@helper
def decimal_bits(w, q, powers):
    """Return the bits of w * 10**q as float64; -1 where it is not a normal number.

    Args:
        w: 1 to 2^64 - 1.
        q: `LOWEST` to `HIGHEST`.
        powers: pointer to `powers_of_five()`.

    Source:
        Lemire 2021, algorithm 1; Mushtak and Lemire 2023, "Fast number parsing without fallback", for there is no doubtful case.
    """
    zeros = leading_zeros(w)
    w = w << zeros
    upper = powers[2 * (q - LOWEST)]
    high, low = multiply_high(w, upper), w * upper
    if (high & 0x1FF) == 0x1FF:
        more = multiply_high(w, powers[2 * (q - LOWEST) + 1])
        low += more
        high += below(low, more)
    top = shift_right(high, 63)
    mantissa = shift_right(high, top + 9)
    exponent = ((217706 * q) >> 16) + 63 + top - zeros + 1023
    if exponent <= 0:
        return -1
    # exactly between two numbers: the even one
    if (low == 0 or low == 1) and -4 <= q <= 23 and (mantissa & 3) == 1 and (mantissa << (top + 9)) == high:
        mantissa -= 1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >= 1 << 53:
        mantissa = 1 << 52
        exponent += 1
    if exponent >= 2047:
        return -1
    return (exponent << 52) | (mantissa - (1 << 52))


@helper
def read_decimal(text, start, end, powers):  # noqa: C901, PLR0911, PLR0912 - a grammar, from left to right
    """Read a number such as -12, .5 or 1.25e-7.

    Args:
        text: address.
        start, end: of the number in it, without blanks around.
        powers: pointer to `powers_of_five()`.

    Returns:
        `READ`, `HARD` or `NO_NUMBER`, and the value where it was read.
    """
    i = start
    c = byte(text + i)
    negative = c == _MINUS
    if negative or c == _PLUS:
        i += 1
    w = 0
    used = 0
    shift = 0
    first = i
    while i < end:
        d = byte(text + i) - _ZERO
        if d < 0 or d > 9:
            break
        w = 10 * w + d
        used += 1 if w != 0 or used != 0 else 0
        i += 1
    digits = i - first
    if i < end and byte(text + i) == _POINT:
        i += 1
        first = i
        while i < end:
            d = byte(text + i) - _ZERO
            if d < 0 or d > 9:
                break
            w = 10 * w + d
            used += 1 if w != 0 or used != 0 else 0
            i += 1
        digits += i - first
        shift = first - i
    if digits == 0:
        return NO_NUMBER, 0.0
    if i < end:
        c = byte(text + i)
        if c != _E and c != _SMALL_E:
            return NO_NUMBER, 0.0
        i += 1
        less = i < end and byte(text + i) == _MINUS
        if less or (i < end and byte(text + i) == _PLUS):
            i += 1
        first = i
        exponent = 0
        while i < end:
            d = byte(text + i) - _ZERO
            if d < 0 or d > 9:
                break
            exponent = min(10 * exponent + d, 1_000_000)
            i += 1
        if i < end or i == first:
            return NO_NUMBER, 0.0
        shift += -exponent if less else exponent
    if used > DIGITS:
        return HARD, 0.0
    bits = 0
    if w != 0:
        if shift == 0 and 0 < w < 1 << 53:
            return READ, float(-w if negative else w)
        bits = decimal_bits(w, shift, powers) if LOWEST <= shift <= HIGHEST else -1
        if bits == -1:
            return HARD, 0.0
    return READ, double_of_bits(bits | (SIGN if negative else 0))
