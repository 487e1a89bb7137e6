"""Parses decimal numbers from text to float64, correctly rounded."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from pe_cli.kernels.language import helper
from pe_cli.kernels.text.characters import (
    below,
    byte,
    double_of_bits,
    eight_bytes,
    leading_zeros,
    lowest_bit,
    multiply_high,
    shift_right,
)

#: What `read_decimal` found: a number; one that Python's `float` must round; none.
READ, HARD, NO_NUMBER = 0, 1, 2
#: Powers of ten of the table.
LOWEST, HIGHEST = -342, 308
#: Where 1, 10, ..., 10^8 stand behind them.
TENS = 2 * (HIGHEST - LOWEST + 1)
#: Digits whose value is below 2^64.
DIGITS = 19
#: Eight bytes at once, as signed words: digits 0; what lifts all above 9 to the high bit; that bit; and what joins two digits each.
_ZEROS, _ABOVE, _HIGH_BITS, _PAIRS = 0x3030303030303030, 0x4646464646464646, -0x7F7F7F7F7F7F7F80, 0x000000FF000000FF
_UPPER, _LOWER = 100 + (1_000_000 << 32), 1 + (10_000 << 32)
#: The bit of a negative number.
SIGN = -(2**63)
_MINUS, _PLUS, _POINT, _ZERO, _E, _SMALL_E = 45, 43, 46, 48, 69, 101


@functools.cache
def powers_of_five() -> NDArray[np.int64]:
    """Return 128-bit reciprocals and powers of five for `LOWEST` to `HIGHEST`, as pairs of upper and lower words; then powers of ten.

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
    return np.array([*words, *(10**k for k in range(9))], np.uint64).view(np.int64)


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
def _odd(word):
    """Return a word with the high bit of the first byte that is no digit, and perhaps of some behind it."""
    return ((word + _ABOVE) | (word - _ZEROS)) & _HIGH_BITS


@helper
def _value(word, count):
    """Return the number that the first 1 to 8 bytes of a word are, which are digits.

    Source:
        Lemire 2018, "Quickly parsing eight digits": the digits of a word become a number by three multiplications.
    """
    values = (word - _ZEROS) << (64 - 8 * count)
    values = 10 * values + shift_right(values, 8)
    return shift_right((values & _PAIRS) * _UPPER + (shift_right(values, 16) & _PAIRS) * _LOWER, 32)


@helper
def _digits(text, i, end, w, powers):
    """Append digits to a number, eight at a time."""
    while i < end:
        word = eight_bytes(text + i)
        odd = _odd(word)
        count = min(end - i, 8 if odd == 0 else lowest_bit(odd) >> 3)
        if count == 0:
            break
        w = powers[TENS + count] * w + _value(word, count)
        i += count
        if count < 8:
            break
    return w, i


@helper
def _plain(text, i, end, powers):
    """Read a number of usual length at once: up to 7 digits, and up to 16 behind a point, 19 in all.

    Nothing here waits for the digits before it, as `_digits` does.

    Returns:
        The digits as a number, and how many of them are behind the point; -1 where it is another one.
    """
    word = eight_bytes(text + i)
    odd = _odd(word)
    count = 8 if odd == 0 else lowest_bit(odd) >> 3
    if count == 0 or count == 8 or i >= end:
        return 0, -1
    if i + count >= end:
        return _value(word, end - i), 0
    size = end - i - count - 1
    if byte(text + i + count) != _POINT or size <= 0 or size > 16 or count + size > DIGITS:
        return 0, -1
    w = _value(word, count)
    i += count + 1
    if size > 8:
        word = eight_bytes(text + i)
        if _odd(word) != 0:
            return 0, -1
        w = 100_000_000 * w + _value(word, 8)
        i += 8
    rest = end - i
    word = eight_bytes(text + i)
    if _odd(word) << (64 - 8 * rest) != 0:
        return 0, -1
    return powers[TENS + rest] * w + _value(word, rest), size


@helper
def _zeros(text, i, end):
    """Return the number of zeros before the first other digit."""
    found = 0
    while i < end and (byte(text + i) == _ZERO or byte(text + i) == _POINT):
        found += 1 if byte(text + i) == _ZERO else 0
        i += 1
    return found


@helper
def _general(text, i, end, powers):
    """Read any number without its sign.

    Returns:
        `READ`, `HARD` or `NO_NUMBER`; its digits as a number, and the power of ten that they are multiplied by.
    """
    first = i
    w, i = _digits(text, i, end, 0, powers)
    digits = i - first
    shift = 0
    if i < end and byte(text + i) == _POINT:
        i += 1
        behind = i
        w, i = _digits(text, i, end, w, powers)
        digits += i - behind
        shift = behind - i
    if digits == 0:
        return NO_NUMBER, 0, 0
    if i < end:
        c = byte(text + i)
        if c != _E and c != _SMALL_E:
            return NO_NUMBER, 0, 0
        i += 1
        less = i < end and byte(text + i) == _MINUS
        if less or (i < end and byte(text + i) == _PLUS):
            i += 1
        behind = i
        exponent = 0
        while i < end:
            d = byte(text + i) - _ZERO
            if d < 0 or d > 9:
                break
            exponent = min(10 * exponent + d, 1_000_000)
            i += 1
        if i < end or i == behind:
            return NO_NUMBER, 0, 0
        shift += -exponent if less else exponent
    if digits > DIGITS and digits - _zeros(text, first, end) > DIGITS:
        return HARD, 0, 0
    return READ, w, shift


@helper
def read_decimal(text, start, end, powers):
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
    w, behind = _plain(text, i, end, powers)
    shift = -behind
    if behind < 0:
        how, w, shift = _general(text, i, end, powers)
        if how != READ:
            return how, 0.0
    bits = 0
    if w != 0:
        if shift == 0 and 0 < w < 1 << 53:
            return READ, float(-w if negative else w)
        bits = decimal_bits(w, shift, powers) if LOWEST <= shift <= HIGHEST else -1
        if bits == -1:
            return HARD, 0.0
    return READ, double_of_bits(bits | (SIGN if negative else 0))
