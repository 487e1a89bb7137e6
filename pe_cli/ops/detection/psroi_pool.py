"""psroi_pool: the mean of the parts of regions, each part from channels of its own."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection import roi
from pe_cli.ops.detection.roi import nearest


@helper
def _pixels(low, high, scale, parts, part, size):
    """Return the first pixel of a part, and the one after the last."""
    start = T(nearest(low)) * scale
    # At least a tenth of a pixel: a region without a size would have parts without pixels and divide by 0.
    length = max(T(nearest(high) + T(1)) * scale - start, T(0.1)) / T(parts)
    first = math.floor(T(part) * length + start)
    after = math.ceil(T(part + 1) * length + start)
    return min(max(int(first), 0), size), min(max(int(after), 0), size)


# Exact: a fused product and sum could round an edge to the other side of a pixel on CUDA.
@kernel(exact=True)
def mean_of_parts(
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, channels: Int, regions: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real
):
    """out[r, c, i, j] = mean of part (i, j) of region r in channel (c PH + i) PW + j; 0 for a part without pixels."""
    # Channel k belongs to one part of one output, so channels are the outer loop, and each thread of CUDA has planes of its own.
    for k in range(channels):
        i, j = k // PW % PH, k % PW
        for r in range(regions):
            top, bottom = _pixels(rois[4 * r + 1], rois[4 * r + 3], T(scale), PH, i, H)
            left, right = _pixels(rois[4 * r], rois[4 * r + 2], T(scale), PW, j, W)
            at = (owner[r] * channels + k) * H * W
            total = T(0)
            for a in range(top, bottom):
                for b in range(left, right):
                    total += x[at + a * W + b]
            n = max(bottom - top, 0) * max(right - left, 0)
            out[r * channels + k] = total / T(n) if n > 0 else T(0)


@kernel(exact=True)
def mean_of_parts_back(
    g: Ptr, rois: Ptr, owner: PtrI64, dx: Ptr, channels: Int, images: Int, regions: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real
):
    """Spread each part's gradient evenly over its pixels."""
    for k in range(channels):
        i, j = k // PW % PH, k % PW
        for n in range(images):
            for p in range(H * W):
                dx[(n * channels + k) * H * W + p] = T(0)
        for r in range(regions):
            top, bottom = _pixels(rois[4 * r + 1], rois[4 * r + 3], T(scale), PH, i, H)
            left, right = _pixels(rois[4 * r], rois[4 * r + 2], T(scale), PW, j, W)
            at = (owner[r] * channels + k) * H * W
            # Recomputed and not kept: a part's pixels follow from its region alone.
            n = max(bottom - top, 0) * max(right - left, 0)
            for a in range(top, bottom):
                for b in range(left, right):
                    dx[at + a * W + b] += g[r * channels + k] / T(n)


@op(
    "psroi_pool",
    traits=[roi.REPORTS],
    inputs=roi.INPUTS,
    attrs={**roi.ATTRS, "output_channels": Attr(1, "channels of a region's output")},
    differentiable="X",
    samples=[
        Sample(
            {"X": (2, 12, 6, 5), "ROIs": roi.regions, "BatchRoINums": lambda rng: [2, 1]},
            {"output_channels": 2, "pooled_height": 2, "pooled_width": 3},
            "three regions of two images",
        ),
        Sample(
            {"X": (1, 4, 5, 5), "ROIs": lambda rng: [[1.3, 2.1, 8.4, 7.2]]},
            {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 2},
            "a region in other units",
        ),
        Sample({"X": (1, 1, 5, 5), "ROIs": (0, 4)}, name="no regions"),
    ],
)
def psroi_pool(
    x: TensorType,
    rois: TensorType,
    counts: TensorType | None,
    offsets: TensorType | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    output_channels: int,
) -> TensorType:
    """Average the parts of regions, each in channels of its own.

    Out[r, c, i, j] = mean over the pixels of part (i, j) of region r of X[image of r, (c pooled_height + i) pooled_width + j]

    The edges of a region are rounded to whole units, its last pixel is inside, and it is at least 0.1 pixels wide and high. A part has all
    pixels that it touches.

    Args:
        X: [images, output_channels pooled_height pooled_width, height, width] float32 or float64.
        ROIs: [regions, 4] element type of X: left, top, right, bottom.
        BatchRoINums: [images] int64: how many regions in a row belong to each image; may be left out for one image, and where
            ROIs has a sequence for each image.
        RoisLod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        Out: [regions, output_channels, pooled_height, pooled_width] element type of X; 0 for a part without pixels.

    Raises:
        PeError: types that do not fit; several images, and nothing says whose the regions are; while running, counts that do not sum
            to the regions.

    Source:
        fluid.layers.psroi_pool; Dai et al. 2016, "R-FCN", eq. 1.
    """
    out = roi.check("psroi_pool", x, rois, counts, offsets, pooled_height, pooled_width)
    wanted = output_channels * pooled_height * pooled_width
    if output_channels < 1 or x.shape[1] != wanted:
        sizes = f"{output_channels} by {pooled_height} by {pooled_width}"
        raise PeError(f"psroi_pool: {sizes} needs {wanted} channels, X has {x.shape[1]}", hint="a channel for each part of each output")
    return out.with_shape(out.shape[0], output_channels, pooled_height, pooled_width)


roi.of_sequences(psroi_pool)


@psroi_pool.lower("cpu")
def psroi_pool_cpu(o: Lowering) -> None:
    """Channel by channel."""
    x, rois, out = o.input("X"), o.input("ROIs"), o.output("Out")
    owner = roi.image_of(o, "psroi_pool")
    o.call(mean_of_parts, x, rois, owner, out, x.shape[1], rois.shape[0], *x.shape[2:], *out.shape[2:], o.attrs["spatial_scale"])


@psroi_pool.grad(uses="X ROIs BatchRoINums RoisLod").lower("cpu")
def psroi_pool_grad_cpu(o: Lowering) -> None:
    """Channel by channel, its regions in order: they overlap."""
    if o.has("X@GRAD"):
        x, rois, g = o.input("X"), o.input("ROIs"), o.input("Out@GRAD")
        sizes = (x.shape[1], x.shape[0], rois.shape[0], *x.shape[2:], *g.shape[2:])
        o.call(mean_of_parts_back, g, rois, roi.image_of(o, "psroi_pool"), o.output("X@GRAD"), *sizes, o.attrs["spatial_scale"])


deal(mean_of_parts, mean_of_parts_back)
also_on_cuda(psroi_pool)
