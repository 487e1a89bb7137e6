"""conv2d and depthwise_conv2d on CUDA: tiles of products whose factors are gathered from images, in three directions.

Values and the gradient of images are the same sum (`conv_tiles_cuda.CONVOLVE`) of other numbers: where a stride leaves out pixels, the
images' gradient is computed for classes of pixels that see the same taps. Where there are too few tiles for a card, and for the gradient of
filters, whose sum is over all pixels, blocks share a sum in parts that sizes alone decide; the parts are added up in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.calls import Tickets
from pe_cli.kernels.cuda.block_sums import tickets_of
from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, T
from pe_cli.ops.define.addto import added, beside
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.nn.conv import conv2d, conv2d_grad, depthwise_conv2d
from pe_cli.ops.nn.conv_library import offer_convolution
from pe_cli.ops.nn.conv_lowering import Images
from pe_cli.ops.nn.conv_tensor_cores_cuda import HalfTile
from pe_cli.ops.nn.conv_tile_cuda import DEPTH, Tile, divisor, finished
from pe_cli.ops.nn.conv_tiles_cuda import convolve, filters_back
from pe_cli.ops.nn.depthwise_cuda import depthwise_back, depthwise_filters_back, depthwise_values

#: Threads that fill a card; its sums are shared by more blocks until there are so many.
FULL = 132 * 512
#: Steps of a sum that a block does at least, and most parts of one.
STEPS, PARTS = 8, 256
#: Blocks from which on filters are brought into the order of the steps for the gradient of images, so that their threads read neighbours.
MANY = 32

#: Tiles of pixels and channels: for many channels, for some, and for few; `FLAT` for images of few channels.
TILES = (Tile(128, 64, 8), Tile(64, 32, 4), Tile(64, 16, 4))
FLAT = Tile(64, 32, 4)
#: Tiles of filters, and of taps and channels.
TILES_BACK = (Tile(64, 64, 8), Tile(32, 64, 8), Tile(16, 64, 4))
FLAT_BACK = Tile(32, 64, 4)
#: Terms of a step of tensor cores, and where there are few channels.
DEEP, SHALLOW = 32, 16
#: Threads that share the parts of one element.
_DEEP: Any = 8


@cuda_kernel
def order_filters(w: Ptr, made: Ptr, rows: Int, columns: Int, taps: Int, row: Int, column: Int):
    """made[tap, r, c] = w[row r + column c + tap]."""
    for e in range(taps * rows * columns):
        line = quotient(e, columns)
        tap = quotient(line, rows)
        made[e] = w[(line - tap * rows) * row + (e - line * columns) * column + tap]


@cuda_kernel(block=(32, _DEEP), threads=("size", "8"))
def add_parts(parts: Ptr, y: Ptr, base: Ptr, bias: Ptr, size: Int, count: Int, channels: Int, then: Int):
    """y = then(the sum of so many parts, each of so many elements): eight threads take every eighth, and theirs are added in order."""
    lane, me = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    held = cuda.shared.array((_DEEP, 32), T)
    begin = int(cuda.blockIdx.x) * 32
    while begin < size:
        e = begin + lane
        total = T(0)
        k = me
        while k < count and e < size:
            total += parts[k * size + e]
            k += _DEEP
        held[me, lane] = total
        cuda.syncthreads()
        if me == 0 and e < size:
            for k in range(1, _DEEP):
                total += held[k, lane]
            y[e] = finished(total, base, bias, e, e - quotient(e, channels) * channels, then)
        cuda.syncthreads()
        begin += int(cuda.gridDim.x) * 32


@dataclass(frozen=True)
class Side:
    """Images of one side of a convolution.

    Args:
        rows, columns: of an image.
        channels: of it.
        per: channels of a group.
    """

    rows: int
    columns: int
    channels: int
    per: int

    @property
    def fours(self) -> bool:
        """Whether every four channels lie at a multiple of 16 bytes, in all groups."""
        return self.channels % 4 == 0 and self.per % 4 == 0


@dataclass(frozen=True)
class Sizes:
    """Numbers of a convolution.

    Args:
        n: images.
        inner, outer: what is convolved, and what is made.
        taps, strides, paddings, dilations: down and to the right.
        groups: of channels.
    """

    n: int
    inner: Side
    outer: Side
    taps: tuple[int, int]
    strides: tuple[int, int]
    paddings: tuple[int, int]
    dilations: tuple[int, int]
    groups: int

    @classmethod
    def of(cls, o: Lowering, images: Images) -> Sizes:
        """Return those of an op."""
        a, groups = o.attrs, o.attrs["groups"]
        (h, w, c), (oh, ow, oc) = images.image, images.out
        pads = a["paddings"]  # [above and below, left and right], or [above, below, left, right]
        before = pads[:: len(pads) // 2]
        taps, strides, paddings, dilations = ((p[0], p[1]) for p in (images.filters[2:], a["strides"], before, a["dilations"]))
        return cls(
            images.n, Side(h, w, c, c // groups), Side(oh, ow, oc, oc // groups), taps, strides, paddings, dilations, groups
        )  # fmt: skip


def tile_of(tiles: Sequence[Tile], rows: int, columns: int, dtype: str) -> Tile:
    """Return the tile for so many pixels and channels: the large one only where it fills a card."""
    large, some, few = tiles
    if columns <= few.columns:
        return few
    blocks = -(-rows // large.rows) * -(-columns // large.columns)
    whole = dtype != "float64" and columns > some.columns and blocks * large.threads >= FULL // 2
    return large if whole else some


def parts_of(threads: int, steps: int) -> int:
    """Return how many blocks share a sum of so many steps, where so many threads would have one to themselves."""
    return max(1, min(FULL // max(1, threads), steps // STEPS, PARTS))


@dataclass(frozen=True)
class Then:
    """What comes behind a sum, before it is written.

    Args:
        base: what it is added to, of its shape.
        bias: a number per channel that is added to it.
        relu: whether what is negative becomes 0.
    """

    base: Buffer | None = None
    bias: Buffer | None = None
    relu: bool = False

    @property
    def bits(self) -> int:
        """As `conv_tile_cuda.finished` wants them."""
        return (self.base is not None) + 2 * (self.bias is not None) + 4 * self.relu

    def buffers(self, other: Any) -> tuple[Any, Any]:
        """Return base and bias; another argument in the place of what there is not."""
        return self.base or other, self.bias or other

    def finish(self, o: Lowering, y: Buffer, channels: int) -> Callable[[Buffer], None] | None:
        """Return what appends this behind a sum that is complete; None where nothing comes behind it."""
        if not self.bits:
            return None
        return lambda total: o.call(add_parts, total, y, *self.buffers(total), y.size, 1, channels, self.bits)


NOTHING = Then()


@dataclass(frozen=True)
class Axis:
    """Pixels of a class along one axis.

    Args:
        first, count: the first of them, and how many there are; they are a stride apart.
        tap, taps: the first tap that they see, and how many they see.
        at: pixel of the other side that the first sees by the first tap.
    """

    first: int
    count: int
    tap: int
    taps: int
    at: int


def axes_back(size: int, taps: int, stride: int, padding: int, dilation: int) -> tuple[list[Axis], int, int]:
    """Return the classes of pixels whose gradient is wanted, from tap to tap that they see, and from pixel to pixel of what these show."""
    apart = stride // math.gcd(stride, dilation)
    found = []
    for first in range(min(stride, size)):
        seen = [t for t in range(taps) if (first + padding - t * dilation) % stride == 0]
        tap = seen[0] if seen else 0
        at = (first + padding - tap * dilation) // stride
        found.append(Axis(first, -(-(size - first) // stride), tap, len(seen), at))
    return found, apart, -(apart * dilation // stride)


def _append(
    o: Lowering, x: Buffer, w: Buffer, y: Buffer, s: Sizes, source: Side, made: Side, classes: Sequence[tuple[int, ...]],
    steps: tuple[int, ...], back: bool, then: Then,
) -> None:  # fmt: skip
    """Append the calls of one `CONVOLVE`.

    Args:
        o: where to.
        x, w, y: what is read, filters, and what is made.
        s: sizes.
        source, made: sides of x and y.
        classes: rows of its table.
        steps: its arguments from step_y to place_x.
        back: w is taken the other way round.
        then: what comes behind.
    """
    taps, each, per = math.prod(s.taps), made.per, source.per
    rows = max((s.n * c[0] * c[1] for c in classes), default=0)
    most = max((c[2] * c[3] for c in classes), default=0)
    halves = _halves(o, x, w)
    flat = not source.fours or 2 * per < -(-per // DEPTH) * DEPTH + 1
    tile = FLAT if flat else tile_of(TILES, rows, each, y.dtype)
    if halves:
        tile = of_halves(tile, DEEP if flat or per > SHALLOW else SHALLOW)
    chunks = -(-per // tile.depth)
    blocks = -(-rows // tile.rows) * -(-each // tile.columns) * s.groups * len(classes)
    parts = parts_of(blocks * tile.threads, -(-most * per // tile.depth) if flat else most * chunks)
    w_tap, w_out, w_in, w_group = 1, *((taps, each * taps) if back else (per * taps, taps)), per * each * taps
    if back and not flat and s.groups == 1 and blocks >= MANY:
        filters = o.scratch(w.size, w.dtype, copies=True)
        o.call(order_filters, w, filters, each, per, taps, w_out, w_in)
        w, w_tap, w_out, w_in = filters, each * per, per, 1
    together = int(source.fours) + 2 * int(made.fours and y.size % 4 == 0)
    base, bias = then.buffers(_nothing(y))
    table = Numbers(tuple(v for row in classes for v in row))
    o.call(
        convolve(tile, flat), x, w, y, base, bias, table, s.n, source.rows, source.columns,
        source.channels, per, made.rows, made.columns, made.channels, each, s.groups, len(classes), parts, w_tap, w_out, w_in, w_group,
        s.taps[1], *steps, then.bits, rows, together, *_shared(o, y, tile, blocks, parts),
    )  # fmt: skip


def _shared(o: Lowering, y: Buffer, tile: Tile, tiles: int, parts: int) -> tuple[Any, Any, int]:
    """Return the last arguments of kernels whose blocks share sums: memory for parts, tickets, and how many of them a tile has."""
    if parts == 1:
        return _nothing(y), Numbers(()), 0
    each = tickets_of(parts)
    return o.scratch(parts * tiles * tile.rows * tile.columns, y.dtype), Tickets(tiles * each), each


def _nothing(y: Buffer) -> Any:
    """Return what stands for an array that a kernel is not going to touch: y, or what is no bfloat16 where y is."""
    return Numbers(()) if y.dtype == BFLOAT16 else y


def _halves(o: Lowering, *factors: Buffer) -> bool:
    """Return whether tensor cores multiply: with precision bf16, where all factors are bfloat16 in memory."""
    return o.precision == "bf16" and all(b.dtype == BFLOAT16 for b in factors)


def of_halves(tile: Tile, depth: int, turned: bool = False) -> HalfTile:
    """Return the tile of the same size for tensor cores."""
    return HalfTile(tile.rows, tile.columns, tile.high, tile.wide, depth, turned)


def append_values(o: Lowering, x: Buffer, w: Buffer, y: Buffer, s: Sizes, then: Then = NOTHING) -> None:
    """Append the convolution of channels-last images x to y; nothing comes behind a depthwise one."""
    if depthwise(s):
        assert then is NOTHING
        o.call(depthwise_values, x, w, y, *_depthwise(s))
        return
    begin, whole = len(o.calls), (s.outer.rows, s.outer.columns, *s.taps, 0, 0, -s.paddings[0], -s.paddings[1], 0, 0)
    _append(o, x, w, y, s, s.inner, s.outer, [whole], (*s.strides, *s.dilations, 1, 1, 1, 1), False, then)
    offer_convolution(o, begin, "values", x, w, y, s, then.finish(o, y, s.outer.channels), then.base is not None)


def append_images_back(o: Lowering, dy: Buffer, w: Buffer, dx: Buffer, s: Sizes, then: Then = NOTHING) -> None:
    """Append the gradient of channels-last images; nothing comes behind that of a depthwise convolution."""
    if depthwise(s):
        assert then is NOTHING
        o.call(depthwise_back, dy, w, dx, *_depthwise(s))
        return
    begin = len(o.calls)
    down, skip_y, tap_y = axes_back(s.inner.rows, s.taps[0], s.strides[0], s.paddings[0], s.dilations[0])
    across, skip_x, tap_x = axes_back(s.inner.columns, s.taps[1], s.strides[1], s.paddings[1], s.dilations[1])
    classes = [(a.count, b.count, a.taps, b.taps, a.tap, b.tap, a.at, b.at, a.first, b.first) for a in down for b in across]
    _append(o, dy, w, dx, s, s.outer, s.inner, classes, (1, 1, tap_y, tap_x, skip_y, skip_x, *s.strides), True, then)
    offer_convolution(o, begin, "images_back", dx, w, dy, s, then.finish(o, dx, s.inner.channels), then.base is not None)


def append_filters_back(o: Lowering, x: Buffer, dy: Buffer, dw: Buffer, s: Sizes) -> None:
    """Append the gradient of the filters."""
    begin, pixels = len(o.calls), s.n * s.outer.rows * s.outer.columns
    steps = -(-pixels // DEPTH)
    if depthwise(s):
        parts = parts_of(32 * _DEEP * -(-s.outer.channels // 32) * math.prod(s.taps), steps)
        target = dw if parts == 1 else o.scratch(parts * dw.size, dw.dtype)
        o.call(depthwise_filters_back, x, dy, target, *_depthwise(s), parts, dw.size)
        if parts > 1:
            o.call(add_parts, target, dw, target, target, dw.size, parts, 1, 0)
    else:
        each, per, terms = s.outer.per, s.inner.per, s.inner.per * math.prod(s.taps)
        flat = not s.inner.fours
        tile = FLAT_BACK if flat else next((t for t in reversed(TILES_BACK) if each <= t.rows), TILES_BACK[0])
        if _halves(o, x, dy):
            tile = of_halves(tile, SHALLOW if flat else DEEP, True)
        blocks = -(-each // tile.rows) * -(-terms // tile.columns) * s.groups
        parts = parts_of(blocks * tile.threads, -(-pixels // tile.depth))
        together = int(s.outer.fours) + 2 * int(s.inner.fours)
        kernel = filters_back(tile, flat)
        o.call(
            kernel, x, dy, dw, s.n, s.inner.rows, s.inner.columns, s.inner.channels, per, s.outer.rows, s.outer.columns,
            s.outer.channels, each, s.groups, parts, *s.taps, *s.strides, *s.dilations, *s.paddings, *divisor(s.outer.columns),
            *divisor(s.outer.rows), together, *_shared(o, dw, tile, blocks, parts),
        )  # fmt: skip
        offer_convolution(o, begin, "filters_back", x, dw, dy, s)


def depthwise(s: Sizes) -> bool:
    """Return whether a filter sees one channel of several."""
    return s.groups > 1 and s.inner.per == 1


def _depthwise(s: Sizes) -> tuple[int, ...]:
    sides = (s.inner.rows, s.inner.columns, s.inner.channels, s.outer.rows, s.outer.columns, s.outer.channels)
    return (s.n, *sides, *s.taps, *s.strides, *s.paddings, *s.dilations)


@conv2d.lower("cuda")
@depthwise_conv2d.lower("cuda")
def conv2d_cuda(o: Lowering) -> None:
    """Tiles, with the channels last."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    target = images.target(y)
    append_values(o, images.inward(x), w, target, Sizes.of(o, images))
    images.outward(target, y)


@conv2d_grad.lower("cuda")
@depthwise_conv2d.grad_op.lower("cuda")  # type: ignore[union-attr]
def conv2d_grad_cuda(o: Lowering) -> None:
    """The gradient of the filters, then of the images where it is wanted."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, x, w, dy)
    upstream, s = images.inward(dy), Sizes.of(o, images)
    if o.has("Filter@GRAD"):
        append_filters_back(o, images.inward(x), upstream, o.output("Filter@GRAD"), s)
    if not o.has("Input@GRAD"):
        return

    def write(into: Buffer) -> None:
        target = images.target(into)
        append_images_back(o, upstream, w, target, s)
        images.outward(target, into)

    if images.last and not depthwise(s):
        append_images_back(o, upstream, w, o.output("Input@GRAD"), s, Then(added(o, "Input@GRAD")))
    else:
        beside(o, "Input@GRAD", write)
