"""Channel normalisation fused with relu, and with the addition of another image before relu, without further passes over memory.

Without a sum the gradient finds out again where relu cut, by the same expression that the values came from: nothing is read for it.
With a sum it reads the values. Memory as in `channel_norm`: channels last in rows of channels over and over, or channels first.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.channel_norm import each_row, fill_columns, fill_table, gradient_table, normalise_here, slope
from pe_cli.kernels.language import SIZE, Int, Ptr, PtrF64, T, address, apart, helper, kernel, pointer
from pe_cli.kernels.math.moments import piece_rows, together
from pe_cli.kernels.math.vector_math import add, fma

# --- values -----------------------------------------------------------------------------------------------------------


@apart
def _relu_row(x, g, table, y, width, count):
    for j in range(count):
        v = (x[j] - table[j]) * table[width + j] + table[2 * width + j]
        y[j] = T(0) if v <= T(0) else v


@apart
def _relu_here(x, table, y, width, count):
    """Do `_relu_row` where y is x."""
    for j in range(count):
        v = (y[j] - table[j]) * table[width + j] + table[2 * width + j]
        y[j] = T(0) if v <= T(0) else v


@helper
def normalise_relu_run(x, table, width, y, count):
    """Write y = relu(normalised x), count elements that begin with a row's first; x and y are addresses, table is of `fill_table`."""
    for at in range(0, count, width):
        source = pointer(x + SIZE * at)
        _relu_row(source, source, table, pointer(y + SIZE * at), width, min(width, count - at))


@apart
def _finish_add_relu(z, table, y, width, count):
    """Do `_add_relu_row` where y is x."""
    for j in range(count):
        v = (y[j] - table[j]) * table[width + j] + table[2 * width + j]
        v = v + z[j]
        y[j] = T(0) if v <= T(0) else v


#: What `finish_run` does: normalise; and cut off below 0; and add another image before that.
PLAIN, RELU, ADD_RELU = 0, 1, 2


@helper
def finish_run(kind, z, table, width, y, count):
    """Normalise count elements of y in place, that begin with a row's first; z: address of as many others, for `ADD_RELU`."""
    for at in range(0, count, width):
        some = min(width, count - at)
        out = pointer(y + SIZE * at)
        if kind == PLAIN:
            normalise_here(out, table, out, width, some)
        elif kind == RELU:
            _relu_here(out, table, out, width, some)
        else:
            _finish_add_relu(pointer(z + SIZE * at), table, out, width, some)


@kernel
def normalise_relu_last(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int, channels: Int
):
    """y = relu((x - mean) * inverse * scale + bias) on [rows, width]; y may be x; table holds 4 * width numbers."""
    fill_table(mean, inverse, scale, bias, table, width, channels)
    spare = pointer(address(table) + SIZE * 3 * width)
    each_row(_relu_row, _relu_here, x, x, table, y, rows, width, spare)


@apart
def _add_relu_row(x, z, table, y, width, count):
    for j in range(count):
        v = (x[j] - table[j]) * table[width + j] + table[2 * width + j]
        v = v + z[j]
        y[j] = T(0) if v <= T(0) else v


@apart
def _add_relu_here(x, table, y, width, count):
    """Do `_add_relu_row` where y is z."""
    for j in range(count):
        v = (x[j] - table[j]) * table[width + j] + table[2 * width + j]
        v = v + y[j]
        y[j] = T(0) if v <= T(0) else v


@kernel
def normalise_add_relu_last(
    x: Ptr, z: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int,
    channels: Int,
):
    """y = relu((x - mean) * inverse * scale + bias + z) on [rows, width]; y may be z; table holds 4 * width numbers."""
    fill_table(mean, inverse, scale, bias, table, width, channels)
    spare = pointer(address(table) + SIZE * 3 * width)
    each_row(_add_relu_row, _add_relu_here, x, z, table, y, rows, width, spare)


@kernel
def normalise_relu_first(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, samples: Int, channels: Int, size: Int
):
    """y = relu(normalised x) on [samples, channels, size]."""
    for p in range(samples * channels):
        c = p % channels
        m, f, b = mean[c], inverse[c] * scale[c], bias[c]
        for i in range(p * size, p * size + size):
            v = (x[i] - m) * f + b
            y[i] = T(0) if v <= T(0) else v


@kernel
def normalise_add_relu_first(
    x: Ptr, z: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, row: Ptr, samples: Int, channels: Int, size: Int
):
    """y = relu(normalised x + z) on [samples, channels, size]; y may be z; row holds size numbers."""
    for p in range(samples * channels):
        c = p % channels
        m, f, b = mean[c], inverse[c] * scale[c], bias[c]
        at = p * size
        for i in range(size):  # a loop of its own: in one, b + z may be added first, which rounds differently
            row[i] = (x[at + i] - m) * f + b
        if address(z) == address(y):
            for i in range(size):
                v = row[i] + y[at + i]
                y[at + i] = T(0) if v <= T(0) else v
        else:
            for i in range(size):
                v = row[i] + z[at + i]
                y[at + i] = T(0) if v <= T(0) else v


# --- gradient of relu(normalised x) -----------------------------------------------------------------------------------


@helper
def _add_let(x, g, table, part, at, j, width, rows):
    """Add column j of some rows to part[j] and part[width + j], row after row, as `moments.add_products` does, where relu let x through."""
    total, inner = part[j], part[width + j]
    m, f, b = table[j], table[width + j], table[2 * width + j]
    for r in range(rows):
        k = at + r * width + j
        d = x[k] - m
        value = g[k]
        u = value if d * f + b > T(0) else T(0)
        total = add(total, u)
        inner = fma(u, d, inner)
    part[j] = total
    part[width + j] = inner


