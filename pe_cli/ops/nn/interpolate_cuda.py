"""Images at other places on CUDA: grid_sampler, bilinear_interp, nearest_interp and deformable_im2col.

Backward, pixels are shared: one thread goes through a channel of an image in order, as the CPU does, so that no bit depends on the
number of threads.
"""

from __future__ import annotations

import math

from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.nn.deformable_im2col import (
    DILATION_X,
    DILATION_Y,
    GROUPS,
    PAD_X,
    PAD_Y,
    STRIDE_X,
    STRIDE_Y,
    TAPS_X,
    TAPS_Y,
    _at,
    deformable_im2col,
    moved_pixels,
    moved_pixels_back,
)
from pe_cli.ops.nn.interpolate import (
    _pixel,
    _source,
    bilinear_interp,
    grid_sampler,
    nearest_interp,
    resize_linear,
    resize_nearest,
    sample_places,
    sample_places_back,
)


@on_cuda(sample_places_back)
def sample_to_pixels(
    x: Ptr, grid: Ptr, g: Ptr, dx: Ptr, dgrid: Ptr, n: Int, C: Int, H: Int, W: Int, places: Int, wanted: Int
):
    """One thread per channel of an image."""
    # Places share pixels, so a thread owns a channel of an image and meets all places in their order.
    if wanted & 1:
        for plane in range(n * C):
            at = plane * H * W
            for p in range(places):
                e = plane // C * places + p
                u, v = (grid[2 * e] + T(1)) * T(0.5) * (W - 1), (grid[2 * e + 1] + T(1)) * T(0.5) * (H - 1)
                s, r = math.floor(u), math.floor(v)
                b, a = T(u - s), T(v - r)
                d = g[plane * places + p]
                for i in range(2):
                    for j in range(2):
                        if 0 <= r + i < H and 0 <= s + j < W:
                            dx[at + (r + i) * W + s + j] += d * (a if i else T(1) - a) * (b if j else T(1) - b)


