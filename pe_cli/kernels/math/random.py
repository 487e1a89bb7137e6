"""Random numbers as pure functions of (seed, step, index): Philox4x32-10 and, for masks, -7, counter-based generators.

A block of four 32-bit words is a keyed bijection of its 128-bit counter: the key is the seed, the counter (block,
step). Nothing is carried from one number to the next, so neither threads nor the number of devices change a draw.
Tested against the published known answers, and for uniformity and independence.

Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". Normals: Wichura 1988,
algorithm AS 241 (inverse of the normal distribution function, relative accuracy 1e-16).
"""

from __future__ import annotations

import math

from pe_cli.kernels.language import T, helper, helper_by_type

#: Blocks whose words `fill_words` users keep at a time: few, so that making them overlaps with waiting for the memory that they are for.
WORD_BLOCKS = 64

_LOW = 0xFFFFFFFF
_MULTIPLY_0, _MULTIPLY_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85


@helper
def _philox(seed, step, block, rounds):
    a, b, c, d = block & _LOW, (block >> 32) & _LOW, step & _LOW, (step >> 32) & _LOW
    k, m = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(rounds):
        p, q = a * _MULTIPLY_0, c * _MULTIPLY_1  # wrap as int64, whose bits are right
        a, b, c, d = ((q >> 32) & _LOW) ^ b ^ k, q & _LOW, ((p >> 32) & _LOW) ^ d ^ m, p & _LOW
        k, m = (k + _WEYL_0) & _LOW, (m + _WEYL_1) & _LOW
    return a, b, c, d


@helper
def philox(seed, step, block):
    """Return the four words of a block, each an int64 in [0, 2**32).

    Args:
        seed: int64, any.
        step: int64, number of the step.
        block: int64, number of the block.
    """
    return _philox(seed, step, block, 10)


@helper
def philox_7(seed, step, block):
    """Return a block's four words after seven rounds, the fewest that pass every test of the paper: masks are made of them."""
    return _philox(seed, step, block, 7)


@helper
def fill_words(words, seed, step, first, count):
    """Write the words of blocks first .. first + count - 1 of `philox_7` as int32, less 2**31: word w is w - 2**31 there.

    Element i's word is word i % 4 of block i // 4.
    """
    for i in range(count):
        a, b, c, d = philox_7(seed, step, first + i)
        words[4 * i] = a - 0x80000000
        words[4 * i + 1] = b - 0x80000000
        words[4 * i + 2] = c - 0x80000000
        words[4 * i + 3] = d - 0x80000000


@helper
def _uniform64(seed, step, index):
    a, b, _, _ = philox(seed, step, index)
    return ((a << 21) | (b >> 11)) * (1.0 / (1 << 53))


@helper
def _uniform32(seed, step, index):
    a, _, _, _ = philox(seed, step, index)
    return T((a >> 8) * (1.0 / (1 << 24)))


#: `uniform(seed, step, index)`: a number of [0, 1) with all bits of T random; float32's is float64's, cut off.
uniform = helper_by_type(float32=_uniform32, float64=_uniform64)


@helper
def _open_uniform(seed, step, index):
    """Return a float64 of (0, 1): the middle of one of 2**52 intervals, so that 0 and 1 are never drawn."""
    a, b, _, _ = philox(seed, step, index)
    return (((a << 20) | (b >> 12)) + 0.5) * (1.0 / (1 << 52))


@helper
def _middle(q):
    """Return the quantile at 0.5 + q, for |q| <= 0.425."""
    r = 0.180625 - q * q
    top = r * 2509.0809287301226727 + 33430.575583588128105
    top = ((top * r + 67265.770927008700853) * r + 45921.953931549871457) * r + 13731.693765509461125
    top = ((top * r + 1971.5909503065514427) * r + 133.14166789178437745) * r + 3.387132872796366608
    low = r * 5226.495278852545925 + 28729.085735721942674
    low = ((low * r + 39307.89580009271061) * r + 21213.794301586595867) * r + 5394.1960214247511077
    low = ((low * r + 687.1870074920579083) * r + 42.313330701600911252) * r + 1.0
    return q * top / low


@helper
def _tail(p):
    """Return the size of the quantile at the smaller tail probability p <= 0.075."""
    r = math.sqrt(-math.log(p))
    if r <= 5.0:
        r -= 1.6
        top = r * 7.7454501427834140764e-4 + 0.0227238449892691845833
        top = ((top * r + 0.24178072517745061177) * r + 1.27045825245236838258) * r + 3.64784832476320460504
        top = ((top * r + 5.7694972214606914055) * r + 4.6303378461565452959) * r + 1.42343711074968357734
        low = r * 1.05075007164441684324e-9 + 5.475938084995344946e-4
        low = ((low * r + 0.0151986665636164571966) * r + 0.14810397642748007459) * r + 0.68976733498510000455
        low = ((low * r + 1.6763848301838038494) * r + 2.05319162663775882187) * r + 1.0
        return top / low
    r -= 5.0
    top = r * 2.01033439929228813265e-7 + 2.71155556874348757815e-5
    top = ((top * r + 0.0012426609473880784386) * r + 0.026532189526576123093) * r + 0.29656057182850489123
    top = ((top * r + 1.7848265399172913358) * r + 5.4637849111641143699) * r + 6.6579046435011037772
    low = r * 2.04426310338993978564e-15 + 1.4215117583164458887e-7
    low = ((low * r + 1.8463183175100546818e-5) * r + 7.868691311456132591e-4) * r + 0.0148753612908506148525
    low = ((low * r + 0.13692988092273580531) * r + 0.59983220655588793769) * r + 1.0
    return top / low


@helper
def normal_quantile(p):
    """Return z with P(Z < z) = p for a standard normal Z; p is a float64 of (0, 1)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        return _middle(q)
    z = _tail(min(p, 1.0 - p))
    return -z if q < 0.0 else z


@helper
def normal(seed, step, index):
    """Return a standard normal number as float64; its largest size is 8.2."""
    return normal_quantile(_open_uniform(seed, step, index))


#: P(Z < -2) and P(-2 < Z < 2) of a standard normal Z.
_BELOW_2 = 0.022750131948179207
_WITHIN_2 = 0.954499736103641586


@helper
def truncated_normal(seed, step, index):
    """Return a standard normal number given that it lies within [-2, 2], as float64."""
    return normal_quantile(_BELOW_2 + _WITHIN_2 * _open_uniform(seed, step, index))
