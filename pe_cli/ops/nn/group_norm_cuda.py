"""group_norm on CUDA: a warp on a group, or on a channel of a sample for the gradients' sums."""

from __future__ import annotations

from pe_cli.kernels.cuda.language import cuda, cuda_kernel, deal
from pe_cli.kernels.cuda.warp import LANES, WARPS, first_row, row_step, warp_sum
from pe_cli.kernels.language import Int, Ptr, Real, T, kernel
from pe_cli.kernels.math.vector_math import rsqrt
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.nn.group_norm import add_up, channel_totals, given, group_norm, sizes_of
from pe_cli.ops.nn.layer_norm import normalise_rows


@cuda_kernel(block=WARPS, threads=("32", "count"))
def scale_channels(y: Ptr, scale: Ptr, bias: Ptr, count: Int, channels: Int, pixels: Int, weights: Int):
    """y *= scale and += bias of its channel, a warp on a channel of a sample; weights: 1 scale, 2 bias, 3 both."""
    q = first_row()
    while q < count:
        i, end = q * pixels + cuda.threadIdx.x, (q + 1) * pixels
        s = scale[q % channels] if weights & 1 else T(1)
        b = bias[q % channels] if weights & 2 else T(0)
        while i < end:
            y[i] = y[i] * s + b
            i += LANES
        q += row_step()


@cuda_kernel(block=WARPS, threads=("32", "count"))
def channel_products(x: Ptr, g: Ptr, mean: Ptr, variance: Ptr, part: Ptr, count: Int, share: Int, pixels: Int, epsilon: Real):
    """part[2 q], part[2 q + 1] = sums of g, and of g times the normalised x, over the pixels of q, a channel of a sample: a warp's."""
    q = first_row()
    # A warp has one channel of one sample, so scale and bias are read once and not for every pixel.
    while q < count:
        r = q // share
        m, i, end = mean[r], q * pixels + cuda.threadIdx.x, (q + 1) * pixels
        a, b = T(0), T(0)
        while i < end:
            a += g[i]
            b += g[i] * (x[i] - m)
            i += LANES
        a, b = warp_sum(a), warp_sum(b)
        if cuda.threadIdx.x == 0:
            part[2 * q] = a
            part[2 * q + 1] = b * rsqrt(variance[r] + epsilon)
        q += row_step()


@kernel
def group_levels(
    part: Ptr, scale: Ptr, variance: Ptr, levels: Ptr, rows: Int, groups: Int, share: Int, pixels: Int, epsilon: Real, weights: Int
):
    """levels[2 r], levels[2 r + 1] = what `spread_groups` takes away from all of a group, and for each unit that x is above its mean."""
    # A group's few channels are summed by one thread: the long sums over pixels were made before.
    for r in range(rows):
        f = rsqrt(variance[r] + epsilon)
        level = T(0)
        k = T(0)
        for c in range(share):
            q = r * share + c
            s = scale[r % groups * share + c] if weights & 1 else T(1)
            level += s * part[2 * q]
            k += s * part[2 * q + 1]
        levels[2 * r] = level / T(share * pixels) * f
        levels[2 * r + 1] = k / T(share * pixels) * f * f


@cuda_kernel(block=WARPS, threads=("32", "count"))
def spread_groups(
    x: Ptr, g: Ptr, scale: Ptr, mean: Ptr, variance: Ptr, levels: Ptr, dx: Ptr, count: Int, channels: Int, share: Int, pixels: Int,
    epsilon: Real, weights: Int,
):  # fmt: skip
    """dx = f g scale - level - k (x - mean), f = 1 / sqrt(variance + epsilon); a warp on a channel of a sample."""
    q = first_row()
    while q < count:
        r = q // share
        i, end = q * pixels + cuda.threadIdx.x, (q + 1) * pixels
        m, s = mean[r], rsqrt(variance[r] + epsilon)
        if weights & 1:
            s *= scale[q % channels]
        level, k = levels[2 * r], levels[2 * r + 1]
        while i < end:
            dx[i] = s * g[i] - level - k * (x[i] - m)
            i += LANES
        q += row_step()


deal(group_levels, channel_totals)


@group_norm.lower("cuda")
def group_norm_cuda(o: Lowering) -> None:
    """Rows of groups as those of layer_norm; then scale and bias."""
    x, scale, bias, weights = given(o)
    rows, _, share, pixels = sizes_of(o, x)
    y = o.output("Y")
    moments = [o.output_or_scratch(slot, rows, x.dtype) for slot in ("Mean", "Variance")]
    # Without weights: a group is a row here, while scale and bias belong to channels, of which a row has several.
    o.call(normalise_rows, x, x, x, y, *moments, rows, share * pixels, o.attrs["epsilon"], 0)
    if weights and x.size:
        o.call(scale_channels, y, scale, bias, rows * share, x.shape[1], pixels, weights)


@group_norm.grad_op.lower("cuda")  # type: ignore[union-attr]
def group_norm_grad_cuda(o: Lowering) -> None:
    """Sums per channel of a sample, what they are for each group, and then element by element."""
    x, g, mean, variance = (o.input(s) for s in ("X", "Y@GRAD", "Mean", "Variance"))
    scaled, epsilon = bool(o.inputs("Scale")), o.attrs["epsilon"]
    scale = o.input("Scale") if scaled else x
    rows, groups, share, pixels = sizes_of(o, x)
    if x.size:
        # The sums of every channel serve two purposes: the gradients of scale and bias, and after weighing those of the whole group.
        part = o.scratch(2 * rows * share, x.dtype)
        o.call(channel_products, x, g, mean, variance, part, rows * share, share, pixels, epsilon)
        if o.has("X@GRAD"):
            levels, dx = o.scratch(2 * rows, x.dtype), o.output("X@GRAD")
            o.call(group_levels, part, scale, variance, levels, rows, groups, share, pixels, epsilon, int(scaled))
            o.call(spread_groups, x, g, scale, mean, variance, levels, dx, rows * share, x.shape[1], share, pixels, epsilon, int(scaled))
    else:
        part = x
    add_up(o, part)


also_on_cuda(group_norm)
