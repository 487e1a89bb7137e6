"""3x3 convolutions without stride by Winograd's minimal filtering: 16 products for 2 x 2 outputs instead of 36.

A tile of 4 x 4 pixels and the 3 x 3 taps are transformed (sums of a few neighbours), so that the transformed outputs are their products,
element by element; of many channels, 16 matrix products. In one direction, of pixels d and taps g:

    m0 = (d0 - d2) g0              m1 = (d1 + d2) (g0 + g1 + g2)/2
    m3 = (d1 - d3) g2              m2 = (d2 - d1) (g0 - g1 + g2)/2        y0 = m0 + m1 + m2    y1 = m1 - m2 - m3

The gradient of the images is such a convolution of the outputs' gradient with the taps turned round. The gradient of the taps is one of
2 x 2 gradients with 3 x 3 outputs, whose products are added up over all tiles before they are transformed back. Results differ from
those of plain sums in the last digits (errors are about twice as large).

Sources: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural
Networks, arXiv:1509.09308.

Images are [N, H, W, C], taps [3, 3, C, OC], transformed ones [16, C, OC]; addresses in bytes, sizes in elements.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.microkernels import block_units, panel
from pe_cli.kernels.cpu.winograd_transforms import pair_in, pair_out, pixels_in, taps_in, taps_out
from pe_cli.kernels.language import SIZE, UNIT, T, helper, pointer, shared

#: Bytes of the transformed tiles of a block, which stay in L2.
TILES_BYTES = 384 * 1024
#: Tiles of a block: at most, and at least.
MANY, SOME = 192, 32
#: Most columns of a panel, in elements of 4 bytes.
BLOCK_COLUMNS = 48
#: Channels from which on transforms take little time beside the products; most of both that transformed taps may have.
CHANNELS, MOST = 32, 256 * 256
#: Least height and width of outputs: of smaller images much of the tiles is padding.
MIN_SIDE = 6


def suits(
    filters: tuple[int, ...], out: tuple[int, ...], strides: list[int], paddings: list[int], dilations: list[int], groups: int
) -> bool:
    """Return whether a convolution is done in this way: by its shapes, not by how many images there are.

    Args:
        filters: [OC, C, height, width].
        out: height, width, channels.
        strides, paddings, dilations: along height and width.
        groups: number of groups.
    """
    outputs, inputs, *taps = filters
    plain = taps == [3, 3] and strides == [1, 1] and dilations == [1, 1] and groups == 1
    large = min(outputs, inputs) >= CHANNELS and outputs * inputs <= MOST and min(out[:2]) >= MIN_SIDE
    return plain and max(paddings) <= 2 and large


def tiles_at_once(channels: int, size: int = 4) -> int:
    """Return the tiles of a block of so many channels, of elements of so many bytes."""
    return max(SOME, min(MANY, TILES_BYTES // (16 * size * max(channels, 1))))


def images_scratch(channels: int) -> int:
    """Return the elements of scratch of `winograd_images`, the same for every element type."""
    tiles = tiles_at_once(channels)
    return 16 * tiles * (channels + BLOCK_COLUMNS) + 16 * channels + BLOCK_COLUMNS


def taps_scratch(channels: int, outputs: int) -> int:
    """Return the elements of scratch of `winograd_taps`, the same for every element type."""
    tiles = tiles_at_once(channels + outputs)
    return 16 * tiles * (channels + outputs) + 16 * channels + outputs


def winograd_scratch(channels: int, outputs: int) -> int:
    """Return the elements of scratch for any direction: taps in order, transformed, and what the tiles take."""
    tiles = max(images_scratch(channels), images_scratch(outputs), taps_scratch(channels, outputs))
    return 25 * channels * outputs + tiles


@helper
def _tiles(channels):
    """Do `tiles_at_once`."""
    return max(SOME, min(MANY, TILES_BYTES // (16 * SIZE * channels)))


@helper
def _zeros(at, count):
    values = pointer(at)
    for i in range(count):
        values[i] = T(0)


@helper
def _window(x, H, W, C, top, left, window):
    """Copy 4 x 4 pixels, some of which lie outside the image, and are 0."""
    for r in range(4):
        for c in range(4):
            to = pointer(window + SIZE * (4 * r + c) * C)
            i, j = top + r, left + c
            if i >= 0 and i < H and j >= 0 and j < W:
                pixel = pointer(x + SIZE * (i * W + j) * C)
                for q in range(C):
                    to[q] = pixel[q]
            else:
                for q in range(C):
                    to[q] = T(0)


@helper
def _take_tiles(x, H, W, C, ph, pw, high, wide, begin, count, v, plane, window):
    """Transform some tiles of images, the tiles being high x wide an image: [16, tile, C], planes so far apart."""
    t = 0
    while t < count:
        tile = begin + t
        image = tile // (high * wide)
        top = 2 * (tile // wide % high) - ph
        j = tile % wide
        left = 2 * j - pw
        first = x + SIZE * image * H * W * C
        to = v + SIZE * t * C
        inside = 0
        if top >= 0 and left >= 0 and top + 4 <= H and left + 4 <= W:
            # Tiles inside of the image follow each other two pixels apart along the row: they are transformed in one go.
            inside = min(min(wide - j, count - t), (W - 4 - left) // 2 + 1)
            pixels_in(first + SIZE * (top * W + left) * C, W * C, C, to, plane, C, inside)
        else:
            _window(first, H, W, C, top, left, window)
            pixels_in(window, 4 * C, C, to, plane, C, 1)
        t += max(inside, 1)


@helper
def _places(y, OH, OW, pixel, high, wide, tile, beside):
    """Return the addresses of a tile's 2 x 2 outputs, of those that are not there another; and how many tiles on are like it.

    pixel: elements from pixel to pixel of y.
    """
    i = 2 * (tile // wide % high)
    j = 2 * (tile % wide)
    first = y + SIZE * ((tile // (high * wide) * OH + i) * OW + j) * pixel
    below, right = SIZE * OW * pixel, SIZE * pixel
    down, across = i + 1 < OH, j + 1 < OW
    corner = first + below + right if down and across else beside
    alike = max(1, OW // 2 - tile % wide) if down else 1
    return first, first + right if across else beside, first + below if down else beside, corner, alike


@shared
def winograd_images(x, u, y, images, H, W, C, OH, OW, OC, ph, pw, acc, pixel, scratch):
    """Write y (+)= the convolution of images with transformed taps.

    Args:
        x: address of [images, H, W, C].
        u: address of [16, C, OC], see `winograd_filters`.
        y: address of [images, OH, OW, OC].
        images: how many.
        H, W, C, OH, OW, OC: sizes.
        ph, pw: padding above and left.
        acc: 1 to add each output's whole sum to y, 0 to overwrite it.
        pixel: elements from pixel to pixel of y: more than OC where it has other channels too.
        scratch: address of `images_scratch(C)` elements.
    """
    high, wide = (OH + 1) // 2, (OW + 1) // 2
    most = _tiles(C)
    v_plane = most * C
    m = scratch + SIZE * 16 * v_plane
    window = m + SIZE * 16 * most * BLOCK_COLUMNS
    beside = window + SIZE * 16 * C
    # outputs that a tile at the border lacks are written here, so that the inner loop needs no condition
    _zeros(beside, BLOCK_COLUMNS)
    total = images * high * wide
    for begin in range(0, total, most):
        count = min(most, total - begin)
        _take_tiles(x, H, W, C, ph, pw, high, wide, begin, count, scratch, v_plane, window)
        left = (OC + UNIT - 1) // UNIT
        column = 0
        while left > 0:
            d = block_units(left)
            width = d * UNIT
            used = min(width, OC - column)
            plane = most * width
            # the 16 products are independent: one place of the transformed tile each, over all tiles and channels
            for p in range(16):
                panel(
                    d, count, OC - column, scratch + SIZE * p * v_plane, u + SIZE * (p * C * OC + column), m + SIZE * p * plane,
                    1, 0, 0, 1, 0, 0, C, 1, OC, C, width, 0, 0, 0,
                )  # fmt: skip
            t = 0
            while t < count:
                y00, y01, y10, y11, alike = _places(y + SIZE * column, OH, OW, pixel, high, wide, begin + t, beside)
                alike = min(alike, count - t)
                pair_out(m + SIZE * t * width, plane, width, y00, y01, y10, y11, pixel, used, acc, alike)
                t += alike
            column += width
            left -= d


@shared
def winograd_taps(x, dy, s, images, H, W, C, OH, OW, OC, ph, pw, scratch):
    """Write the transformed gradient of the taps, summed over all tiles; `taps_out` makes taps of it.

    Args:
        x: address of [images, H, W, C].
        dy: address of the outputs' gradient [images, OH, OW, OC].
        s: address of [16, C, OC].
        images: how many.
        H, W, C, OH, OW, OC, ph, pw: as for `winograd_images`.
        scratch: address of `taps_scratch(C, OC)` elements.
    """
    high, wide = (OH + 1) // 2, (OW + 1) // 2
    # Tiles of the images and of the gradients stay in the caches together.
    most = _tiles(C + OC)
    v_plane, g_plane = most * C, most * OC
    g = scratch + SIZE * 16 * v_plane
    window = g + SIZE * 16 * g_plane
    beside = window + SIZE * 16 * C
    _zeros(beside, OC)
    total = images * high * wide
    # No tile writes s then, and who called reads it.
    if total <= 0:
        _zeros(s, 16 * C * OC)
    for begin in range(0, total, most):
        count = min(most, total - begin)
        _take_tiles(x, H, W, C, ph, pw, high, wide, begin, count, scratch, v_plane, window)
        t = 0
        while t < count:
            y00, y01, y10, y11, alike = _places(dy, OH, OW, OC, high, wide, begin + t, beside)
            alike = min(alike, count - t)
            pair_in(y00, y01, y10, y11, OC, g + SIZE * t * OC, g_plane, OC, alike)
            t += alike
        for p in range(16):
            left = (OC + UNIT - 1) // UNIT
            column = 0
            while left > 0:
                d = block_units(left)
                panel(
                    d, C, OC - column, scratch + SIZE * p * v_plane, g + SIZE * (p * g_plane + column),
                    s + SIZE * (p * C * OC + column), 1, 0, 0, 1, 0, 0, count, C, OC, 1, OC, 1 if begin > 0 else 0, 0, 0,
                )  # fmt: skip
                column += d * UNIT
                left -= d


@helper
def winograd_filters(w, u, count, turned):
    """Transform taps [9, count] to [16, count]; turned: in reverse order, as the gradient of the images wants them."""
    # The gradient of an image meets the filter turned by half a turn, which is its nine taps from the last to the first.
    if turned:
        taps_in(w + SIZE * 8 * count, -count, u, count, count)
    else:
        taps_in(w, count, u, count, count)


@helper
def winograd_filters_back(s, w, count):
    """Transform [16, count], what `winograd_taps` writes, to taps [9, count]."""
    taps_out(s, count, w, count, count)