@kernel
def relu_sums_last(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, sums: PtrF64, table: Ptr, part: Ptr, rows: Int,
    width: Int, low: Int, high: Int, channels: Int,
):
    """The sums that `gradient_sums_last` joins, of g where relu let x through, in columns from low to high.

    sums and part hold 2 * width numbers, table 3 * width.
    """
    fill_columns(mean, inverse, scale, bias, table, width, low, high, channels)
    for j in range(low, high):
        sums[j] = 0.0
        sums[width + j] = 0.0
    step = piece_rows(width)
    four = together(rows, width) == 4
    for first in range(0, rows, step):
        for j in range(low, high):
            part[j] = T(0)
            part[width + j] = T(0)
        last = min(rows, first + step)
        r = first
        while r < last:
            at = r * width
            if four and r + 4 <= last:
                for j in range(low, high):
                    _add_let(x, g, table, part, at, j, width, 4)
                r += 4
            else:
                for j in range(low, high):
                    _add_let(x, g, table, part, at, j, width, 1)
                r += 1
        for j in range(low, high):
            sums[j] += part[j]
            sums[width + j] += part[width + j]


@apart
def _let_slope(x, g, table, dx, width, count):
    """Write a row of dx, of g where relu let x through."""
    # g is read whether it counts or not: a load that hangs on a comparison keeps machines without masks from using vectors.
    for j in range(count):
        d = x[j] - table[j]
        value = g[j]
        u = value if d * table[width + j] + table[4 * width + j] > T(0) else T(0)
        dx[j] = slope(u, d, table[width + j], table[2 * width + j], table[3 * width + j])


@apart
def _let_slope_here(x, table, dx, width, count):
    """Do `_let_slope` where dx is g."""
    for j in range(count):
        d = x[j] - table[j]
        value = dx[j]
        u = value if d * table[width + j] + table[4 * width + j] > T(0) else T(0)
        dx[j] = slope(u, d, table[width + j], table[2 * width + j], table[3 * width + j])


@kernel
def relu_gradient_last(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, table: Ptr,
    rows: Int, width: Int, channels: Int, count: Int,
):
    """dx, as `gradient_last` of g where relu let x through; dx may be g; table holds 6 * width numbers."""
    share = T(min(1, count) / max(1, count))
    gradient_table(mean, inverse, scale, dscale, dbias, table, width, channels, share)
    for j in range(width):
        table[4 * width + j] = bias[j % channels]
    spare = pointer(address(table) + SIZE * 5 * width)
    each_row(_let_slope, _let_slope_here, x, g, table, dx, rows, width, spare)


@kernel
def relu_back_first(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, out: Ptr, samples: Int, channels: Int, size: Int
):
    """out = g where relu let x through, else 0, on [samples, channels, size]; out may be g."""
    for p in range(samples * channels):
        c = p % channels
        m, f, b = mean[c], inverse[c] * scale[c], bias[c]
        if address(g) == address(out):
            for i in range(p * size, p * size + size):
                value = out[i]
                out[i] = value if (x[i] - m) * f + b > T(0) else T(0)
        else:
            for i in range(p * size, p * size + size):
                value = g[i]
                out[i] = value if (x[i] - m) * f + b > T(0) else T(0)


# --- gradient of relu(normalised x + z) -------------------------------------------------------------------------------


@apart
def _cut(x, y, g, dz, centre, total, inner, width):
    """Write a row of dz, and add it to the sums of its columns as `moments.add_products` does."""
    for j in range(width):
        value = g[j]
        u = value if y[j] > T(0) else T(0)
        dz[j] = u
        total[j] = add(total[j], u)
        inner[j] = fma(u, x[j] - centre[j], inner[j])


@apart
def _cut_here(x, y, dz, centre, total, inner, width):
    """Do `_cut` where dz is g."""
    for j in range(width):
        value = dz[j]
        u = value if y[j] > T(0) else T(0)
        dz[j] = u
        total[j] = add(total[j], u)
        inner[j] = fma(u, x[j] - centre[j], inner[j])


@kernel
def add_relu_sums_last(
    x: Ptr, y: Ptr, g: Ptr, mean: Ptr, dz: Ptr, sums: PtrF64, table: Ptr, rows: Int, width: Int, low: Int, high: Int,
    channels: Int,
):
    """dz = g where y > 0, else 0, and the sums of it that `gradient_sums_last` joins, in columns from low to high.

    dz may be g; sums hold 2 * width numbers, table 3 * width.
    """
    for j in range(low, high):
        table[2 * width + j] = mean[j % channels]
        sums[j] = 0.0
        sums[width + j] = 0.0
    step = piece_rows(width)
    same = address(g) == address(dz)
    total = pointer(address(table) + SIZE * low)
    inner, centre = pointer(address(total) + SIZE * width), pointer(address(total) + SIZE * 2 * width)
    for first in range(0, rows, step):
        for j in range(low, high):
            table[j] = T(0)
            table[width + j] = T(0)
        for r in range(first, min(rows, first + step)):
            at = SIZE * (r * width + low)
            row, seen, out = pointer(address(x) + at), pointer(address(y) + at), pointer(address(dz) + at)
            if same:
                _cut_here(row, seen, out, centre, total, inner, high - low)
            else:
                _cut(row, seen, pointer(address(g) + at), out, centre, total, inner, high - low)
        for j in range(low, high):
            # Pieces are summed in float32 and joined in float64: over many rows float32 alone would lose digits.
            sums[j] += table[j]
            sums[width + j] += table[width + j]
