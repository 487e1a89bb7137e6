"""The gradient of the filters of a 2-D convolution; images, filters and `geometry` are those of `pe_cli.kernels.cpu.conv`."""

from __future__ import annotations

from pe_cli.kernels.cpu.conv import PIXELS, gains_by_touch, left_over
from pe_cli.kernels.cpu.conv_window import outputs_inside, taps_inside
from pe_cli.kernels.cpu.microkernels import block_units, panel
from pe_cli.kernels.cpu.non_temporal import touch
from pe_cli.kernels.language import SIZE, UNIT, helper, pointer

#: Bytes of images and output gradients that a filter gradient reads once for all taps: half of a common L2.
BLOCK_BYTES = 384 * 1024
#: Bytes of filters from which on blocks are larger: each reads and writes the whole gradient, and that takes longer than to read images
#: from the next cache.
LARGE_BYTES = 4 << 20
#: Bytes of their blocks.
MOST_BYTES = 2 << 20


@helper
def conv_backward_weight(x, dy, dw, n0, n1, a0, a1, acc, geometry, scratch):
    """Write the rows a0 <= a < a1 of dw (+)= the gradient of the filters over images n0 <= n < n1.

    Args:
        x: address of images [N, H, W, C].
        dy: address of the gradient of the outputs [N, OH, OW, OC].
        dw: address of [kh, kw, C/groups, OC].
        n0: first image.
        n1: past the last image; an empty range writes zeros, or nothing when acc.
        a0: first row of taps, for callers that split the work without private copies of dw.
        a1: past the last row of taps, kh for all.
        acc: 1 to add to dw, 0 to overwrite it.
        geometry: see `pe_cli.kernels.cpu.conv`.
        scratch: address of `conv_forward_scratch` elements; calls for other rows of taps may share it.
    """
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dilation, groups = geometry
    x += SIZE * n0 * H * W * C
    dy += SIZE * n0 * OH * OW * OC
    c, o = C // groups, OC // groups
    images = max(n1 - n0, 0)
    if kh * kw == 1 and sh == 1 and sw == 1 and ph == 0 and pw == 0 and OH == H and OW == W:
        # All pixels are one long image of short rows; what is left over comes last.
        pixels = images * H * W
        width = min(PIXELS, max(pixels, 1))
        height = pixels // width
        for g in range(groups):
            at_x, at_y, at_w = x + SIZE * g * c, dy + SIZE * g * o, dw + SIZE * g * o
            shape = (height, width, height, width)
            _weights(at_x, at_y, at_w, 1, shape, (1, 1, c, o), (1, 1, 0, 0, 1, 1), C, OC, a0, a1, acc, scratch)
            rest = pixels - height * width
            if rest:
                skip = SIZE * height * width
                _weights(
                    at_x + skip * C, at_y + skip * OC, at_w, 1, (1, rest, 1, rest), (1, 1, c, o), (1, 1, 0, 0, 1, 1),
                    C, OC, a0, a1, 1, scratch,
                )  # fmt: skip
        return
    for g in range(groups):
        _weights(
            x + SIZE * g * c, dy + SIZE * g * o, dw + SIZE * g * o, images, (H, W, OH, OW), (kh, kw, c, o),
            (sh, sw, ph, pw, dh, dilation), C, OC, a0, a1, acc, scratch,
        )  # fmt: skip


