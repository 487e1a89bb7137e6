"""Sorting in kernels: which of two values comes first, and places by what stands there, those of equal values in their own order."""

from __future__ import annotations

from pe_cli.kernels.language import helper


@helper
def before(a, b):
    """Return whether a comes before b in a falling order, in which NaN is the largest."""
    return a > b or (a != a and b == b)  # a NaN is what differs from itself


@helper
def _later(values, base, a, b):
    """Return whether place a comes behind place b: a smaller value, or an equal one further on."""
    s, t = values[base + a], values[base + b]
    # A NaN has to have its place among the numbers: where it counted as equal to all of them, they would not be sorted either.
    return before(t, s) or (not before(s, t) and a > b)


@helper
def sort_places(values, base, order, at, n):
    """Sort order[at : at + n], different places, by falling values[base + place], NaN first; equal values by rising places. By a heap."""
    # A heap needs neither scratch nor recursion; it is not stable, hence places decide between equal values.
    first, last = n // 2, n
    while last > 1:
        if first > 0:
            first -= 1
        else:
            last -= 1
            order[at], order[at + last] = order[at + last], order[at]
        root = first
        while 2 * root + 1 < last:
            child = 2 * root + 1
            if child + 1 < last and _later(values, base, order[at + child + 1], order[at + child]):
                child += 1
            if not _later(values, base, order[at + child], order[at + root]):
                break
            order[at + root], order[at + child] = order[at + child], order[at + root]
            root = child