@on_cuda(sample_places_back)
def sample_to_grid(
    x: Ptr, grid: Ptr, g: Ptr, dx: Ptr, dgrid: Ptr, n: Int, C: Int, H: Int, W: Int, places: Int, wanted: Int
):
    """One thread per place of an image."""
    if wanted & 2:
        for e in range(n * places):
            u, v = (grid[2 * e] + T(1)) * T(0.5) * (W - 1), (grid[2 * e + 1] + T(1)) * T(0.5) * (H - 1)
            s, r = math.floor(u), math.floor(v)
            b, a = T(u - s), T(v - r)
            right, down = T(0), T(0)
            for c in range(C):
                at = (e // places * C + c) * H * W
                d = g[(e // places * C + c) * places + e % places]
                p00, p01 = _pixel(x, at, H, W, r, s), _pixel(x, at, H, W, r, s + 1)
                p10, p11 = _pixel(x, at, H, W, r + 1, s), _pixel(x, at, H, W, r + 1, s + 1)
                right += d * ((T(1) - a) * (p01 - p00) + a * (p11 - p10))
                down += d * ((T(1) - b) * (p10 - p00) + b * (p11 - p01))
            dgrid[2 * e], dgrid[2 * e + 1] = right * T(0.5) * (W - 1), down * T(0.5) * (H - 1)


@on_cuda(resize_linear)
def resize_linear_cuda(
    x: Ptr, y: Ptr, planes: Int, H: Int, W: Int, OH: Int, OW: Int, down: Real, along: Real, half: Int, back: Int
):
    """One thread per row of the result, or per plane."""
    # Backward, rows of the result share pixels: a thread then owns a plane.
    for e in range(planes if back else planes * OH):
        for f in range(e * OH if back else e, (e + 1) * OH if back else e + 1):
            plane = f // OH
            v = _source(f % OH, down, half)
            r = min(int(v), H - 1)
            q = min(r + 1, H - 1)
            a = T(v - r)
            for j in range(OW):
                u = _source(j, along, half)
                s = min(int(u), W - 1)
                t = min(s + 1, W - 1)
                b = T(u - s)
                top, low, o = (plane * H + r) * W, (plane * H + q) * W, f * OW + j
                if back:
                    x[top + s] += y[o] * (T(1) - a) * (T(1) - b)
                    x[top + t] += y[o] * (T(1) - a) * b
                    x[low + s] += y[o] * a * (T(1) - b)
                    x[low + t] += y[o] * a * b
                else:
                    line = x[top + s] * (T(1) - b) + x[top + t] * b
                    y[o] = line * (T(1) - a) + (x[low + s] * (T(1) - b) + x[low + t] * b) * a


@on_cuda(resize_nearest)
def resize_nearest_cuda(
    x: Ptr, y: Ptr, planes: Int, H: Int, W: Int, OH: Int, OW: Int, down: Real, along: Real, rounded: Real, back: Int
):
    """One thread per row of the result, or per plane."""
    for e in range(planes if back else planes * OH):
        # As in resize_linear: forward by rows, backward by planes, whose pixels several rows share.
        for f in range(e * OH if back else e, (e + 1) * OH if back else e + 1):
            r = min(int(down * (f % OH) + rounded), H - 1)
            for j in range(OW):
                p = (f // OH * H + r) * W + min(int(along * j + rounded), W - 1)
                if back:
                    x[p] += y[f * OW + j]
                else:
                    y[f * OW + j] = x[p]


@on_cuda(moved_pixels_back)
def moved_to_pixels(
    x: Ptr, offset: Ptr, mask: Ptr, d: Ptr, dx: Ptr, doffset: Ptr, dmask: Ptr, g: PtrI64, n: Int, masked: Int, wanted: Int
):
    """One thread per channel of an image; it begins with zeros."""
    C, H, W, OH, OW, K, groups = g[0], g[1], g[2], g[3], g[4], g[TAPS_Y] * g[TAPS_X], g[GROUPS]
    if wanted & 1:
        for e in range(n * C):
            # q is the offset group of the channel: channels of an image are dealt to groups in runs.
            q, at, P = e // C * groups + e % C // (C // groups), e * H * W, OH * OW
            for i in range(at, at + H * W):
                dx[i] = T(0)
            for f in range(K * P):
                k, p = f // P, f % P
                y = p // OW * g[STRIDE_Y] - g[PAD_Y] + k // g[TAPS_X] * g[DILATION_Y] + offset[(q * 2 * K + 2 * k) * P + p]
                z = p % OW * g[STRIDE_X] - g[PAD_X] + k % g[TAPS_X] * g[DILATION_X] + offset[(q * 2 * K + 2 * k + 1) * P + p]
                # A place a whole pixel outside sees nothing; nearer than that, the pixels inside still count.
                if y > -1 and z > -1 and y < H and z < W:
                    r, s = math.floor(y), math.floor(z)
                    a, b = T(y - r), T(z - s)
                    v = d[(e * K + k) * P + p]
                    m = mask[(q * K + k) * P + p] if masked else T(1)
                    for i in range(2):
                        for j in range(2):
                            if 0 <= r + i < H and 0 <= s + j < W:
                                dx[at + (r + i) * W + s + j] += v * m * ((a if i else T(1) - a) * (b if j else T(1) - b))


@on_cuda(moved_pixels_back)
def moved_to_offsets(
    x: Ptr, offset: Ptr, mask: Ptr, d: Ptr, dx: Ptr, doffset: Ptr, dmask: Ptr, g: PtrI64, n: Int, masked: Int, wanted: Int
):
    """One thread per tap and place of a group, which goes through the channels of the group in order."""
    C, H, W, OH, OW, K, groups = g[0], g[1], g[2], g[3], g[4], g[TAPS_Y] * g[TAPS_X], g[GROUPS]
    if wanted & 6:
        for e in range(n * groups * K * OH * OW):
            P = OH * OW
            q, k, p = e // (K * P), e // P % K, e % P
            y = p // OW * g[STRIDE_Y] - g[PAD_Y] + k // g[TAPS_X] * g[DILATION_Y] + offset[(q * 2 * K + 2 * k) * P + p]
            z = p % OW * g[STRIDE_X] - g[PAD_X] + k % g[TAPS_X] * g[DILATION_X] + offset[(q * 2 * K + 2 * k + 1) * P + p]
            by_row, by_column, by_mask = T(0), T(0), T(0)
            if y > -1 and z > -1 and y < H and z < W:
                r, s = math.floor(y), math.floor(z)
                a, b = T(y - r), T(z - s)
                m = mask[e] if masked else T(1)
                for c in range(q * (C // groups), (q + 1) * (C // groups)):  # over all images: q // groups is the image
                    at = c * H * W
                    v = d[(c * K + k) * P + p]
                    p00, p01 = _at(x, at, H, W, r, s), _at(x, at, H, W, r, s + 1)
                    p10, p11 = _at(x, at, H, W, r + 1, s), _at(x, at, H, W, r + 1, s + 1)
                    by_row += v * m * ((T(1) - b) * (p10 - p00) + b * (p11 - p01))
                    by_column += v * m * ((T(1) - a) * (p01 - p00) + a * (p11 - p10))
                    by_mask += v * ((T(1) - a) * ((T(1) - b) * p00 + b * p01) + a * ((T(1) - b) * p10 + b * p11))
            if wanted & 2:
                doffset[(q * 2 * K + 2 * k) * P + p] = by_row
                doffset[(q * 2 * K + 2 * k + 1) * P + p] = by_column
            if wanted & 4:
                dmask[e] = by_mask


deal(sample_places, moved_pixels)
also_on_cuda(grid_sampler, bilinear_interp, nearest_interp, deformable_im2col)
