"""Kernels of sync_batch_norm: sums of one device's samples, and what joins those of all devices in their order."""

from __future__ import annotations

from pe_cli.kernels.cpu.channel_norm import finish
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, Real, T, kernel, pointer_f64
from pe_cli.kernels.math.moments import join


@kernel
def channel_moments(x: Ptr, sums: PtrF64, samples: Int, channels: Int, size: Int, last: Int):
    """Write each channel's mean, its sum of squared distances from that, and at the end the count."""
    count = samples * size
    # NHWC has a channel's elements `channels` apart, NCHW side by side.
    along, across = (channels, 1) if last else (1, size)
    for c in range(2 * channels):
        sums[c] = 0.0
    for s in range(samples):
        for c in range(channels):
            start = s * channels * size + c * across
            for i in range(start, start + size * along, along):
                sums[c] += x[i]
    for c in range(channels):
        # Two passes, mean first: the difference of mean squares would cancel where a mean is much larger than its spread.
        sums[c] = sums[c] / count if count > 0 else 0.0
    for s in range(samples):
        for c in range(channels):
            start = s * channels * size + c * across
            for i in range(start, start + size * along, along):
                sums[channels + c] += (x[i] - sums[c]) ** 2
    # Devices may have different numbers of samples, so the count travels with the moments.
    sums[2 * channels] = count


@kernel
def join_moments(
    tables: PtrI64,
    devices: Int,
    old_mean: Ptr,
    old_variance: Ptr,
    new_mean: Ptr,
    new_variance: Ptr,
    saved_mean: Ptr,
    saved_inverse: Ptr,
    channels: Int,
    momentum: Real,
    epsilon: Real,
):
    """Join the devices' moments in order and write saved and running statistics."""
    for c in range(channels):
        first = pointer_f64(tables[0])
        mean, squares, count = first[c], first[channels + c], first[2 * channels]
        for k in range(1, devices):
            sums = pointer_f64(tables[k])
            # A device without samples has no moments: a mean of 0 would pull the others down.
            if sums[2 * channels] == 0.0:
                continue
            # Pairwise join by Chan et al. 1979, always in the order of devices: every device computes the same bits for itself.
            mean, squares = join(count, mean, squares, sums[2 * channels], sums[c], sums[channels + c])
            count += sums[2 * channels]
        finish(
            mean,
            squares,
            count,
            old_mean,
            old_variance,
            new_mean,
            new_variance,
            saved_mean,
            saved_inverse,
            c,
            momentum,
            epsilon,
        )


@kernel
def channel_gradient_sums(
    x: Ptr,
    g: Ptr,
    mean: Ptr,
    inverse: Ptr,
    dscale: Ptr,
    dbias: Ptr,
    sums: PtrF64,
    samples: Int,
    channels: Int,
    size: Int,
    last: Int,
):
    """Write each channel's sum of g, of g times distance from the mean, and the count; and this device's dbias and dscale."""
    along, across = (channels, 1) if last else (1, size)
    for c in range(2 * channels):
        sums[c] = 0.0
    for s in range(samples):
        for c in range(channels):
            start = s * channels * size + c * across
            for i in range(start, start + size * along, along):
                sums[c] += g[i]
                sums[channels + c] += g[i] * (x[i] - mean[c])
    sums[2 * channels] = samples * size
    # A device's own sums, as every parameter's gradient is; they are added up with those of other devices later.
    for c in range(channels):
        dbias[c] = T(sums[c])
        dscale[c] = T(sums[channels + c] * inverse[c])


@kernel
def join_gradient_sums(tables: PtrI64, devices: Int, inverse: Ptr, dscale: Ptr, dbias: Ptr, channels: Int, count: Int):
    """Write the totals of all devices, as shares of count samples; the gradient's kernel divides by count."""
    total = 0.0
    for k in range(devices):
        total += pointer_f64(tables[k])[2 * channels]
    # The kernel that follows divides by this device's count, and the mean has to be over all devices: the totals are scaled by the ratio
    # here.
    share = count / total if total > 0 else 0.0
    for c in range(channels):
        bias = 0.0
        product = 0.0
        for k in range(devices):
            sums = pointer_f64(tables[k])
            bias += sums[c]
            product += sums[channels + c]
        dbias[c] = T(bias * share)
        dscale[c] = T(product * share * inverse[c])
