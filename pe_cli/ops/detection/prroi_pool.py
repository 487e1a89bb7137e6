"""prroi_pool: the exact mean of an image between its pixels over the parts of regions; smooth in the regions too."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.detection import roi


@helper
def _hat(t):
    """Return 1 - |t|, at least 0: how much a pixel counts at a distance."""
    return max(1.0 - abs(t), 0.0)


@helper
def _area(t):
    """Return the integral of the hat up to t."""
    if t <= -1.0:
        return 0.0
    if t >= 1.0:
        return 1.0
    # The integral of 1 - |t| from -1 to t, in its two halves.
    return 0.5 * (t + 1.0) * (t + 1.0) if t < 0.0 else 1.0 - 0.5 * (1.0 - t) * (1.0 - t)


@helper
def _first(low, size):
    # Pixels count up to a distance of 1; one more on each side covers the truncation of int.
    return min(max(int(low) - 1, 0), size) if low > 0.0 else 0


@helper
def _last(high, size):
    return min(int(high) + 2, size) if high > 0.0 else 0


@helper
def integral(x, at, H, W, top, bottom, left, right):
    """Return the integral over a box of the image that begins at element `at`."""
    total = 0.0
    for a in range(_first(top, H), _last(bottom, H)):
        line = 0.0
        for b in range(_first(left, W), _last(right, W)):
            # The image is a sum of hats in each direction, so the integral over a box is the sum of pixels times two one-dimensional areas.
            line += x[at + a * W + b] * (_area(right - b) - _area(left - b))
        total += line * (_area(bottom - a) - _area(top - a))
    return total


@kernel
def mean_exactly(
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, regions: Int, C: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real
):
    """out[r, c, i, j] = integral of image c over part (i, j) of region r, by its area; 0 for one without area."""
    for r in range(regions):
        x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
        h = max(rois[4 * r + 3] * scale - y1, 0.0) / PH
        w = max(rois[4 * r + 2] * scale - x1, 0.0) / PW
        for i in range(PH):
            top, bottom = y1 + i * h, y1 + (i + 1) * h
            for j in range(PW):
                left, right = x1 + j * w, x1 + (j + 1) * w
                for c in range(C):
                    at = (owner[r] * C + c) * H * W
                    total = integral(x, at, H, W, top, bottom, left, right) / (h * w) if h > 0.0 and w > 0.0 else 0.0
                    out[((r * C + c) * PH + i) * PW + j] = T(total)


@kernel
def mean_exactly_back(  # noqa: C901 (loops over regions, parts and pixels)
    x: Ptr, rois: Ptr, owner: PtrI64, y: Ptr, g: Ptr, dx: Ptr, drois: Ptr, images: Int, regions: Int, C: Int, H: Int,
    W: Int, PH: Int, PW: Int, scale: Real, wanted: Int,
):  # fmt: skip
    """Give pixels their share (wanted 1), and move the edges of regions by what lies along them (2)."""
    if wanted & 1:
        for k in range(images * C * H * W):
            dx[k] = T(0)
    for r in range(regions):
        x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
        h = max(rois[4 * r + 3] * scale - y1, 0.0) / PH
        w = max(rois[4 * r + 2] * scale - x1, 0.0) / PW
        # Edges of all parts move with the region's four edges, so their gradients are summed here.
        d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
        for i in range(PH):
            top, bottom = y1 + i * h, y1 + (i + 1) * h
            for j in range(PW):
                left, right = x1 + j * w, x1 + (j + 1) * w
                if not (h > 0.0 and w > 0.0):
                    continue
                for c in range(C):
                    at = (owner[r] * C + c) * H * W
                    o = ((r * C + c) * PH + i) * PW + j
                    v = g[o] / (h * w)
                    on_left, on_right, on_top, on_bottom = 0.0, 0.0, 0.0, 0.0
                    for a in range(_first(top, H), _last(bottom, H)):
                        down = _area(bottom - a) - _area(top - a)
                        line = 0.0
                        for b in range(_first(left, W), _last(right, W)):
                            along = _area(right - b) - _area(left - b)
                            p = x[at + a * W + b]
                            line += p * along
                            on_left += p * down * _hat(left - b)
                            on_right += p * down * _hat(right - b)
                            if wanted & 1:
                                dx[at + a * W + b] += T(v * along * down)
                        on_top += line * _hat(top - a)
                        on_bottom += line * _hat(bottom - a)
                    # the mean changes by what an edge sweeps over, less the mean's part of the area that it adds
                    by_right, by_left = v * (on_right - y[o] * h), v * (y[o] * h - on_left)
                    by_bottom, by_top = v * (on_bottom - y[o] * w), v * (y[o] * w - on_top)
                    # Part j's right edge lies (j + 1) / PW of the way from the region's left edge to its right edge, and moves with both in
                    # that ratio.
                    f, k = (j + 1) / PW, j / PW
                    d0 += by_right * (1.0 - f) + by_left * (1.0 - k)
                    d2 += by_right * f + by_left * k
                    f, k = (i + 1) / PH, i / PH
                    d1 += by_bottom * (1.0 - f) + by_top * (1.0 - k)
                    d3 += by_bottom * f + by_top * k
        if wanted & 2:
            drois[4 * r], drois[4 * r + 1] = T(d0 * scale), T(d1 * scale)
            drois[4 * r + 2], drois[4 * r + 3] = T(d2 * scale), T(d3 * scale)


@op(
    "prroi_pool",
    traits=[roi.REPORTS],
    inputs=roi.INPUTS,
    attrs=roi.ATTRS,
    differentiable="X ROIs",
    samples=[
        Sample(
            {"X": (2, 2, 6, 5), "ROIs": lambda rng: rng.uniform(0, 1, (3, 4)) * 0.1 + roi.regions(rng),
             "BatchRoINums": lambda rng: [2, 1]},
            {"pooled_height": 2, "pooled_width": 3},
            "three regions of two images",
        ),
        Sample(
            {"X": (1, 1, 5, 5), "ROIs": lambda rng: rng.uniform(0, 1, (1, 4)) * 0.1 + [[1.3, 2.1, 8.4, 7.2]]},
            {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 2},
            "a region in other units",
        ),
        Sample({"X": (1, 1, 5, 5), "ROIs": (0, 4)}, name="no regions"),
    ],
)  # fmt: skip
def prroi_pool(
    x: TensorType,
    rois: TensorType,
    counts: TensorType | None,
    offsets: TensorType | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> TensorType:
    """Average an image over the parts of regions, exactly: the image is linear between its pixels and 0 outside.

    Out[r, c, i, j] = 1 / area of part (i, j) of region r times the integral of X[image of r, c] over it

    Args:
        X: [images, channels, height, width] float32 or float64.
        ROIs: [regions, 4] element type of X: left, top, right, bottom; 0 is the centre of the first pixel.
        BatchRoINums: [images] int64: how many regions in a row belong to each image; may be left out for one image, and where
            ROIs has a sequence for each image.
        RoisLod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        Out: [regions, channels, pooled_height, pooled_width] element type of X.

    Raises:
        PeError: types that do not fit; several images, and nothing says whose the regions are; while running, counts that do not sum
            to the regions.

    Source:
        fluid.layers.prroi_pool; Jiang et al. 2018, "Acquisition of Localization Confidence", eq. 5 and 6.
    """
    return roi.check("prroi_pool", x, rois, counts, offsets, pooled_height, pooled_width)


roi.of_sequences(prroi_pool)


@prroi_pool.lower("cpu")
def prroi_pool_cpu(o: Lowering) -> None:
    """Region by region."""
    x, rois, out = o.input("X"), o.input("ROIs"), o.output("Out")
    owner = roi.image_of(o, "prroi_pool")
    o.call(mean_exactly, x, rois, owner, out, rois.shape[0], *x.shape[1:], *out.shape[2:], o.attrs["spatial_scale"])


@prroi_pool.grad(uses="X ROIs BatchRoINums RoisLod Out").lower("cpu")
def prroi_pool_grad_cpu(o: Lowering) -> None:
    """Region by region, in order: they overlap."""
    x, rois, y, g = o.input("X"), o.input("ROIs"), o.input("Out"), o.input("Out@GRAD")
    owner = roi.image_of(o, "prroi_pool")
    wanted = int(o.has("X@GRAD")) + 2 * int(o.has("ROIs@GRAD"))
    # An output that is not wanted needs a pointer that is never written to: `wanted` says which.
    outs = [o.output(s) if o.has(s) else g for s in ("X@GRAD", "ROIs@GRAD")]
    sizes = (x.shape[0], rois.shape[0], *x.shape[1:], *y.shape[2:])
    o.call(mean_exactly_back, x, rois, owner, y, g, *outs, *sizes, o.attrs["spatial_scale"], wanted)
