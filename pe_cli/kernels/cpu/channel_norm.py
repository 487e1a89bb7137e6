"""Normalisation by channel: statistics, values and gradients, with the channels last or first in memory.

With the channels last, rows may be joined to wider ones whose columns are the channels over and over.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.non_temporal import fence_non_temporal, is_non_temporal, store_row
from pe_cli.kernels.language import SIZE, Int, Ptr, PtrF64, Real, T, address, apart, helper, kernel, pointer
from pe_cli.kernels.math.moments import (
    add_products,
    column_moments,
    column_sums,
    join,
    piece_rows,
    run_moments,
    together,
)
from pe_cli.kernels.math.vector_math import fma

#: Bytes of an image that a pass takes from the first row to the last before it goes on with those in front of them.
RUN = 1 << 20

# --- statistics -------------------------------------------------------------------------------------------------------


@helper
def finish(
    mean, squares, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c, momentum,
    epsilon,
):
    """Write a channel's saved and running statistics; without samples the running ones stay."""
    variance = squares / count if count > 0 else 0.0
    saved_mean[c] = T(mean)
    saved_inverse[c] = T(1.0 / (variance + epsilon) ** 0.5)
    share = 1.0 - momentum if count > 0 else 0.0
    new_mean[c] = T(old_mean[c] * (1.0 - share) + mean * share)
    new_variance[c] = T(old_variance[c] * (1.0 - share) + variance * share)


@helper
def no_moments(means, squares, low, high):
    """Begin with no rows, for columns low <= c < high; return how many were joined."""
    for c in range(low, high):
        means[c] = 0.0
        squares[c] = 0.0
    return 0


@helper(exact=True)
def join_pieces(x, first, ready, rows, width, low, high, means, squares, centre, part):
    """Join the pieces from row first on to means and squares, those of which all rows are ready; return where the next one begins.

    Done are the columns low <= c < high, in the order that all of them would be.

    Args:
        x: [rows, width].
        first: rows that were joined before, whole pieces.
        ready: rows that are there.
        rows, width: of x.
        means, squares: [width] float64 mean and sum of squared deviations of every column.
        centre, part: scratch of width and of twice as many numbers.
    """
    step = piece_rows(width)
    four = together(rows, width) == 4
    while first < rows and min(first + step, rows) <= ready:
        size = min(step, rows - first)
        # Deviations are taken from a guess of the mean, so that squares of large means do not cancel.
        if first == 0:
            column_sums(x, 0, size, width, low, high, centre)
            for c in range(low, high):
                centre[c] = centre[c] / T(size)
        else:
            for c in range(low, high):
                centre[c] = T(means[c])
        column_moments(x, first, size, width, low, high, four, centre, part, pointer(address(part) + SIZE * width))
        for c in range(low, high):
            off = part[c] / size
            means[c], squares[c] = join(first, means[c], squares[c], size, centre[c] + off, part[width + c] - part[c] * off)
        first += size
    return first


@helper(exact=True)
def of_channel(means, squares, rows, width, channels, c):
    """Return mean and sum of squared deviations of a channel from those of its columns, each of so many rows."""
    mean, square, count = means[c], squares[c], rows
    for k in range(c + channels, width, channels):
        mean, square = join(count, mean, square, rows, means[k], squares[k])
        count += rows
    return mean, square


