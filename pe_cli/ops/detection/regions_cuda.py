"""roi_align, roi_pool and prroi_pool on CUDA: a thread per output element forward, one per channel of an image backward.

Backward, a thread goes through the regions of its image in order, as the CPU does, so that no bit depends on the number of threads.
"""

from __future__ import annotations

import math

from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.detection.prroi_pool import (
    _area,
    _first,
    _hat,
    _last,
    integral,
    mean_exactly,
    mean_exactly_back,
    prroi_pool,
)
from pe_cli.ops.detection.roi_align import (
    _inside,
    _samples,
    align,
    pool_regions,
    pool_regions_back,
    roi_align,
    roi_pool,
)


# Overlapping regions add to the same pixels: with a thread per output element backward they would need atomics, whose order changes from
# run to run. A thread per channel of an image instead walks over all regions.
@on_cuda(align)
def align_cuda(  # noqa: C901, PLR0912 (loops over regions, parts and points)
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, regions: Int, C: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real, points: Int,
    images: Int, back: Int,
):  # fmt: skip
    """One thread per output element, or per channel of an image."""
    if back:
        for plane in range(images * C):
            at = plane * H * W
            for k in range(at, at + H * W):
                x[k] = T(0)
            for r in range(regions):
                if owner[r] != plane // C:
                    continue
                x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
                h = max(rois[4 * r + 3] * scale - y1, 1.0) / PH
                w = max(rois[4 * r + 2] * scale - x1, 1.0) / PW
                m, n = _samples(points, h), _samples(points, w)
                for i in range(PH):
                    for j in range(PW):
                        share = out[((r * C + plane % C) * PH + i) * PW + j] / (m * n)
                        for a in range(m):
                            row, down = _inside(y1 + i * h + (a + 0.5) * h / m, H)
                            for b in range(n):
                                column, right = _inside(x1 + j * w + (b + 0.5) * w / n, W)
                                if row >= 0 and column >= 0:
                                    p = at + row * W + column
                                    q = p + (W if down > 0.0 else 0)
                                    s = 1 if right > 0.0 else 0
                                    x[p] += T(share * (1.0 - down) * (1.0 - right))
                                    x[p + s] += T(share * (1.0 - down) * right)
                                    x[q] += T(share * down * (1.0 - right))
                                    x[q + s] += T(share * down * right)
    else:
        for o in range(regions * C * PH * PW):
            r, c, i, j = o // (C * PH * PW), o // (PH * PW) % C, o // PW % PH, o % PW
            x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
            h = max(rois[4 * r + 3] * scale - y1, 1.0) / PH
            w = max(rois[4 * r + 2] * scale - x1, 1.0) / PW
            m, n = _samples(points, h), _samples(points, w)
            at = (owner[r] * C + c) * H * W
            total = 0.0
            for a in range(m):
                row, down = _inside(y1 + i * h + (a + 0.5) * h / m, H)
                for b in range(n):
                    column, right = _inside(x1 + j * w + (b + 0.5) * w / n, W)
                    if row >= 0 and column >= 0:
                        p = at + row * W + column
                        q = p + (W if down > 0.0 else 0)
                        s = 1 if right > 0.0 else 0
                        top = x[p] * (1.0 - right) + x[p + s] * right
                        low = x[q] * (1.0 - right) + x[q + s] * right
                        total += top * (1.0 - down) + low * down
            out[o] = T(total / (m * n))


