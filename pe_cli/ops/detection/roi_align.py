"""roi_align and roi_pool: what an image has in the parts of regions, at points between pixels or as the largest pixel."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection import roi


@helper
def _samples(given, length):
    """Return the points along one side of a part."""
    # Adaptive: one point per pixel of a part, so a large region does not skip pixels.
    return given if given > 0 else math.ceil(length)


@helper
def _inside(p, size):
    """Return (pixel, part of the next one) of a point, or (-1, 0) outside."""
    # Up to a pixel outside the outermost pixel still counts, by its nearest one, as in Detectron's code.
    if p < -1.0 or p > size:
        return -1, 0.0
    q = max(p, 0.0)
    low = int(q)
    # At the last pixel there is no next one; its part is 0 and the index stays inside.
    if low >= size - 1:
        return size - 1, 0.0
    return low, q - low


@kernel
def align(  # noqa: C901 (loops over regions, parts and points)
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, regions: Int, C: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real, points: Int,
    images: Int, back: Int,
):  # fmt: skip
    """out = mean of points of each part; with back, x += the gradient out spread over the same pixels."""
    # Forward and backward are one kernel: the geometry is most of it, and both must see the same points.
    if back:
        for k in range(images * C * H * W):
            x[k] = T(0)
    for r in range(regions):
        x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
        # At least one pixel wide and high, as in the first version of RoIAlign; later ones ("aligned") do not force that.
        h = max(rois[4 * r + 3] * scale - y1, 1.0) / PH
        w = max(rois[4 * r + 2] * scale - x1, 1.0) / PW
        m, n = _samples(points, h), _samples(points, w)
        for i in range(PH):
            for j in range(PW):
                for c in range(C):
                    o = ((r * C + c) * PH + i) * PW + j
                    at = (owner[r] * C + c) * H * W
                    total = 0.0
                    share = out[o] / (m * n)
                    for a in range(m):
                        row, down = _inside(y1 + i * h + (a + 0.5) * h / m, H)
                        for b in range(n):
                            column, right = _inside(x1 + j * w + (b + 0.5) * w / n, W)
                            if row < 0 or column < 0:
                                continue
                            p = at + row * W + column
                            # Steps of 0 where the next pixel has no part: it may lie outside the image.
                            q = p + (W if down > 0.0 else 0)
                            s = 1 if right > 0.0 else 0
                            if back:
                                x[p] += T(share * (1.0 - down) * (1.0 - right))
                                x[p + s] += T(share * (1.0 - down) * right)
                                x[q] += T(share * down * (1.0 - right))
                                x[q + s] += T(share * down * right)
                            else:
                                top = x[p] * (1.0 - right) + x[p + s] * right
                                low = x[q] * (1.0 - right) + x[q + s] * right
                                total += top * (1.0 - down) + low * down
                    if not back:
                        out[o] = T(total / (m * n))


@kernel
def pool_regions(
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, where: PtrI64, regions: Int, C: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real
):
    """out = largest pixel of each part, where = its place in the image; 0 and -1 for a part without pixels."""
    for r in range(regions):
        x1, y1 = math.floor(rois[4 * r] * scale + 0.5), math.floor(rois[4 * r + 1] * scale + 0.5)
        x2, y2 = math.floor(rois[4 * r + 2] * scale + 0.5), math.floor(rois[4 * r + 3] * scale + 0.5)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(PH):
            # Floor and ceiling in whole numbers: parts overlap by a pixel where they do not divide evenly, and none is skipped.
            a, b = max(y1 + i * h // PH, 0), min(y1 + ((i + 1) * h + PH - 1) // PH, H)
            for j in range(PW):
                c, d = max(x1 + j * w // PW, 0), min(x1 + ((j + 1) * w + PW - 1) // PW, W)
                for k in range(C):
                    at = (owner[r] * C + k) * H * W
                    best = T(0)
                    found = -1
                    for row in range(a, b):
                        for column in range(c, d):
                            v = x[at + row * W + column]
                            if found < 0 or v > best:
                                best = v
                                found = row * W + column
                    o = ((r * C + k) * PH + i) * PW + j
                    out[o] = best
                    where[o] = found


@kernel
def pool_regions_back(g: Ptr, owner: PtrI64, where: PtrI64, dx: Ptr, images: Int, regions: Int, C: Int, pixels: Int, parts: Int):
    """Give each part's gradient to its largest pixel."""
    for k in range(images * C * pixels):
        dx[k] = T(0)
    for r in range(regions):
        for c in range(C):
            for p in range((r * C + c) * parts, (r * C + c + 1) * parts):
                if where[p] >= 0:
                    dx[(owner[r] * C + c) * pixels + where[p]] += g[p]


_THREE = {"X": (2, 2, 6, 5), "ROIs": roi.regions, "BatchRoINums": lambda rng: [2, 1]}


