"""2-D convolution of NHWC images whose groups are single channels (depthwise): forward and both gradients.

With one output channel per group, as nearly always, channels lie side by side in vectors; more are plain loops. A `geometry` is that of
`pe_cli.kernels.cpu.conv`.
"""

# ruff: noqa: C901 - kernels take addresses, sizes and strides one by one, and loop in loops
from __future__ import annotations

from pe_cli.kernels.cpu.conv import phase
from pe_cli.kernels.cpu.conv_window import outputs_inside, taps_inside
from pe_cli.kernels.cpu.depthwise_microkernels import add_weights, gather
from pe_cli.kernels.cpu.non_temporal import fence_non_temporal, is_non_temporal
from pe_cli.kernels.language import SIZE, T, helper, pointer

#: Outputs of a row that give to the weights' gradient together: few enough to stay in the first cache for all rows of taps.
RUN = 16


@helper
def _gather_row(x, w, y, C, shape, top, taps, steps, yp, past):
    """Write y[j*yp + c] = sum over taps of x * w, for the channels c of one row of outputs.

    Args:
        x: address of the image [H, W, C].
        w: address of the first tap.
        y: address of the first output.
        C: channels.
        shape: (H, W, OW), pixels.
        top: the image's row at the first row of taps.
        taps: (rows, elements from row to row, columns, elements from column to column) of the filter.
        steps: (sw, pw, dh, dw); the pad may be negative.
        yp: elements from pixel to pixel in y.
        past: as for `gather`.
    """
    H, W, OW = shape
    kh, wr, kw, wc = taps
    sw, pw, dh, dw = steps
    w0, w1 = outputs_inside(OW, W, kw, sw, pw, dw)
    a0, a1 = taps_inside(top, H, kh, dh)
    # the inner columns together, the others, where some taps are outside, one by one
    j = 0
    while j < OW:
        inner = w0 <= j < w1
        count = w1 - w0 if inner else 1
        jx = j * sw - pw
        b0, b1 = (0, kw) if inner else taps_inside(jx, W, kw, dw)
        gather(
            C, count, x + SIZE * ((top + a0 * dh) * W + jx + b0 * dw) * C, sw * C, w + SIZE * (a0 * wr + b0 * wc),
            y + SIZE * j * yp, yp, a1 - a0, dh * W * C, wr, b1 - b0, dw * C, wc, past,
        )  # fmt: skip
        j += count


@helper
def depthwise_forward(x, w, y, images, geometry):
    """Do a convolution whose groups are single channels: output channel c*m + j sees input channel c only."""
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, _ = geometry
    m = OC // C
    if m == 1:
        past = 1 if is_non_temporal(y, C, images * OH * OW * C) else 0
        for n in range(images):
            for i in range(OH):
                _gather_row(
                    x + SIZE * n * H * W * C, w, y + SIZE * (n * OH + i) * OW * C, C, (H, W, OW), i * sh - ph,
                    (kh, kw * C, kw, C), (sw, pw, dh, dw), C, past,
                )  # fmt: skip
        fence_non_temporal()
        return
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
                        for q in range(C):
                            for e in range(q * m, q * m + m):
                                out[e] += pixel[q] * tap[e]


@helper
def depthwise_backward_data(dy, w, dx, images, geometry):
    """Write dx of a depthwise convolution, phase by phase as `conv.conv_backward_data` does."""
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, _ = geometry
    m = OC // C
    if m == 1:
        past = 1 if is_non_temporal(dx, C, images * H * W * C) else 0
        for n in range(images):
            for i in range(H):
                # With a stride a pixel is reached by some taps only, the same ones for all pixels of a phase: none is tried in vain.
                na, la, ta, oa = phase(i % sh, kh, sh, ph, dh)
                for b in range(min(sw, W)):
                    nb, lb, tb, ob = phase(b, kw, sw, pw, dw)
                    _gather_row(
                        dy + SIZE * n * OH * OW * C, w + SIZE * (la * kw + lb) * C,
                        dx + SIZE * ((n * H + i) * W + b) * C, C, (OH, OW, (W - b + sw - 1) // sw), i // sh + oa,
                        (na, -ta * kw * C, nb, -tb * C), (1, -ob, max(1, dh * ta // sh), max(1, dw * tb // sw)), sw * C,
                        past,
                    )  # fmt: skip
        fence_non_temporal()
        return
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
                        for q in range(C):
                            for e in range(q * m, q * m + m):
                                pixel[q] += grad[e] * tap[e]


@helper
def depthwise_backward_weight(x, dy, dw, images, row0, row1, acc, geometry):
    """Write rows row0 <= a < row1 of dw (+)= the gradient of the filters of a depthwise convolution."""
    H, W, C, OH, OW, OC, _, kw, sh, sw, ph, pw, dh, dilation, _ = geometry
    m = OC // C
    if not acc:
        rows = pointer(dw + SIZE * row0 * kw * OC)
        for q in range((row1 - row0) * kw * OC):
            rows[q] = T(0)
    for n in range(images):
        for i in range(OH):
            image = x + SIZE * n * H * W * C
            grads = dy + SIZE * (n * OH + i) * OW * OC
            if m == 1:
                _add_row(image, grads, dw, C, (H, W, OW), (row0, row1, kw), i * sh - ph, (sw, pw, dh, dilation))
                continue
            for a in range(row0, row1):
                ix = i * sh - ph + a * dh
                if ix < 0 or ix >= H:
                    continue
                for j in range(OW):
                    b0, b1 = taps_inside(j * sw - pw, W, kw, dilation)
                    grad = pointer(grads + SIZE * j * OC)
                    for b in range(b0, b1):
                        pixel = pointer(image + SIZE * (ix * W + j * sw - pw + b * dilation) * C)
                        tap = pointer(dw + SIZE * (a * kw + b) * OC)
                        for q in range(C):
                            for e in range(q * m, q * m + m):
                                tap[e] += grad[e] * pixel[q]


@helper
def _add_row(image, grads, dw, C, shape, taps, top, steps):
    """Add what one row of outputs gives to dw, for rows of taps from taps[0] to taps[1]; top: the image's row at tap 0."""
    H, W, OW = shape
    row0, row1, kw = taps
    sw, pw, dh, dilation = steps
    w0, w1 = outputs_inside(OW, W, kw, sw, pw, dilation)
    at = 0
    while at < OW:
        inner = w0 <= at < w1
        count = min(w1 - at, RUN) if inner else 1
        jx = at * sw - pw
        b0, b1 = (0, kw) if inner else taps_inside(jx, W, kw, dilation)
        for a in range(row0, row1):
            ix = top + a * dh
            if 0 <= ix < H:
                add_weights(
                    C, count, image + SIZE * (ix * W + jx + b0 * dilation) * C, sw * C, grads + SIZE * at * C, C,
                    dw + SIZE * (a * kw + b0) * C, b1 - b0, dilation * C, C,
                )  # fmt: skip
        at += count
