"""Computes which taps of a convolution's window lie inside the image, along one axis."""

from __future__ import annotations

from pe_cli.kernels.language import helper


@helper
def taps_inside(start, size, taps, dilation):
    """Return the range of taps inside the image for an output whose tap 0 is at `start`, along one axis."""
    low = max(0, (dilation - 1 - start) // dilation)
    high = min(taps, (size - 1 - start) // dilation + 1)
    return low, max(high, low)


@helper
def outputs_inside(outputs, size, taps, stride, pad, dilation):
    """Return the range of outputs whose taps all lie inside the image, along one axis; empty when there are none."""
    low = min(max(0, (pad + stride - 1) // stride), outputs)
    high = (size - 1 - (taps - 1) * dilation + pad) // stride + 1
    return low, min(max(high, low), outputs)