@on_cuda(pool_regions)
def pool_regions_cuda(
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, where: PtrI64, regions: Int, C: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real
):
    """One thread per output element."""
    for o in range(regions * C * PH * PW):
        r, c, i, j = o // (C * PH * PW), o // (PH * PW) % C, o // PW % PH, o % PW
        x1, y1 = math.floor(rois[4 * r] * scale + 0.5), math.floor(rois[4 * r + 1] * scale + 0.5)
        x2, y2 = math.floor(rois[4 * r + 2] * scale + 0.5), math.floor(rois[4 * r + 3] * scale + 0.5)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        at = (owner[r] * C + c) * H * W
        best = T(0)
        found = -1
        for row in range(max(y1 + i * h // PH, 0), min(y1 + ((i + 1) * h + PH - 1) // PH, H)):
            for column in range(max(x1 + j * w // PW, 0), min(x1 + ((j + 1) * w + PW - 1) // PW, W)):
                v = x[at + row * W + column]
                if found < 0 or v > best:
                    best = v
                    found = row * W + column
        out[o] = best
        where[o] = found


@on_cuda(pool_regions_back)
def pool_regions_back_cuda(
    g: Ptr, owner: PtrI64, where: PtrI64, dx: Ptr, images: Int, regions: Int, C: Int, pixels: Int, parts: Int
):
    """One thread per channel of an image."""
    for plane in range(images * C):
        for k in range(plane * pixels, (plane + 1) * pixels):
            # Regions overlap, so a thread owns a channel of an image and meets all regions in their order.
            dx[k] = T(0)
        for r in range(regions):
            if owner[r] == plane // C:
                first = (r * C + plane % C) * parts
                for p in range(first, first + parts):
                    if where[p] >= 0:
                        dx[plane * pixels + where[p]] += g[p]


@on_cuda(mean_exactly)
def mean_exactly_cuda(
    x: Ptr, rois: Ptr, owner: PtrI64, out: Ptr, regions: Int, C: Int, H: Int, W: Int, PH: Int, PW: Int, scale: Real
):
    """One thread per output element."""
    for o in range(regions * C * PH * PW):
        r, c, i, j = o // (C * PH * PW), o // (PH * PW) % C, o // PW % PH, o % PW
        x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
        h = max(rois[4 * r + 3] * scale - y1, 0.0) / PH
        w = max(rois[4 * r + 2] * scale - x1, 0.0) / PW
        top, bottom, left, right = y1 + i * h, y1 + (i + 1) * h, x1 + j * w, x1 + (j + 1) * w
        at = (owner[r] * C + c) * H * W
        out[o] = T(integral(x, at, H, W, top, bottom, left, right) / (h * w) if h > 0.0 and w > 0.0 else 0.0)


@on_cuda(mean_exactly_back)
def mean_exactly_to_pixels(
    x: Ptr, rois: Ptr, owner: PtrI64, y: Ptr, g: Ptr, dx: Ptr, drois: Ptr, images: Int, regions: Int, C: Int, H: Int,
    W: Int, PH: Int, PW: Int, scale: Real, wanted: Int,
):  # fmt: skip
    """One thread per channel of an image."""
    if wanted & 1:
        for plane in range(images * C):
            at = plane * H * W
            for k in range(at, at + H * W):
                dx[k] = T(0)
            # A thread owns a channel of an image: pixels are shared by regions, and sums keep their order.
            for r in range(regions):
                x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
                h = max(rois[4 * r + 3] * scale - y1, 0.0) / PH
                w = max(rois[4 * r + 2] * scale - x1, 0.0) / PW
                if owner[r] != plane // C or not (h > 0.0 and w > 0.0):
                    continue
                for e in range(PH * PW):
                    i, j = e // PW, e % PW
                    top, bottom, left, right = y1 + i * h, y1 + (i + 1) * h, x1 + j * w, x1 + (j + 1) * w
                    v = g[(r * C + plane % C) * PH * PW + e] / (h * w)
                    for a in range(_first(top, H), _last(bottom, H)):
                        down = _area(bottom - a) - _area(top - a)
                        for b in range(_first(left, W), _last(right, W)):
                            dx[at + a * W + b] += T(v * (_area(right - b) - _area(left - b)) * down)


# A second form of the same kernel: pixels and regions need different threads, and each form does its part of what is wanted.
@on_cuda(mean_exactly_back)
def mean_exactly_to_regions(
    x: Ptr, rois: Ptr, owner: PtrI64, y: Ptr, g: Ptr, dx: Ptr, drois: Ptr, images: Int, regions: Int, C: Int, H: Int,
    W: Int, PH: Int, PW: Int, scale: Real, wanted: Int,
):  # fmt: skip
    """One thread per region."""
    if wanted & 2:
        for r in range(regions):
            x1, y1 = rois[4 * r] * scale, rois[4 * r + 1] * scale
            h = max(rois[4 * r + 3] * scale - y1, 0.0) / PH
            w = max(rois[4 * r + 2] * scale - x1, 0.0) / PW
            d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
            for e in range(PH * PW if h > 0.0 and w > 0.0 else 0):
                i, j = e // PW, e % PW
                top, bottom, left, right = y1 + i * h, y1 + (i + 1) * h, x1 + j * w, x1 + (j + 1) * w
                for c in range(C):
                    at, o = (owner[r] * C + c) * H * W, (r * C + c) * PH * PW + e
                    v = g[o] / (h * w)
                    on_left, on_right, on_top, on_bottom = 0.0, 0.0, 0.0, 0.0
                    for a in range(_first(top, H), _last(bottom, H)):
                        down = _area(bottom - a) - _area(top - a)
                        line = 0.0
                        for b in range(_first(left, W), _last(right, W)):
                            p = x[at + a * W + b]
                            line += p * (_area(right - b) - _area(left - b))
                            on_left += p * down * _hat(left - b)
                            on_right += p * down * _hat(right - b)
                        on_top += line * _hat(top - a)
                        on_bottom += line * _hat(bottom - a)
                    by_right, by_left = v * (on_right - y[o] * h), v * (y[o] * h - on_left)
                    by_bottom, by_top = v * (on_bottom - y[o] * w), v * (y[o] * w - on_top)
                    f, k = (j + 1) / PW, j / PW
                    d0 += by_right * (1.0 - f) + by_left * (1.0 - k)
                    d2 += by_right * f + by_left * k
                    f, k = (i + 1) / PH, i / PH
                    d1 += by_bottom * (1.0 - f) + by_top * (1.0 - k)
                    d3 += by_bottom * f + by_top * k
            drois[4 * r], drois[4 * r + 1] = T(d0 * scale), T(d1 * scale)
            drois[4 * r + 2], drois[4 * r + 3] = T(d2 * scale), T(d3 * scale)


also_on_cuda(roi_align, roi_pool, prroi_pool)
