"""What the lowerings of convolutions share: sizes, images in the order that kernels want, and the parts that threads take."""

from __future__ import annotations

import math

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cpu.conv import conv_forward_scratch
from pe_cli.kernels.cpu.conv_geometry import (
    CHANNELS,
    DILATION_Y,
    FILTERS,
    HEIGHT,
    OUT_HEIGHT,
    OUT_WIDTH,
    PAD_Y,
    STRIDE_Y,
    TAPS_Y,
    WIDTH,
)
from pe_cli.kernels.cpu.gemm import DEPTH, NARROW, gemm_scratch
from pe_cli.kernels.cpu.winograd import suits, winograd_scratch
from pe_cli.kernels.language import Kernel
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.work_parts import COLUMNS, ENOUGH, Pair, column_pairs, pairs
from pe_cli.ops.nn.conv_kernels import gather_taps, pick, place, spread_taps, turn

#: Operations that are worth bringing one element of the filters into another order; and packing one for a product.
FILTER_WORK, PACK_WORK = 400, 100
#: Elements of filters of which it matters how often they are read and written.
LARGE = 1 << 16


@dataclass(frozen=True)
class Piece:
    """What one call convolves: some images, a part of one as an image of its own, or some channels of what is made.

    Attributes:
        number: of the part for threads.
        x, y: elements before it in what kernels take for the input, and in the output.
        geometry: as of `Images`.
        images: how many.
        channel, w: channels of what is made before those that it makes, and elements of the filters.
    """

    number: int
    x: int
    y: int
    geometry: Numbers
    images: int
    channel: int = 0
    w: int = 0