@op(
    "roi_align",
    traits=[roi.REPORTS],
    inputs=roi.INPUTS,
    attrs={**roi.ATTRS, "sampling_ratio": Attr(-1, "points along each side of a part; -1: one per pixel, rounded up")},
    differentiable="X",
    samples=[
        Sample(_THREE, {"pooled_height": 2, "pooled_width": 3}, "three regions of two images"),
        Sample(
            {"X": (1, 1, 5, 5), "ROIs": lambda rng: [[1.3, 2.1, 8.4, 7.2]]},
            {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 2, "sampling_ratio": 2},
            "a region in other units",
        ),
        Sample({"X": (1, 1, 5, 5), "ROIs": (0, 4)}, name="no regions"),
    ],
)
def roi_align(
    x: TensorType,
    rois: TensorType,
    counts: TensorType | None,
    offsets: TensorType | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> TensorType:
    """Average an image over points of the parts of regions; between pixels it is linear.

    A region is at least one pixel wide and high. Points more than a pixel outside the image count as 0.

    Args:
        X: [images, channels, height, width] float32 or float64.
        ROIs: [regions, 4] element type of X: left, top, right, bottom.
        BatchRoINums: [images] int64: how many regions in a row belong to each image; may be left out for one image, and where
            ROIs has a sequence for each image.
        RoisLod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        Out: [regions, channels, pooled_height, pooled_width] element type of X.

    Raises:
        PeError: types that do not fit; several images, and nothing says whose the regions are; while running, counts that do not sum
            to the regions.

    Source:
        fluid.layers.roi_align; He et al. 2017, "Mask R-CNN", section 3.
    """
    return roi.check("roi_align", x, rois, counts, offsets, pooled_height, pooled_width)


def _align(o: Lowering, image: str, parts: object, *, back: bool) -> None:
    x, rois = o.input("X"), o.input("ROIs")
    pixels = o.output(image) if back else x
    height, width = o.attrs["pooled_height"], o.attrs["pooled_width"]
    o.call(
        align, pixels, rois, roi.image_of(o, "roi_align"), parts, rois.shape[0], *x.shape[1:], height, width,
        o.attrs["spatial_scale"], o.attrs["sampling_ratio"], x.shape[0], int(back),
    )  # fmt: skip


roi.of_sequences(roi_align)


@roi_align.lower("cpu")
def roi_align_cpu(o: Lowering) -> None:
    """Region by region."""
    _align(o, "X", o.output("Out"), back=False)


@roi_align.grad(uses="X ROIs BatchRoINums RoisLod").lower("cpu")
def roi_align_grad_cpu(o: Lowering) -> None:
    """Region by region, in order: they overlap."""
    if o.has("X@GRAD"):
        _align(o, "X@GRAD", o.input("Out@GRAD"), back=True)


@op(
    "roi_pool",
    traits=[roi.REPORTS],
    inputs=roi.INPUTS,
    outputs="Out Argmax",
    attrs=roi.ATTRS,
    differentiable="X",
    samples=[
        Sample(_THREE, {"pooled_height": 2, "pooled_width": 3}, "three regions of two images"),
        Sample({"X": (1, 1, 5, 5), "ROIs": (0, 4)}, name="no regions"),
    ],
)
def roi_pool(
    x: TensorType,
    rois: TensorType,
    counts: TensorType | None,
    offsets: TensorType | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> tuple[TensorType, TensorType]:
    """Take the largest pixel of each part of regions, whose edges are rounded to pixels.

    Part i of n of a region of h rows goes from row floor(i h / n) to ceil((i + 1) h / n).

    Args:
        X: [images, channels, height, width] float32 or float64.
        ROIs: [regions, 4] element type of X: left, top, right, bottom, the last ones inside.
        BatchRoINums: [images] int64: how many regions in a row belong to each image; may be left out for one image, and where
            ROIs has a sequence for each image.
        RoisLod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        Out: [regions, channels, pooled_height, pooled_width] element type of X; 0 for a part without pixels.
        Argmax: int64: place of that pixel in its image, -1 for none.

    Raises:
        PeError: types that do not fit; several images, and nothing says whose the regions are; while running, counts that do not sum
            to the regions.

    Source:
        fluid.layers.roi_pool; Girshick 2015, "Fast R-CNN", section 2.1.
    """
    out = roi.check("roi_pool", x, rois, counts, offsets, pooled_height, pooled_width)
    return out, TensorType(out.shape, "int64")


roi.of_sequences(roi_pool)


@roi_pool.lower("cpu")
def roi_pool_cpu(o: Lowering) -> None:
    """Region by region."""
    x, rois, out = o.input("X"), o.input("ROIs"), o.output("Out")
    owner = roi.image_of(o, "roi_pool")
    where = o.output("Argmax")
    o.call(pool_regions, x, rois, owner, out, where, rois.shape[0], *x.shape[1:], *out.shape[2:], o.attrs["spatial_scale"])


@roi_pool.grad(uses="X ROIs BatchRoINums RoisLod Argmax").lower("cpu")
def roi_pool_grad_cpu(o: Lowering) -> None:
    """Region by region, in order: they overlap."""
    x, g = o.input("X"), o.input("Out@GRAD")
    if o.has("X@GRAD"):
        parts = g.shape[2] * g.shape[3]
        owner, where = roi.image_of(o, "roi_pool"), o.input("Argmax")
        regions, pixels = g.shape[0], x.shape[2] * x.shape[3]
        o.call(pool_regions_back, g, owner, where, o.output("X@GRAD"), x.shape[0], regions, x.shape[1], pixels, parts)