@kernel
def statistics_last(
    x: Ptr, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, rows: Int, width: Int, channels: Int, momentum: Real,
    epsilon: Real,
):
    """Statistics of [rows, width] whose columns are the channels over and over; means to centre hold width numbers, part twice as many."""
    join_pieces(x, no_moments(means, squares, 0, width), rows, rows, width, 0, width, means, squares, centre, part)
    for c in range(channels):
        mean, square = of_channel(means, squares, rows, width, channels, c)
        finish(
            mean, square, rows * (width // channels), old_mean, old_variance, new_mean, new_variance, saved_mean,
            saved_inverse, c, momentum, epsilon,
        )


@helper
def write_moments(means, squares, moments, rows, width, channels):
    """Write [2, channels] from what the columns have."""
    for c in range(channels):
        moments[c], moments[channels + c] = of_channel(means, squares, rows, width, channels, c)


@kernel
def moments_of_columns(
    x: Ptr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, rows: Int, width: Int, low: Int, high: Int
):
    """Means and sums of squared deviations that `statistics_last` would go by, of the columns from low to high."""
    join_pieces(x, no_moments(means, squares, low, high), rows, rows, width, low, high, means, squares, centre, part)


@kernel
def moments_of_channels(means: PtrF64, squares: PtrF64, moments: PtrF64, rows: Int, width: Int, channels: Int):
    """moments = means and sums of squared deviations, [2, channels], from those of the columns."""
    write_moments(means, squares, moments, rows, width, channels)


@kernel
def statistics_found(
    moments: PtrF64, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr,
    saved_inverse: Ptr, count: Int, channels: Int, momentum: Real, epsilon: Real,
):
    """Statistics of count rows whose moments were found before."""
    for c in range(channels):
        finish(
            moments[c], moments[channels + c], count, old_mean, old_variance, new_mean, new_variance, saved_mean,
            saved_inverse, c, momentum, epsilon,
        )


@kernel
def statistics_first(
    x: Ptr, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    samples: Int, channels: Int, size: Int, momentum: Real, epsilon: Real,
):
    """Statistics of [samples, channels, size]."""
    for c in range(channels):
        mean = 0.0
        squares = 0.0
        for s in range(samples):
            m, q = run_moments(x, (s * channels + c) * size, size)
            mean, squares = join(s * size, mean, squares, size, m, q)
        finish(
            mean, squares, samples * size, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c,
            momentum, epsilon,
        )


@kernel
def statistics_given(mean: Ptr, variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr, channels: Int, epsilon: Real):
    """The running statistics as the saved ones."""
    for c in range(channels):
        saved_mean[c] = mean[c]
        saved_inverse[c] = T(1.0 / (variance[c] + epsilon) ** 0.5)


@kernel
def copy_two(a: Ptr, b: Ptr, c: Ptr, d: Ptr, n: Int):
    """b = a, d = c."""
    for i in range(n):
        b[i] = a[i]
        d[i] = c[i]


# --- values -----------------------------------------------------------------------------------------------------------


@helper
def each_row(row, here, x, g, table, y, rows, width, spare):
    """Do `row(x, g, table, y, width, width)` for all rows of [rows, width], or, where y is g, `here(x, table, y, width, width)`.

    Both are `apart`, and do as many elements of a row as the last argument says; table holds what they need of every column. The last
    run of rows comes first: the sums before were taken in order, and left it in the caches. Large results are written past these, from
    spare, a row of scratch.
    """
    same = address(g) == address(y)
    far = not same and is_non_temporal(address(y), width, rows * width)
    run = max(1, RUN // (SIZE * width))
    for end in range(rows, 0, -run):
        for r in range(max(0, end - run), end):
            at = SIZE * r * width
            source, target = pointer(address(x) + at), pointer(address(y) + at)
            if same:
                here(source, table, target, width, width)
            else:
                row(source, pointer(address(g) + at), table, spare if far else target, width, width)
                if far:
                    store_row(address(spare), address(target), width)
    fence_non_temporal()


@helper
def fill_table(mean, inverse, scale, bias, table, width, channels):
    """Write the mean, the factor and the bias of every column, one after the other."""
    fill_columns(mean, inverse, scale, bias, table, width, 0, width, channels)


@helper
def fill_columns(mean, inverse, scale, bias, table, width, low, high, channels):
    """Do `fill_table` for the columns from low to high."""
    for j in range(low, high):
        c = j % channels
        table[j] = mean[c]
        table[width + j] = inverse[c] * scale[c]
        table[2 * width + j] = bias[c]


@apart
def _normalise_row(x, g, table, y, width, count):
    for j in range(count):
        y[j] = (x[j] - table[j]) * table[width + j] + table[2 * width + j]


@apart
def normalise_here(x, table, y, width, count):
    """Do `_normalise_row` where y is x."""
    for j in range(count):
        y[j] = (y[j] - table[j]) * table[width + j] + table[2 * width + j]


@kernel
def normalise_last(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int, channels: Int
):
    """y = (x - mean) * inverse * scale + bias on [rows, width]; y may be x; table holds 4 * width numbers."""
    fill_table(mean, inverse, scale, bias, table, width, channels)
    spare = pointer(address(table) + SIZE * 3 * width)
    each_row(_normalise_row, normalise_here, x, x, table, y, rows, width, spare)


@kernel
def normalise_first(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, samples: Int, channels: Int, size: Int
):
    """The same on [samples, channels, size]."""
    for p in range(samples * channels):
        c = p % channels
        m, f, b = mean[c], inverse[c] * scale[c], bias[c]
        for i in range(p * size, p * size + size):
            y[i] = (x[i] - m) * f + b


# --- gradient ---------------------------------------------------------------------------------------------------------


@helper
def join_columns(sums, inverse, dscale, dbias, width, channels):
    """Write dbias from the first width sums and dscale from the others, the columns of a channel together."""
    for c in range(channels):
        for j in range(c + channels, width, channels):
            sums[c] += sums[j]
            sums[width + c] += sums[width + j]
        dbias[c] = T(sums[c])
        dscale[c] = T(sums[width + c] * inverse[c])


@kernel
def sums_of_channels(sums: PtrF64, inverse: Ptr, dscale: Ptr, dbias: Ptr, width: Int, channels: Int):
    """Do `join_columns` where threads share the columns."""
    join_columns(sums, inverse, dscale, dbias, width, channels)


@kernel
def gradient_sums_last(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, table: Ptr, rows: Int, width: Int,
    channels: Int,
):
    """dbias = sum(g), dscale = sum(g * normalised x) on [rows, width]; sums hold 2 * width numbers, table 3 * width."""
    for j in range(width):
        table[2 * width + j] = mean[j % channels]
        sums[j] = 0.0
        sums[width + j] = 0.0
    step = piece_rows(width)
    four = together(rows, width) == 4
    for first in range(0, rows, step):
        for j in range(2 * width):
            table[j] = T(0)
        size = min(step, rows - first)
        add_products(x, g, pointer(address(table) + SIZE * 2 * width), first, size, width, four, table)
        for j in range(2 * width):
            sums[j] += table[j]
    join_columns(sums, inverse, dscale, dbias, width, channels)


@kernel
def gradient_sums_first(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, dscale: Ptr, dbias: Ptr, samples: Int, channels: Int, size: Int
):
    """The same on [samples, channels, size]."""
    for c in range(channels):
        m = mean[c]
        total = 0.0
        product_ = 0.0
        for s in range(samples):
            start = (s * channels + c) * size
            for begin in range(start, start + size, 1024):
                a = T(0)
                b = T(0)
                for i in range(begin, min(start + size, begin + 1024)):
                    a += g[i]
                    b += g[i] * (x[i] - m)
                total += a
                product_ += b
        dbias[c] = T(total)
        dscale[c] = T(product_ * inverse[c])


@helper
def gradient_table(mean, inverse, scale, dscale, dbias, table, width, channels, share):
    """Write the numbers of every column that make dx, see `slope`: mean, factor of g, factor of x - mean, and the rest."""
    for j in range(width):
        c = j % channels
        f = scale[c] * inverse[c]
        table[j] = mean[c]
        table[width + j] = f
        table[2 * width + j] = -(f * inverse[c] * dscale[c] * share)
        table[3 * width + j] = -(f * dbias[c] * share)


@helper
def slope(g, d, f, k, b):
    """Return an element of dx, f g + k d + b, rounded alike wherever it is."""
    return fma(f, g, fma(k, d, b))


@apart
def _slope(x, g, table, dx, width, count):
    """Write a row of dx."""
    for j in range(count):
        dx[j] = slope(g[j], x[j] - table[j], table[width + j], table[2 * width + j], table[3 * width + j])


@apart
def _slope_here(x, table, dx, width, count):
    """Do `_slope` where dx is g."""
    for j in range(count):
        dx[j] = slope(dx[j], x[j] - table[j], table[width + j], table[2 * width + j], table[3 * width + j])


@kernel
def gradient_last(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, table: Ptr, rows: Int,
    width: Int, channels: Int, count: Int,
):
    """dx on [rows, width]; the statistics depend on count values of each channel; dx may be g; table holds 5 * width numbers."""
    share = T(min(1, count) / max(1, count))
    gradient_table(mean, inverse, scale, dscale, dbias, table, width, channels, share)
    spare = pointer(address(table) + SIZE * 4 * width)
    each_row(_slope, _slope_here, x, g, table, dx, rows, width, spare)


@kernel
def gradient_first(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, samples: Int, channels: Int,
    size: Int, batch: Int,
):
    """The same on [samples, channels, size]."""
    share = T(batch / max(1, samples * size))
    for p in range(samples * channels):
        c = p % channels
        m, f = mean[c], scale[c] * inverse[c]
        k, b = -(f * inverse[c] * dscale[c] * share), -(f * dbias[c] * share)
        if address(g) == address(dx):
            for i in range(p * size, p * size + size):
                dx[i] = slope(dx[i], x[i] - m, f, k, b)
        else:
            for i in range(p * size, p * size + size):
                dx[i] = slope(g[i], x[i] - m, f, k, b)