class Images:
    """Sizes of one convolution, and its images in channels-last order.

    A 1x1 convolution without padding is one product of pixels and filters. With a stride, those pixels that it sees are picked first. One
    of few pixels and many filters is a product as well, of all that each output pixel sees: filters are read once, as they are stored,
    where other ways bring them into another order first.

    Attributes:
        depthwise, pointwise, winograd: which kernels it has, if not those for any.
        picks: what output pixels see is brought together first.
        image, out: [height, width, channels] of what kernels take for the input, and of the output.
        seen: of what kernels take for the input.
        whole, geometry: see `pe_cli.kernels.cpu.conv`; of the convolution, and of what kernels do. Behind it: elements from pixel to pixel
            of
            what is made.
        work: operations.
    """

    def __init__(self, o: Lowering, x: Buffer, w: Buffer, y: Buffer) -> None:
        self.o = o
        self.last = o.attrs["data_format"] == "NHWC"
        order = (1, 2, 3) if self.last else (2, 3, 1)
        self.n = x.shape[0]
        self.depthwise = 1 < o.attrs["groups"] == x.shape[order[2]]
        self.image, self.out = (tuple(b.shape[i] for i in order) for b in (x, y))
        self.filters = w.shape
        attrs = o.attrs
        pads = attrs["paddings"]  # [above and below, left and right], or [above, below, left, right]
        rest = (*pads[:: len(pads) // 2], *attrs["dilations"], attrs["groups"], self.out[2])
        self.whole = Numbers((*self.image, *self.out, *w.shape[2:], *attrs["strides"], *rest))
        simple = w.shape[2:] == (1, 1) and not any(pads) and attrs["groups"] == 1
        self.picks = simple and attrs["strides"] != [1, 1]
        self._gathers = not simple and o.place == "cpu" and attrs["groups"] == 1 and self._few(w)
        if self._gathers:
            self.image = (*self.out[:2], math.prod(w.shape[1:]))
            self.filters = (w.shape[0], self.image[2], 1, 1)
            self.picks, rest = True, (0, 0, 1, 1, 1, self.out[2])
        self.pointwise = simple or self._gathers
        self.winograd = not self._gathers and suits(w.shape, self.out, attrs["strides"], pads, attrs["dilations"], attrs["groups"])
        self.seen = (*self.out[:2], self.image[2]) if self.picks else self.image
        steps = (1, 1) if self.picks else attrs["strides"]
        self.geometry = Numbers((*self.seen, *self.out, *self.filters[2:], *steps, *rest))
        self.work = 2 * self.n * math.prod(self.out) * math.prod(w.shape[1:])

    def _few(self, w: Buffer) -> bool:
        """Whether there are so few output pixels that to bring them together takes less time than to bring the filters into order."""
        return w.size >= LARGE and 0 < 4 * self.n * math.prod(self.out[:2]) <= w.shape[0]

    def pieces(self, *, back: bool = False) -> list[Piece]:
        """Return the images of every part that a thread is worth waking for: each brings the filters into order for itself.

        Of 1x1 convolutions parts are some pixels where images do not divide evenly; of others some rows of an image where there are
        fewer images than threads: of the output, or back of the input, whose gradient is wanted. Some channels of that each are parts
        where the filters are too large for more of the others.
        """
        others = self._parts(back)
        channels = self._channels(back)
        return channels if len(channels) > len(others) else others

    def _channels(self, back: bool) -> list[Piece]:
        """Cut the channels of what is made: no part is as narrow as a product that `gemm` does in another way."""
        g, total = self.geometry.values, (self.image if back else self.out)[2]
        parts = min(self.o.threads, self.work // ENOUGH, total // COLUMNS)
        if parts < 2 or self.o.attrs["groups"] > 1:
            return []
        found = []
        for k, (first, last) in enumerate(column_pairs(total, parts)):
            own = (*g[:2], last - first, *g[3:15], total) if back else (*g[:5], last - first, *g[6:])
            before = first * math.prod(self.filters[2 if back else 1 :])
            found.append(Piece(k, first if back else 0, 0 if back else first, Numbers(own), self.n, first, before))
        return found

    def _parts(self, back: bool) -> list[Piece]:
        """Cut the images, the pixels of 1x1 convolutions, or the rows of single images."""
        each = max(ENOUGH, (PACK_WORK if self.pointwise else FILTER_WORK) * math.prod(self.filters))
        pixels = self.n * math.prod(self.out[:2])  # no part of a product is so low that `gemm` does it in another way
        parts = min(self.o.threads, self.work // each, pixels // (4 * NARROW))
        geometry = Numbers((*self.geometry.values[:15], self.image[2])) if back else self.geometry
        g = geometry.values
        if parts > 1 and self.pointwise and self.n % parts:
            return [
                Piece(k, p * g[CHANNELS], p * g[FILTERS], Numbers((1, q - p, g[CHANNELS], 1, q - p, *g[5:])), 1)
                for k, (p, q) in enumerate(pairs(pixels, parts))
            ]
        if 0 < 2 * self.n <= parts:
            return self._rows_of_images(g, parts // self.n, back)
        whole, made = math.prod(self.seen), math.prod(self.out)
        return [
            Piece(k, first * whole, first * made, geometry, last - first)
            for k, (first, last) in enumerate(pairs(self.n, parts))
        ]

    def _rows_of_images(self, g: tuple[int, ...], parts: int, back: bool) -> list[Piece]:
        """Cut every image into so many pieces, with an even number of rows each where two are computed at a time; g: of an image."""
        high, out, taps, step, padding, dilation = g[HEIGHT], g[OUT_HEIGHT], g[TAPS_Y], g[STRIDE_Y], g[PAD_Y], g[DILATION_Y]
        unit = 2 if self.winograd else 1
        total, found = high if back else out, list[Piece]()
        for image in range(self.n):
            for units in pairs(-(-total // unit), parts):
                first, last = (min(total, unit * u) for u in units)
                if back:  # the rows of the output that see some of these
                    low = min(max(0, -(-(first + padding - (taps - 1) * dilation) // step)), out)
                    end = min(max(low, (last - 1 + padding) // step + 1), out)
                    shift, sizes, at = first - low * step, (last - first, end - low), (first, low)
                else:  # the rows of the input that these see
                    low = min(max(0, first * step - padding), high)
                    end = max(low, min((last - 1) * step - padding + (taps - 1) * dilation + 1, high))
                    shift, sizes, at = low - first * step, (end - low, last - first), (low, first)
                own = (sizes[0], *g[1:3], sizes[1], *g[4:10], padding + shift, *g[11:])
                x, y = (image * high + at[0]) * g[WIDTH] * g[CHANNELS], (image * out + at[1]) * g[OUT_WIDTH] * g[FILTERS]
                found.append(Piece(len(found), x, y, Numbers(own), 1))
        return found

    def rows(self) -> list[Pair]:
        """Return the rows of filters, or the filters of 1x1, whose gradients a part computes: each part reads all images."""
        parts = 1 if self.o.helped else min(self.o.threads, self.work // ENOUGH)
        if self.pointwise:
            return pairs(self.filters[0], min(parts, self.filters[0] // COLUMNS))
        if self.winograd:
            return [(0, self.filters[2])]
        return pairs(self.filters[2], parts)

    def kernel(self, *choices: Kernel) -> Kernel:
        """Return which of the kernels for any, for depthwise, for 1x1 convolutions and by Winograd's way is to be called."""
        return choices[1 if self.depthwise else 2 if self.pointwise else 3 if self.winograd else 0]

    def filter_scratch(self, w: Buffer) -> Buffer:
        """Return scratch for filters with their output channels last, and behind them what `conv_forward` wants.

        1x1 convolutions want a product's scratch there; in the gradients m, n and k stand for each other.
        """
        if self.pointwise:
            most = max(gemm_scratch(self.out[2], self.image[2]), gemm_scratch(self.image[2], max(self.out[2], DEPTH)))
            return self.o.scratch(max(w.size, most), w.dtype)
        if self.winograd:
            return self.o.scratch(winograd_scratch(self.image[2], self.out[2]), w.dtype)
        sizes = (self.image[2], self.out[2], *w.shape[2:], self.o.attrs["groups"])
        extra = 0 if self.depthwise else conv_forward_scratch(*sizes)
        return self.o.scratch(w.size + extra, w.dtype)

    def inward(self, b: Buffer) -> Buffer:
        """Return an image buffer with channels last."""
        if self.last or not b.size:
            return b
        made = self.o.scratch(b.size, b.dtype, copies=True)
        self.o.call(turn, b, made, b.shape[0], b.shape[1], b.shape[2] * b.shape[3])
        return made

    def source(self, x: Buffer) -> Buffer:
        """Return what kernels take for the input."""
        held = self.inward(x)
        if not self.picks:
            return held
        made = self.o.scratch(self.n * math.prod(self.seen), x.dtype)
        self.o.call(gather_taps if self._gathers else pick, held, made, self.whole, self.n)
        return made

    def unpick(self, made: Buffer, target: Buffer) -> None:
        """Undo `source`: write an image out of what stands for its pixels."""
        self.o.call(spread_taps if self._gathers else place, made, target, self.whole, self.n)

    def target(self, b: Buffer) -> Buffer:
        """Return where to write an image with channels last."""
        return b if self.last else self.o.scratch(b.size, b.dtype, copies=True)

    def outward(self, made: Buffer, b: Buffer) -> None:
        """Bring a written image into the order of its variable."""
        if made is not b and b.size:
            self.o.call(turn, made, b, b.shape[0], b.shape[2] * b.shape[3], b.shape[1])
