"""deformable_im2col: the pixels under each place of a filter whose taps are moved by given offsets, as columns of a matrix."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper, kernel
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op

#: Places in the list of sizes that kernels take, behind channels and the sizes of image and result.
TAPS_Y, TAPS_X, STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, DILATION_Y, DILATION_X, GROUPS = range(5, 14)


@helper
def _at(x, at, H, W, r, c):
    """Return a pixel, 0 outside the image."""
    return x[at + r * W + c] if 0 <= r < H and 0 <= c < W else T(0)


@kernel
def moved_pixels(x: Ptr, offset: Ptr, mask: Ptr, out: Ptr, g: PtrI64, n: Int, masked: Int):
    """out[image, channel, tap, place] = the pixel at a moved tap, between four neighbours, times the mask."""
    C, H, W, OH, OW, KH, KW = g[0], g[1], g[2], g[3], g[4], g[TAPS_Y], g[TAPS_X]
    K, P, groups = KH * KW, OH * OW, g[GROUPS]
    for e in range(n * C):
        image, c = e // C, e % C
        # Channels are dealt to groups in runs; offsets and masks lie by group of each image.
        q = image * groups + c // (C // groups)
        for k in range(K):
            for p in range(P):
                y = p // OW * g[STRIDE_Y] - g[PAD_Y] + k // KW * g[DILATION_Y] + offset[(q * 2 * K + 2 * k) * P + p]
                z = p % OW * g[STRIDE_X] - g[PAD_X] + k % KW * g[DILATION_X] + offset[(q * 2 * K + 2 * k + 1) * P + p]
                value = T(0)
                # Up to one pixel outside, a point still sees the border.
                if y > -1 and z > -1 and y < H and z < W:
                    r, s = math.floor(y), math.floor(z)
                    a, b = T(y - r), T(z - s)
                    at = e * H * W
                    top = (T(1) - b) * _at(x, at, H, W, r, s) + b * _at(x, at, H, W, r, s + 1)
                    low = (T(1) - b) * _at(x, at, H, W, r + 1, s) + b * _at(x, at, H, W, r + 1, s + 1)
                    value = (T(1) - a) * top + a * low
                out[(e * K + k) * P + p] = value * mask[(q * K + k) * P + p] if masked else value


@kernel
def moved_pixels_back(  # noqa: C901, PLR0912 (one pass over taps that share pixels)
    x: Ptr, offset: Ptr, mask: Ptr, d: Ptr, dx: Ptr, doffset: Ptr, dmask: Ptr, g: PtrI64, n: Int, masked: Int, wanted: Int
):
    """Scatter d to the four neighbours (wanted 1), and sum it along the slopes (2) and the pixels (4)."""
    C, H, W, OH, OW, KH, KW = g[0], g[1], g[2], g[3], g[4], g[TAPS_Y], g[TAPS_X]
    K, P, groups = KH * KW, OH * OW, g[GROUPS]
    # Several taps and channels add to one number, so everything begins as 0.
    if wanted & 1:
        for i in range(n * C * H * W):
            dx[i] = T(0)
    if wanted & 2:
        for i in range(n * groups * 2 * K * P):
            doffset[i] = T(0)
    if wanted & 4:
        for i in range(n * groups * K * P):
            dmask[i] = T(0)
    for e in range(n * C):
        image, c = e // C, e % C
        q = image * groups + c // (C // groups)
        at = e * H * W
        for k in range(K):
            for p in range(P):
                y = p // OW * g[STRIDE_Y] - g[PAD_Y] + k // KW * g[DILATION_Y] + offset[(q * 2 * K + 2 * k) * P + p]
                z = p % OW * g[STRIDE_X] - g[PAD_X] + k % KW * g[DILATION_X] + offset[(q * 2 * K + 2 * k + 1) * P + p]
                if not (y > -1 and z > -1 and y < H and z < W):
                    continue
                r, s = math.floor(y), math.floor(z)
                a, b = T(y - r), T(z - s)
                m = mask[(q * K + k) * P + p] if masked else T(1)
                # A mask scales the pixel, so it scales the gradients of pixel and offset as well.
                v = d[(e * K + k) * P + p]
                if wanted & 1:
                    for i in range(2):
                        for j in range(2):
                            if 0 <= r + i < H and 0 <= s + j < W:
                                f = (a if i else T(1) - a) * (b if j else T(1) - b)
                                dx[at + (r + i) * W + s + j] += v * m * f
                p00, p01 = _at(x, at, H, W, r, s), _at(x, at, H, W, r, s + 1)
                p10, p11 = _at(x, at, H, W, r + 1, s), _at(x, at, H, W, r + 1, s + 1)
                # Slopes of the bilinear value: by how much it grows with one pixel further down or to the right.
                if wanted & 2:
                    down = (T(1) - b) * (p10 - p00) + b * (p11 - p01)
                    right = (T(1) - a) * (p01 - p00) + a * (p11 - p10)
                    doffset[(q * 2 * K + 2 * k) * P + p] += v * m * down
                    doffset[(q * 2 * K + 2 * k + 1) * P + p] += v * m * right
                if wanted & 4:
                    top, low = (T(1) - b) * p00 + b * p01, (T(1) - b) * p10 + b * p11
                    dmask[(q * K + k) * P + p] += v * ((T(1) - a) * top + a * low)


@op(
    "deformable_im2col",
    inputs="X Offset Mask?",
    attrs={
        "ksize": Attr([1, 1], "height and width of the filter"),
        "strides": Attr([1, 1], "pixels between places"),
        "paddings": Attr([0, 0], "rows and columns of zeros on each side"),
        "dilations": Attr([1, 1], "pixels between taps"),
        "deformable_groups": Attr(1, "groups of channels with offsets of their own"),
    },
    samples=[
        Sample(
            {"X": (2, 4, 5, 6), "Offset": (2, 36, 3, 3), "Mask": (2, 18, 3, 3)},
            {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "deformable_groups": 2},
            "two groups, with masks",
        ),
        Sample({"X": (1, 2, 4, 4), "Offset": (1, 8, 2, 2)}, {"ksize": [2, 2], "dilations": [2, 2]}, "taps apart"),
        Sample({"X": (0, 2, 4, 4), "Offset": (0, 8, 3, 3)}, {"ksize": [2, 2]}, "an empty batch"),
    ],
)
def deformable_im2col(
    x: TensorType,
    offset: TensorType,
    mask: TensorType | None,
    *,
    ksize: list[int],
    strides: list[int],
    paddings: list[int],
    dilations: list[int],
    deformable_groups: int,
) -> TensorType:
    """Take the pixels under the moved taps of a filter, for every place of it.

    Out[n, c, tap, place] = Mask[n, group, tap, place] X[n, c] at (place * stride - padding + tap * dilation + offset), between its
    four neighbours; 0 outside.

    Args:
        X: [batch, channels, height, width] float32 or float64.
        Offset: [batch, groups * taps * 2, out height, out width] element type of X, in pixels: down and right for every tap.
        Mask: [batch, groups * taps, out height, out width]; default 1.

    Returns:
        Out: [batch, channels * taps, out height * out width] element type of X.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.deformable_conv; Zhu et al. 2018, "Deformable ConvNets v2", eq. 1.
    """
    if len(x.shape) != 4 or x.shape[1] % deformable_groups:
        raise PeError(f"deformable_im2col needs images whose channels {deformable_groups} groups share, got {x}")
    sizes = [
        -1 if s < 0 else (s + 2 * p - (d * (k - 1) + 1)) // st + 1
        for s, k, st, p, d in zip(x.shape[2:], ksize, strides, paddings, dilations, strict=True)
    ]
    if any(s == 0 or s < -1 for s in sizes):
        raise PeError(f"deformable_im2col: a filter of {ksize} does not fit into {x}")
    taps = ksize[0] * ksize[1]
    for name, given, each in (("Offset", offset, 2), ("Mask", mask, 1)):
        wanted = (deformable_groups * taps * each, *sizes)
        if given is not None and any(-1 not in (a, b) and a != b for a, b in zip(given.shape[1:], wanted, strict=True)):
            raise PeError(f"deformable_im2col needs {name} [batch, {', '.join(map(str, wanted))}], got {given}")
    return x.with_shape(x.shape[0], x.shape[1] * taps, -1 if -1 in sizes else sizes[0] * sizes[1])


def _geometry(o: Lowering, x: Buffer, offset: Buffer) -> tuple[Numbers, int]:
    attrs = o.attrs
    lists = (*attrs["ksize"], *attrs["strides"], *attrs["paddings"], *attrs["dilations"])
    return Numbers((*x.shape[1:], *offset.shape[2:], *lists, attrs["deformable_groups"])), x.shape[0]


@deformable_im2col.lower("cpu")
def deformable_im2col_cpu(o: Lowering) -> None:
    """Channel by channel."""
    x, offset = o.input("X"), o.input("Offset")
    mask = o.input("Mask") if o.has("Mask") else x
    o.call(moved_pixels, x, offset, mask, o.output("Out"), *_geometry(o, x, offset), int(o.has("Mask")))


@deformable_im2col.grad(uses="X Offset Mask").lower("cpu")
def deformable_im2col_grad_cpu(o: Lowering) -> None:
    """Channel by channel, in order: taps share pixels, channels share offsets."""
    x, offset, g = o.input("X"), o.input("Offset"), o.input("Out@GRAD")
    masked = bool(o.inputs("Mask"))
    slots = ("X@GRAD", "Offset@GRAD", "Mask@GRAD")
    # An output that is not wanted still needs a pointer; `wanted` keeps the kernel from writing there.
    outs = [o.output(s) if o.has(s) else g for s in slots]
    wanted = sum(1 << i for i, s in enumerate(slots) if o.has(s))
    mask = o.input("Mask") if masked else x
    o.call(moved_pixels_back, x, offset, mask, g, *outs, *_geometry(o, x, offset), int(masked), wanted)