@helper
def _weights(x, dy, dw, images, shape, filters, steps, xp, yp, a0, a1, acc, scratch):
    """Do `conv_backward_weight` for one group, in blocks of images or of rows that stay in L2 for all taps.

    Output channels that are left over are rows of a product whose columns are the taps of a row; scratch keeps their sums.
    """
    H, W, OH, OW = shape
    kh, kw, C, OC = filters
    image = SIZE * (H * W * xp + OH * OW * yp)
    row = SIZE * (steps[0] * W * xp + OW * yp)
    large = SIZE * kh * kw * C * OC >= LARGE_BYTES
    most = MOST_BYTES if large else BLOCK_BYTES
    rows = OH if image <= most else min(OH, max(1, most // max(row, 1)))
    # Images too large for a block go in runs of rows, one image at a time.
    block = max(1, most // max(image, 1)) if rows == OH else 1
    extra = left_over(filters, steps[5] == 1 and xp == C)
    n = 0
    add = acc
    while True:
        count = max(min(block, images - n), 0)
        at_x, at_y = x + SIZE * n * H * W * xp, dy + SIZE * n * OH * OW * yp
        r = 0
        while True:
            end = min(r + rows, OH)
            _weights_block(at_x, at_y, dw, count, shape, filters, steps, xp, yp, a0, a1, add, r, end, extra)
            if extra > 0:
                last, later = at_y + SIZE * (OC - extra), 0 if n == 0 and r == 0 else 1
                _left_over_block(at_x, last, scratch, count, shape, filters, steps, xp, yp, a0, a1, later, r, end, extra)
            add = 1
            r += rows
            if r >= OH:
                break
        n += block
        if n >= images:
            break
    terms = kh * kw * C
    # Sums of channels that are left over lie along the taps in scratch: they join the gradient once, when all blocks are done.
    for j in range(extra):
        sums, out = pointer(scratch + SIZE * j * terms), pointer(dw + SIZE * (OC - extra + j))
        for k in range(a0 * kw * C, a1 * kw * C):
            out[k * yp] = out[k * yp] + sums[k] if acc else sums[k]


@helper
def _rows_seen(a, r0, r1, H, OH, sh, ph, dh):
    """Return from which row to which, of outputs r0 to r1, row a of taps lies on the image, and the image's row under it at the first."""
    low, high = outputs_inside(OH, H, 1, sh, ph - a * dh, 1)
    low = max(low, r0)
    return low, max(min(high, r1), low), low * sh + a * dh - ph


@helper
def _left_over_block(x, dy, sums, images, shape, filters, steps, xp, yp, a0, a1, acc, r0, r1, extra):
    """Do `_weights_block` for the channels that are left over: sums are [extra, kh, kw, C]."""
    H, W, OH, OW = shape
    kh, kw, C, _ = filters
    sh, sw, ph, pw, dh, _ = steps
    terms = kh * kw * C
    w0, w1 = outputs_inside(OW, W, kw, sw, pw, 1)
    for a in range(a0, a1):
        low, high, top = _rows_seen(a, r0, r1, H, OH, sh, ph, dh)
        for j in range(-1, OW):
            if j >= 0 and w0 <= j < w1:
                continue
            inner = j < 0
            b0, b1 = (0, kw) if inner else taps_inside(j * sw - pw, W, kw, 1)
            at = w0 if inner else j
            columns = (b1 - b0) * C
            left = (columns + UNIT - 1) // UNIT
            column = 0
            while left > 0:
                d = block_units(left)
                panel(
                    d, extra, columns - column,
                    dy + SIZE * (low * OW + at) * yp,
                    x + SIZE * ((top * W + at * sw - pw + b0) * xp + column),
                    sums + SIZE * ((a * kw + b0) * C + column),
                    images, OH * OW * yp, H * W * xp,
                    high - low, OW * yp, sh * W * xp,
                    w1 - w0 if inner else 1, yp, sw * xp, 1, terms, acc if inner else 1, 0, 0,
                )  # fmt: skip
                column += d * UNIT
                left -= d


@helper
def _touch_images(x, images, height, width, channels, pixel, stride):
    """Bring images into the caches whose pixels have no other group's channels between them."""
    if pixel == channels and gains_by_touch(channels, stride):
        touch(x, width * channels, images * height, width * channels)


@helper
def _weights_block(x, dy, dw, images, shape, filters, steps, xp, yp, a0, a1, acc, r0, r1, extra):
    """Add the outputs of rows r0 <= i < r1 of some images to dw, but for the last extra channels."""
    H, W, OH, OW = shape
    _, kw, C, OC = filters
    OC -= extra
    sh, sw, ph, pw, dh, dilation = steps
    w0, w1 = outputs_inside(OW, W, kw, sw, pw, dilation)
    # Few channels would leave most of a row block empty: then all taps of a row are the rows of the product, and the
    # columns where some taps fall outside are added one by one.
    merged = dilation == 1 and xp == C and C < 8
    if r0 == 0 and r1 == OH and not merged:
        _touch_images(x, images, H, W, C, xp, sw)
        _touch_images(dy, images, OH, OW, OC + extra, yp, 1)
    for a in range(a0, a1):
        low, high, top = _rows_seen(a, r0, r1, H, OH, sh, ph, dh)
        left = (OC + UNIT - 1) // UNIT
        column = 0
        while left > 0:
            d = block_units(left)
            if merged:
                for j in range(-1, OW):
                    if j >= 0 and w0 <= j < w1:
                        continue
                    inner = j < 0
                    b0, b1 = (0, kw) if inner else taps_inside(j * sw - pw, W, kw, 1)
                    at = w0 if inner else j
                    panel(
                        d, (b1 - b0) * C, OC - column,
                        x + SIZE * (top * W + at * sw - pw + b0) * xp,
                        dy + SIZE * ((low * OW + at) * yp + column),
                        dw + SIZE * ((a * kw + b0) * C * yp + column),
                        images, H * W * xp, OH * OW * yp,
                        high - low, sh * W * xp, OW * yp,
                        w1 - w0 if inner else 1, sw * xp, yp, 1, yp, acc if inner else 1, 0, 0,
                    )  # fmt: skip
            else:
                for b in range(kw):
                    first, last = outputs_inside(OW, W, 1, sw, pw - b * dilation, 1)
                    panel(
                        d, C, OC - column,
                        x + SIZE * (top * W + first * sw + b * dilation - pw) * xp,
                        dy + SIZE * ((low * OW + first) * yp + column),
                        dw + SIZE * ((a * kw + b) * C * yp + column),
                        images, H * W * xp, OH * OW * yp,
                        high - low, sh * W * xp, OW * yp,
                        last - first, sw * xp, yp, 1, yp, acc, 0, 0,
                    )  # fmt: skip
            column += d * UNIT
            left -= d
