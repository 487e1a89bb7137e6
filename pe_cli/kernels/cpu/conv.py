"""2-D convolution of NHWC images with HWIO filters: forward and gradient of the images; `conv_filter_gradient` has that of the filters.

Everything is a sum of small matrix products over pixels (`micro.panel`) on the images as they lie: no padded copy, no
im2col. Output pixels whose taps all lie inside the image go row by row; border columns go as groups of rows with a
narrower filter. Groups of single channels work too, and `depthwise` is made for them.

A `geometry` is a tuple of 15 int64:

    (H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, groups)

image height and width in pixels, channels of all groups together, the same of the output, filter height and width in
taps, stride, padding above and left of the image, dilation (all along height, then width), and groups. Padding below
and right is implied by OH and OW. Filters are [kh, kw, C/groups, OC] row-major. Addresses are in bytes, sizes in
elements.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.conv_window import outputs_inside, taps_inside
from pe_cli.kernels.cpu.dot_products import MOST, dots
from pe_cli.kernels.cpu.microkernels import PAST, block_units, panel
from pe_cli.kernels.cpu.non_temporal import LINE, TOUCHED, fence_non_temporal, is_non_temporal, touch
from pe_cli.kernels.cpu.transpose import transpose
from pe_cli.kernels.language import SIZE, UNIT, T, helper, pointer, shared

#: Pixels of one block of a 1x1 convolution: its inputs stay in L2 while the columns of the filter pass.
PIXELS = 192
#: Elements of filters from which they are packed, column block by column block, each kept in L2 for the whole batch.
LARGE = 96 * 1024
#: Most columns in a block of vectors: three registers of 16 float32.
BLOCK_COLUMNS = 48
#: Terms of a sum, and of a row of taps, from which on few output channels that leave most of a unit empty are done apart.
APART, APART_ROW = 128, 32


@helper
def _apart_room(terms, columns):
    """Return the elements of scratch for the filters of the columns that are done apart, in whole lines."""
    return (MOST * terms + 15) // 16 * 16 if columns % 16 else 0


def _convolve_scratch(channels: int, out_channels: int, taps: int) -> int:
    """Return the elements of scratch of `convolve`: for columns that are dot products, and for a block of columns of large filters."""
    terms = taps * channels
    assert _apart_room.fn is not None
    return int(_apart_room.fn(terms, out_channels)) + (terms * BLOCK_COLUMNS if terms * out_channels >= LARGE else 0)


def conv_forward_scratch(channels: int, out_channels: int, kh: int, kw: int, groups: int = 1) -> int:
    """Return the elements of scratch of `conv_forward`: for channels left over, and for a block of columns of large filters.

    Args:
        channels: of the image, all groups.
        out_channels: of the output, all groups.
        kh: height of the filter.
        kw: width of the filter.
        groups: number of groups.
    """
    return _convolve_scratch(channels // groups, out_channels // groups, kh * kw)


def conv_backward_data_scratch(channels: int, out_channels: int, kh: int, kw: int, groups: int = 1) -> int:
    """Return the elements of scratch of `conv_backward_data`: the filters transposed, and what `conv_forward` has, for them.

    Args:
        channels: of the image, all groups.
        out_channels: of the output, all groups.
        kh: height of the filter.
        kw: width of the filter.
        groups: number of groups.
    """
    inputs, outputs = channels // groups, out_channels // groups
    assert _row_of_filters.fn is not None
    return kh * kw * int(_row_of_filters.fn(inputs)) * outputs + _convolve_scratch(outputs, inputs, kh * kw)


@helper
def gains_by_touch(channels, stride):
    """Return whether an image is not read in one run of addresses anyway: it is where every pixel is a line, one after the other."""
    return SIZE * channels > LINE or (SIZE * channels == LINE and stride > 1)


@helper
def _by_taps(d, used, image, w, out, shape, filters, steps, xp, wk, yp, yr):
    """Do `_convolve` for d vectors of columns of one image: row by row, each column of taps on all outputs that it reaches.

    For images with few inner columns: there every border column would be a product of its own, of a single row in corners.
    """
    H, W, OH, OW = shape
    kh, kw, C, _ = filters
    sh, sw, ph, pw, dh, dw = steps
    for i in range(OH):
        ix = i * sh - ph
        a0, a1 = taps_inside(ix, H, kh, dh)
        row = out + SIZE * i * yr
        for j in range(OW):
            pixel = pointer(row + SIZE * j * yp)
            for q in range(min(used, d * UNIT)):
                pixel[q] = T(0)
        for b in range(kw):
            j0, j1 = outputs_inside(OW, W, 1, sw, pw - b * dw, 1)
            panel(
                d, j1 - j0, used,
                image + SIZE * ((ix + a0 * dh) * W + j0 * sw - pw + b * dw) * xp,
                w + SIZE * (a0 * kw + b) * C * wk,
                row + SIZE * j0 * yp,
                a1 - a0, dh * W * xp, kw * C * wk, 1, 0, 0, C, 1, wk, sw * xp, yp, 1, 0, 0,
            )  # fmt: skip


@helper
def left_over(filters, dense):
    """Return how many last output channels are done apart, because they would leave a unit mostly empty.

    Args:
        filters: (kh, kw, C, OC).
        dense: whether the taps of a row see pixels that lie side by side, with all of their channels.
    """
    kh, kw, C, OC = filters
    extra = OC % UNIT
    few = extra <= MOST and 2 * extra <= UNIT
    return extra if dense and few and kw * C >= APART_ROW and kh * kw * C >= APART else 0


@helper
def _convolve(x, w, y, images, shape, filters, steps, xp, wk, yp, yr, yn, acc, scratch):
    """Write y[n*yn + i*yr + j*yp + o] (+)= sum over taps and channels, for one group.

    Args:
        x: address of the first image's first channel.
        w: address of [kh, kw, C, OC], rows of wk elements.
        y: address of the first output.
        images: how many.
        shape: (H, W, OH, OW), pixels.
        filters: (kh, kw, C, OC).
        steps: (sh, sw, ph, pw, dh, dw); pads may be negative.
        xp: elements from pixel to pixel in x; its rows and images are dense.
        wk: elements from channel to channel in w.
        yp: elements from pixel to pixel in y.
        yr: elements from row to row in y.
        yn: elements from image to image in y.
        acc: 1 to add each output's whole sum to y, 0 to overwrite it, PAST to do so past the caches.
        scratch: address of `_apart_room` elements.
    """
    H, W, OH, OW = shape
    kh, kw, C, OC = filters
    sh, sw, ph, pw, dh, dw = steps
    h0, h1 = outputs_inside(OH, H, kh, sh, ph, dh)
    w0, w1 = outputs_inside(OW, W, kw, sw, pw, dw)
    dense = dw == 1 and xp == C
    few_inside = acc != 1 and 2 * (w1 - w0) < OW
    terms = kh * kw * C
    extra = left_over(filters, dense)
    if extra > 0:
        transpose(w + SIZE * (OC - extra), wk, scratch, terms, terms, extra)
    for n in range(images):
        image = x + SIZE * n * H * W * xp
        if xp == C and H * W * C <= TOUCHED and gains_by_touch(C, sw):
            touch(image, W * C, H, W * C)
        left = (OC - extra + UNIT - 1) // UNIT
        column = 0
        while column < OC:
            d = block_units(left)
            by_taps = few_inside and d > 0
            filters_at = w + SIZE * column
            out = y + SIZE * (n * yn + column)
            # Segments of work: the inner columns of each row, then each border column: its inner rows, then each other
            # row.
            if by_taps:
                _by_taps(d, OC - extra - column, image, filters_at, out, shape, filters, steps, xp, wk, yp, yr)
            # -1 stands for all inner columns, whose taps all lie inside.
            for column_at in range(-1, -1 if by_taps else OW):
                if column_at >= 0 and w0 <= column_at < w1:
                    continue
                along = column_at < 0
                j = w0 if along else column_at
                jx = j * sw - pw
                b0, b1 = (0, kw) if along else taps_inside(jx, W, kw, dw)
                i = 0
                while i < OH:
                    group = (not along) and i == h0 and h1 > h0
                    rows = w1 - w0 if along else (h1 - h0 if group else 1)
                    ix = i * sh - ph
                    a0, a1 = taps_inside(ix, H, kh, dh)
                    inside = image + SIZE * ((ix + a0 * dh) * W + jx + b0 * dw) * xp
                    first = out + SIZE * (i * yr + j * yp)
                    from_x, from_y = (sw * xp, yp) if along else (sh * W * xp, yr)
                    if d > 0:
                        panel(
                            d, rows, OC - extra - column, inside, filters_at + SIZE * (a0 * kw + b0) * C * wk, first,
                            a1 - a0, dh * W * xp, kw * C * wk,
                            1 if dense else b1 - b0, dw * xp, C * wk,
                            (b1 - b0) * C if dense else C, 1, wk, from_x, from_y, acc, 0, 0,
                        )  # fmt: skip
                    else:
                        dots(
                            rows, extra, inside, from_x, scratch + SIZE * (a0 * kw + b0) * C, terms,
                            a1 - a0, dh * W * xp, kw * C, (b1 - b0) * C, first, from_y, 1, acc,
                        )  # fmt: skip
                    i += h1 - h0 if group else 1
            column += d * UNIT if d > 0 else extra
            left -= d


@helper
def _convolve_large(x, w, y, images, shape, filters, steps, xp, wk, yp, yr, yn, acc, scratch):
    """Do `_convolve` with filters beyond L2: a packed block of columns passes over all images before the next."""
    kh, kw, C, OC = filters
    packed = scratch + SIZE * _apart_room(kh * kw * C, OC)
    left = (OC + UNIT - 1) // UNIT
    column = 0
    while left > 0:
        d = block_units(left)
        wide = d * UNIT
        used = min(wide, OC - column)
        source = pointer(w + SIZE * column)
        target = pointer(packed)
        # A block of columns side by side stays in L2 for all images, where rows as long as all filters would not.
        for k in range(kh * kw * C):
            for j in range(used):
                target[k * wide + j] = source[k * wk + j]
        _convolve(
            x, packed, y + SIZE * column, images, shape, (kh, kw, C, used), steps, xp, wide, yp, yr, yn, acc, scratch
        )  # fmt: skip
        column += wide
        left -= d


@shared
def convolve(
    x, w, y, images, H, W, OH, OW, kh, kw, C, OC, sh, sw, ph, pw, dh, dw, xp, wk, yp, yr, yn, acc, scratch
):  # fmt: skip
    """Do `_convolve`; a 1x1 filter without stride takes all pixels of all images as rows of blocks.

    Args:
        scratch: address of room, see `conv_forward_scratch`.
        others: as for `_convolve`.
    """
    shape, filters, steps = (H, W, OH, OW), (kh, kw, C, OC), (sh, sw, ph, pw, dh, dw)
    flat = kh * kw == 1 and sh == 1 and sw == 1 and ph == 0 and pw == 0 and OH == H and OW == W
    if flat and yr == OW * yp and yn == OH * yr:
        done = 0
        pixels = images * H * W
        while done < pixels:
            # Pixels of all images are one long row: blocks of it keep what is read of the image in the caches for all columns of filters.
            size = min(PIXELS, pixels - done)
            blocks = (pixels - done) // size
            _convolve(
                x + SIZE * done * xp, w, y + SIZE * done * yp, blocks, (1, size, 1, size), filters, steps,
                xp, wk, yp, size * yp, size * yp, acc, scratch,
            )  # fmt: skip
            done += blocks * size
    elif kh * kw * C * OC >= LARGE and images > 0:
        _convolve_large(x, w, y, images, shape, filters, steps, xp, wk, yp, yr, yn, acc, scratch)
    else:
        _convolve(x, w, y, images, shape, filters, steps, xp, wk, yp, yr, yn, acc, scratch)


@helper
def conv_forward(x, w, y, n0, n1, geometry, pixel, scratch):
    """Write y[n0:n1] = convolution of x[n0:n1] with w.

    Args:
        x: address of images [N, H, W, C].
        w: address of filters [kh, kw, C/groups, OC].
        y: address of outputs [N, OH, OW, OC]; every element of the range is written.
        n0: first image.
        n1: past the last image.
        geometry: see the module.
        pixel: elements from pixel to pixel of y: more than OC where it has other channels too.
        scratch: address of `conv_forward_scratch` elements.
    """
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, groups = geometry
    x += SIZE * n0 * H * W * C
    y += SIZE * n0 * OH * OW * pixel
    c, o = C // groups, OC // groups
    past = is_non_temporal(y, pixel, (n1 - n0) * OH * OW * OC)
    for g in range(groups):
        convolve(
            x + SIZE * g * c, w + SIZE * g * o, y + SIZE * g * o, n1 - n0, H, W, OH, OW, kh, kw, c, o,
            sh, sw, ph, pw, dh, dw, C, OC, pixel, OW * pixel, OH * OW * pixel,
            PAST if past and SIZE * o % LINE == 0 else 0, scratch,
        )  # fmt: skip
    if past:
        fence_non_temporal()


@helper
def phase(offset, taps, stride, pad, dilation):
    """Return which taps reach image positions offset + stride*j, along one axis.

    Returns:
        count, first, step, shift: taps first, first - step, ..., (count of them) see output j + shift, j + shift +
        spread, ... with spread = dilation*step/stride.
    """
    first, second, count = -1, -1, 0
    for t in range(taps):
        if (offset + pad - t * dilation) % stride == 0:
            if first < 0:
                first = t
            elif second < 0:
                second = t
            count += 1
    if count == 0:
        return 0, 0, 0, 0
    step = second - first if second >= 0 else stride
    last = first + step * (count - 1)
    return count, last, step, (offset + pad - last * dilation) // stride


def adds_images_at_once(size: int, taps: int, outputs: int, stride: int, pad: int, dilation: int) -> bool:
    """Return whether `conv_backward_data` has each element's whole sum before it writes it, so that it may add it to another.

    Args:
        size: of the image along its width, pixels.
        taps: of the filter, likewise.
        outputs: width of the output.
        stride, pad, dilation: along the width.
    """
    assert phase.fn is not None
    assert outputs_inside.fn is not None
    for b in range(min(stride, size)):
        positions = -(-(size - b) // stride)
        count, _, step, shift = phase.fn(b, taps, stride, pad, dilation)
        low, high = outputs_inside.fn(positions, outputs, count, 1, -shift, max(1, dilation * step // stride))
        if 2 * (high - low) < positions:
            return False
    return True


@helper
def _row_of_filters(channels):
    """Return how many elements a row of transposed filters takes: whole lines, unless it is short."""
    return (channels + 15) // 16 * 16 if channels > 16 else channels


@helper
def conv_backward_data(dy, w, dx, n0, n1, acc, geometry, pixel, scratch):
    """Write dx[n0:n1] (+)= the gradient of the images.

    The positions of dx fall into sh*sw phases by their remainder; each is a stride-1 convolution of dy with the taps
    that reach it, flipped and transposed. A phase that no tap reaches (stride larger than the filter) becomes zero.

    Args:
        dy: address of the gradient of the outputs [N, OH, OW, OC].
        w: address of filters [kh, kw, C/groups, OC].
        dx: address of [N, H, W, C]; every element of the range is written.
        n0: first image.
        n1: past the last image.
        acc: 1 to add to dx, each element's whole sum at once; 0 to overwrite it. Where
            `adds_images_at_once` does not hold, 0 sums in another order.
        geometry: see the module.
        pixel: elements from pixel to pixel of dx: more than C where it has other channels too.
        scratch: address of `conv_backward_data_scratch` elements.
    """
    H, W, C, OH, OW, OC, kh, kw, sh, sw, ph, pw, dh, dw, groups = geometry
    dy += SIZE * n0 * OH * OW * OC
    dx += SIZE * n0 * H * W * pixel
    c, o = C // groups, OC // groups
    wk = _row_of_filters(c)
    past = acc == 0 and SIZE * c % LINE == 0 and is_non_temporal(dx, pixel, (n1 - n0) * H * W * C)
    for g in range(groups):
        for a in range(min(sh, H)):
            na, la, ta, oa = phase(a, kh, sh, ph, dh)
            for b in range(min(sw, W)):
                nb, lb, tb, ob = phase(b, kw, sw, pw, dw)
                for i in range(na):
                    for j in range(nb):
                        tap = (la - i * ta) * kw + lb - j * tb
                        transpose(w + SIZE * (tap * c * OC + g * o), OC, scratch + SIZE * (i * nb + j) * wk * o, wk, c, o)
                convolve(
                    dy + SIZE * g * o, scratch, dx + SIZE * ((a * W + b) * pixel + g * c), n1 - n0,
                    OH, OW, (H - a + sh - 1) // sh, (W - b + sw - 1) // sw, na, nb, o, c,
                    1, 1, -oa, -ob, max(1, dh * ta // sh), max(1, dw * tb // sw),
                    OC, wk, sw * pixel, sh * W * pixel, H * W * pixel, PAST if past else acc, scratch + SIZE * na * nb * wk * o,
                )  # fmt: skip
    if past:
        fence_non_temporal()
