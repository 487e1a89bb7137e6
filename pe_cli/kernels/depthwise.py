"""2-D convolution of NHWC images whose groups are single channels (depthwise): forward and both gradients, in plain loops.

A `geometry` is that of `pe_cli.kernels.conv`.
"""

# ruff: noqa: PLR0912, C901 - kernels take addresses, sizes and strides one by one, and loop in loops
from __future__ import annotations

from pe_cli.kernels.lang import SIZE, T, helper, pointer
from pe_cli.kernels.window import taps_inside


@helper
def depthwise_forward(x, w, y, images, geometry):
    """Do a convolution whose groups are single channels: output channel c*m + j sees input channel c only."""
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, _ = geometry
    m = OC // C
    for n in range(images):
        for i in range(OH):
            a0, a1 = taps_inside(i * sh - ph, H, kh, dh)
            for j in range(OW):
                b0, b1 = taps_inside(j * sw - pw, W, kw, dw)
                out = pointer(y + SIZE * ((n * OH + i) * OW + j) * OC)
                for q in range(OC):
                    out[q] = T(0)
                for a in range(a0, a1):
                    for b in range(b0, b1):
                        pixel = pointer(x + SIZE * ((n * H + i * sh - ph + a * dh) * W + j * sw - pw + b * dw) * C)
                        tap = pointer(w + SIZE * (a * kw + b) * OC)
                        if m == 1:
                            for q in range(C):
                                out[q] += pixel[q] * tap[q]
                        else:
                            for q in range(C):
                                for e in range(q * m, q * m + m):
                                    out[e] += pixel[q] * tap[e]


@helper
def depthwise_backward_data(dy, w, dx, images, geometry):
    """Write dx of a depthwise convolution."""
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, _ = geometry
    m = OC // C
    for n in range(images):
        whole = pointer(dx + SIZE * n * H * W * C)
        for q in range(H * W * C):
            whole[q] = T(0)
        for i in range(OH):
            a0, a1 = taps_inside(i * sh - ph, H, kh, dh)
            for j in range(OW):
                b0, b1 = taps_inside(j * sw - pw, W, kw, dw)
                grad = pointer(dy + SIZE * ((n * OH + i) * OW + j) * OC)
                for a in range(a0, a1):
                    for b in range(b0, b1):
                        pixel = pointer(dx + SIZE * ((n * H + i * sh - ph + a * dh) * W + j * sw - pw + b * dw) * C)
                        tap = pointer(w + SIZE * (a * kw + b) * OC)
                        if m == 1:
                            for q in range(C):
                                pixel[q] += grad[q] * tap[q]
                        else:
                            for q in range(C):
                                for e in range(q * m, q * m + m):
                                    pixel[q] += grad[e] * tap[e]


@helper
def depthwise_backward_weight(x, dy, dw, images, row0, row1, acc, geometry):
    """Write rows row0 <= a < row1 of dw of a depthwise convolution."""
    H, W, C, OH, OW, OC, _, kw, sh, sw, ph, pw, dh, dilation, _ = geometry
    m = OC // C
    for a in range(row0, row1):
        if not acc:
            row = pointer(dw + SIZE * a * kw * OC)
            for q in range(kw * OC):
                row[q] = T(0)
        for n in range(images):
            for i in range(OH):
                ix = i * sh - ph + a * dh
                if ix < 0 or ix >= H:
                    continue
                for j in range(OW):
                    b0, b1 = taps_inside(j * sw - pw, W, kw, dilation)
                    grad = pointer(dy + SIZE * ((n * OH + i) * OW + j) * OC)
                    for b in range(b0, b1):
                        pixel = pointer(x + SIZE * ((n * H + ix) * W + j * sw - pw + b * dilation) * C)
                        tap = pointer(dw + SIZE * (a * kw + b) * OC)
                        if m == 1:
                            for q in range(C):
                                tap[q] += grad[q] * pixel[q]
                        else:
                            for q in range(C):
                                for e in range(q * m, q * m + m):
                                    tap[e] += grad[e] * pixel[q]
