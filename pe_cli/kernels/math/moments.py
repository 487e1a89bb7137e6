"""Means and variances in pieces, about a centre near their mean, joined by Chan's formula in float64.

Neither a large mean nor many terms cost digits: float32 data of mean 1000 and deviation 1 gives its variance to five.

Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance", eq. 2.1.
"""

from __future__ import annotations

from pe_cli.kernels.language import SIZE, T, helper
from pe_cli.kernels.math.vector_math import add, fma

#: Elements of a piece: 16 KiB of float32.
PIECE = 4096
#: Most rows of a piece: the most terms of one float32 partial sum.
MOST_ROWS = 256
#: Most bytes of an array that is taken four rows at a time. From the caches that is a third faster; larger arrays come from memory, which
#: gives half as much again, or more, to one run of addresses as to four side by side.
NEAR = 4 << 20


@helper
def piece_rows(columns):
    """Return how many rows of that many columns make a piece."""
    return max(4, min(MOST_ROWS, PIECE // max(1, columns)))


@helper
def together(rows, columns):
    """Return how many rows of an array are summed in one loop."""
    return 4 if SIZE * rows * columns <= NEAR else 1


@helper(exact=True)
def column_sums(x, first, rows, columns, low, high, out):
    """out[c] = sum of x[first + r, c] over rows, four rows at a time, for low <= c < high."""
    for c in range(low, high):
        out[c] = T(0)
    r = first
    last = first + rows
    while r + 4 <= last:
        a = r * columns
        for c in range(low, high):
            k = a + c
            out[c] += (x[k] + x[k + columns]) + (x[k + 2 * columns] + x[k + 3 * columns])
        r += 4
    while r < last:
        for c in range(low, high):
            out[c] += x[r * columns + c]
        r += 1


@helper(exact=True)
def column_moments(x, first, rows, columns, low, high, four, centre, rest, squares):
    """rest[c], squares[c] = sums of x[first + r, c] - centre[c], and of its square, over rows, for low <= c < high.

    What is summed is small where the centre is near the mean, which rest then tells to all digits.
    """
    for c in range(low, high):
        rest[c] = T(0)
        squares[c] = T(0)
    r = first
    last = first + rows
    while r < last:
        a = r * columns
        if four and r + 4 <= last:
            for c in range(low, high):
                k = a + c
                d, e = x[k] - centre[c], x[k + columns] - centre[c]
                f, g = x[k + 2 * columns] - centre[c], x[k + 3 * columns] - centre[c]
                rest[c] += (d + e) + (f + g)
                squares[c] += (d * d + e * e) + (f * f + g * g)
            r += 4
        else:
            for c in range(low, high):
                d = x[a + c] - centre[c]
                rest[c] += d
                squares[c] += d * d
            r += 1


@helper
def add_products(x, g, centre, first, rows, columns, four, sums):
    """sums[c] += g[r, c] and sums[columns + c] += g[r, c] * (x[r, c] - centre[c]), row after row, however many are in one loop."""
    r = first
    last = first + rows
    while r < last:
        a = r * columns
        if four and r + 4 <= last:
            for c in range(columns):
                k = a + c
                m = centre[c]
                total = add(add(add(add(sums[c], g[k]), g[k + columns]), g[k + 2 * columns]), g[k + 3 * columns])
                # in the order of the loop below, row after row: unrolling by four must not change a bit
                inner = fma(g[k], x[k] - m, sums[columns + c])
                inner = fma(g[k + columns], x[k + columns] - m, inner)
                inner = fma(g[k + 2 * columns], x[k + 2 * columns] - m, inner)
                sums[columns + c] = fma(g[k + 3 * columns], x[k + 3 * columns] - m, inner)
                sums[c] = total
            r += 4
        else:
            for c in range(columns):
                sums[columns + c] = fma(g[a + c], x[a + c] - centre[c], sums[columns + c])
                sums[c] = add(sums[c], g[a + c])
            r += 1


@helper(exact=True)
def join(count, mean, squares, more, more_mean, more_squares):
    """Return mean and sum of squared deviations of two sets together, as float64.

    Args:
        count: terms of the first set; 0 is allowed.
        mean, squares: its mean and sum of squared deviations.
        more: terms of the second set, at least 1.
        more_mean, more_squares: of the second.
    """
    total = count + more
    d = more_mean - mean
    return mean + d * (more / total), squares + more_squares + d * d * (count * (more / total))


@helper
def run_moments(x, at, n):
    """Return mean and sum of squared deviations of x[at : at + n], contiguous, as float64; n is at least 1."""
    mean = 0.0
    squares = 0.0
    for begin in range(0, n, PIECE):
        size = min(PIECE, n - begin)
        start = at + begin
        s = T(0)
        for i in range(start, start + size):
            s += x[i]
        centre = T(s / size)
        # What the rounding of the centre leaves is summed too, so that the mean is not limited by it.
        rest = T(0)
        q = T(0)
        for i in range(start, start + size):
            d = x[i] - centre
            rest += d
            q += d * d
        off = rest / size
        mean, squares = join(begin, mean, squares, size, centre + off, q - rest * off)
    return mean, squares
