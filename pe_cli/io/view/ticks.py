"""Round numbers for axis ticks, and short forms of numbers."""

from __future__ import annotations

import math

#: Numbers closer to 0 are 0 on an axis, and larger than its inverse are not drawn: their squares are still numbers.
TINY = 1e-100


def drawable(value: float) -> bool:
    """Whether a value has a place on an axis: not NaN, not infinite, not absurdly large."""
    return abs(value) < 1 / TINY


def linear_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten apart) from the last at or below low to the first at or above high.

    >>> linear_ticks(0.0, 0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> linear_ticks(-3, 12)
    [-5.0, 0.0, 5.0, 10.0, 15.0]
    """
    size = max(abs(low), abs(high))
    if high - low <= size * 1e-6 or size < TINY:
        pad = size / 2 if size > TINY else 0.5
        low, high = low - pad, high + pad
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten around two positive numbers; where they are close together also 2 and 5 times these.

    >>> log_ticks(0.003, 4)
    [0.001, 0.01, 0.1, 1.0, 10.0]
    >>> log_ticks(0.6, 1.9)
    [0.5, 1.0, 2.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first <= 2:
        fine = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
        below = max((t for t in fine if t <= low * (1 + 1e-9)), default=fine[0])
        above = min((t for t in fine if t >= high * (1 - 1e-9)), default=fine[-1])
        return [t for t in fine if below <= t <= above]
    step = max(1, math.ceil((last - first) / 6))
    last += -(last - first) % step
    return [10.0**e for e in range(first, last + 1, step)]


def short(value: float) -> str:
    """Return a number for a tick: few characters, thousands as k, millions as M.

    >>> short(0.05), short(1500.0), short(2e6), short(1e-5), short(0.0), short(12)
    ('0.05', '1.5k', '2M', '1e-5', '0', '12')
    """
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-3:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{value / limit:.4g}{unit}"
    return f"{value:.4g}"
