"""Means and variances in pieces that fit the first cache: two passes over each, joined by Chan's formula in float64.

Neither a large mean nor many terms cost digits: float32 data of mean 1000 and deviation 1 gives its variance to five.

Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance", eq. 2.1.
"""

from __future__ import annotations

from pe_cli.kernels.lang import T, helper

#: Elements of a piece: 16 KiB of float32.
PIECE = 4096
#: Most rows of a piece: the most terms of one float32 partial sum.
MOST_ROWS = 256


@helper
def piece_rows(columns):
    """Return how many rows of that many columns make a piece."""
    return max(4, min(MOST_ROWS, PIECE // max(1, columns)))


@helper
def column_sums(x, first, rows, columns, out):
    """out[c] = sum of x[first + r, c] over rows, four rows at a time."""
    for c in range(columns):
        out[c] = T(0)
    r = first
    last = first + rows
    while r + 4 <= last:
        a = r * columns
        for c in range(columns):
            k = a + c
            out[c] += (x[k] + x[k + columns]) + (x[k + 2 * columns] + x[k + 3 * columns])
        r += 4
    while r < last:
        for c in range(columns):
            out[c] += x[r * columns + c]
        r += 1


@helper
def column_squares(x, first, rows, columns, centre, out):
    """out[c] = sum of (x[first + r, c] - centre[c])**2 over rows, two rows at a time."""
    for c in range(columns):
        out[c] = T(0)
    r = first
    last = first + rows
    while r + 2 <= last:
        a = r * columns
        for c in range(columns):
            d = x[a + c] - centre[c]
            e = x[a + columns + c] - centre[c]
            out[c] += d * d + e * e
        r += 2
    if r < last:
        for c in range(columns):
            d = x[r * columns + c] - centre[c]
            out[c] += d * d


@helper
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
