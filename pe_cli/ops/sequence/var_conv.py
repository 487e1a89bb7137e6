"""varied_windows and varied_channels: the parts of var_conv_2d, which convolves images that each have a size of their own."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, lengths_of, offsets_of, owners, row_count
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import VARIED, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.sequence.pair_products import checked_images, image_offsets


def _steps(lengths: Indices, stride: int) -> Indices:
    # As many steps as "same" padding gives: one for every stride that begins inside. An image without rows has none, where the formula
    # would give 1 for strides above 1.
    return np.where(lengths > 0, (lengths - 1) // stride + 1, 0)


def window_offsets(rows: Indices, columns: Indices, *, strides: tuple[int, int]) -> Indices:
    """Return where the windows of every image begin, int64 [images + 1]."""
    return offsets_of(_steps(lengths_of(rows), strides[0]) * _steps(lengths_of(columns), strides[1]))


@helper
def _sizes(rows, columns, s, along):
    """Return height and width of image number s, and how many windows lie side by side in it."""
    width = columns[s + 1] - columns[s]
    return rows[s + 1] - rows[s], width, (width - 1) // along + 1


@helper
def _corner(window, many, high, wide, down, along):
    """Return the row and the column where a window of an image begins, which may lie outside."""
    # Windows are centred, so the first ones begin outside the image, where numbers count as 0.
    line = window // many
    return line * down - high // 2, (window - line * many) * along - wide // 2


@kernel
def take_windows(
    x: Ptr, rows: PtrI64, columns: PtrI64, offsets: PtrI64, begins: PtrI64, owner: PtrI64, out: Ptr, images: Int, n: Int, channels: Int,
    high: Int, wide: Int, down: Int, along: Int,
):  # fmt: skip
    """out[p, t] = the numbers of channel t around window p's place, 0 outside its image."""
    for s in range(images):
        height, width, many = _sizes(rows, columns, s, along)
        for p in range(begins[s], begins[s + 1]):
            top, left = _corner(p - begins[s], many, high, wide, down, along)
            for t in range(channels):
                at = offsets[s] + t * height * width
                to = (p * channels + t) * high * wide
                for a in range(high):
                    row = at + (top + a) * width + left
                    within = 0 <= top + a < height
                    for b in range(wide):
                        out[to + a * wide + b] = x[row + b] if within and 0 <= left + b < width else T(0)


@on_cuda(take_windows)
def take_windows_by_channel(
    x: Ptr, rows: PtrI64, columns: PtrI64, offsets: PtrI64, begins: PtrI64, owner: PtrI64, out: Ptr, images: Int, n: Int, channels: Int,
    high: Int, wide: Int, down: Int, along: Int,
):  # fmt: skip
    """The same numbers, a thread for each window and channel."""
    # On a CPU windows are walked image by image, which needs no `owner`; a thread cannot walk, and looks up the image of its window.
    for i in range(n * channels):
        p = i // channels
        t = i - p * channels
        s = owner[p]
        height, width, many = _sizes(rows, columns, s, along)
        top, left = _corner(p - begins[s], many, high, wide, down, along)
        at = offsets[s] + t * height * width
        to = i * high * wide
        for a in range(high):
            for b in range(wide):
                inside = 0 <= top + a < height and 0 <= left + b < width
                out[to + a * wide + b] = x[at + (top + a) * width + left + b] if inside else T(0)


@kernel
def take_windows_back(
    g: Ptr, rows: PtrI64, columns: PtrI64, offsets: PtrI64, begins: PtrI64, image: PtrI64, dx: Ptr, images: Int, n: Int, channels: Int,
    high: Int, wide: Int, down: Int, along: Int,
):  # fmt: skip
    """dx = the gradients of all windows that a number is in, from the last window's to the first's."""
    for s in range(images):
        height, width, many = _sizes(rows, columns, s, along)
        for j in range(offsets[s], offsets[s + 1]):
            dx[j] = T(0)
        for i in range(begins[s + 1] - begins[s]):
            # From the last window to the first: the CUDA form adds in this order, and so gives the same bits.
            p = begins[s + 1] - 1 - i
            top, left = _corner(p - begins[s], many, high, wide, down, along)
            for t in range(channels):
                at = offsets[s] + t * height * width
                to = (p * channels + t) * high * wide
                for a in range(high):
                    row = at + (top + a) * width + left
                    if 0 <= top + a < height:
                        for b in range(wide):
                            if 0 <= left + b < width:
                                dx[row + b] += g[to + a * wide + b]


@on_cuda(take_windows_back)
def take_windows_back_by_number(
    g: Ptr, rows: PtrI64, columns: PtrI64, offsets: PtrI64, begins: PtrI64, image: PtrI64, dx: Ptr, images: Int, n: Int, channels: Int,
    high: Int, wide: Int, down: Int, along: Int,
):  # fmt: skip
    """The same sums in the same order, a thread for each number."""
    for i in range(n):
        s = image[i]
        height, width, many = _sizes(rows, columns, s, along)
        place = i - offsets[s]
        t = place // (height * width)
        row = (place - t * height * width) // width
        column = place - (t * height + row) * width
        total = T(0)
        for a in range(high):
            # The tap a of a window saw this row if the window's centre is at top; centres lie at multiples of the stride, inside the image.
            top = row - a + high // 2
            line = top // down
            # Only rows at a multiple of the stride begin a window; the others were not seen by this tap.
            if 0 <= top < height and line * down == top:
                for b in range(wide):
                    left = column - b + wide // 2
                    step = left // along
                    if 0 <= left < width and step * along == left:
                        p = begins[s] + line * many + step
                        total += g[((p * channels + t) * high + a) * wide + b]
        dx[i] = total


def _sample(name: str, rows: list[int], columns: list[int], channels: int, size: list[int], strides: tuple[int, int]) -> Sample:
    high, wide = offsets_of(rows), offsets_of(columns)
    offsets, begins = image_offsets(high, wide, channels=channels), window_offsets(high, wide, strides=strides)
    made = {
        "Rows": high, "Columns": wide, "Offsets": offsets, "Begins": begins, "Owner": owners(begins), "Image": owners(offsets),
    }  # fmt: skip
    given = {"X": (int(offsets[-1]), 1), **{slot: fixed(values) for slot, values in made.items()}}
    return Sample(given, {"channels": channels, "size": size, "strides": list(strides)}, name)


@op(
    "varied_windows",
    inputs="X ROW? COLUMN? Rows? Columns? Offsets? Begins? Owner? Image?",
    differentiable="X",
    attrs={
        "channels": Attr(1, "channels of every image"),
        "size": Attr([1, 1], "rows and columns of a window"),
        "strides": Attr([1, 1], "rows and columns from one window to the next"),
    },
    samples=[
        _sample("two channels", [2, 3], [4, 1], 2, [3, 3], (1, 1)),
        _sample("even windows, strides, and images without rows or columns", [3, 0, 5, 1], [4, 2, 3, 0], 1, [2, 4], (2, 3)),
        _sample("one element", [1], [1], 1, [1, 1], (1, 1)),
        _sample("no images", [], [], 1, [3, 3], (1, 1)),
    ],
)
def varied_windows(
    x: TensorType, row: TensorType | None, column: TensorType | None, rows: TensorType | None, columns: TensorType | None,
    offsets: TensorType | None, begins: TensorType | None, owner: TensorType | None, image: TensorType | None, *, channels: int,
    size: list[int], strides: list[int],
) -> TensorType:  # fmt: skip
    """Put the numbers around every place, by channel, side by side, with zeros outside the image.

    A window of an odd size has its place in the middle; one of an even size ends before the middle's other half.

    Args:
        X: [numbers of all images, 1] float32 or float64, with a sequence for each image, [channels, rows, columns].
        ROW, COLUMN: with sequences as long as the images have rows and columns; their values do not count.
        Rows, Columns, Offsets, Begins: where images' rows, columns, numbers and windows begin, int64 [images + 1].
        Owner: number of the image of every window, int64 [windows].
        Image: that of every number, int64 [numbers].
        channels, size, strides: see the attributes.

    Returns:
        Out: [windows, channels size[0] size[1]] element type of X; a sequence for each image.

    Raises:
        PeError: types or sizes that do not fit; before a step, sequences that are no such images.

    Source:
        fluid's operator var_conv_2d, without its product.
    """
    del row, column, rows, columns, offsets, begins, image
    if len(x.shape) != 2 or x.shape[1] != 1 or x.dtype not in FLOATS:
        raise PeError(f"var_conv_2d needs numbers [rows, 1], float32 or float64, got {x}")
    if channels < 1 or len(size) != 2 or len(strides) != 2 or min(*size, *strides) < 1:
        raise PeError(f"var_conv_2d needs channels, sizes and strides of at least 1, got {channels}, {size}, {strides}")
    return x.with_shape(row_count(owner), channels * size[0] * size[1])


@varied_windows.sequences("Rows Columns Offsets Begins Owner Image")
def varied_windows_lod(s: LodRequest) -> None:
    """Sequences of images become sequences of their windows."""
    rows, columns = s.offsets("ROW"), s.offsets("COLUMN")
    begins = s.derive(window_offsets, rows, columns, strides=tuple(s.attrs["strides"]))
    offsets = s.derive(checked_images, s.offsets("X"), rows, columns, channels=s.attrs["channels"])
    for slot, name in (("Rows", rows), ("Columns", columns), ("Offsets", offsets), ("Begins", begins)):
        s.give(slot, name)
    s.give("Owner", s.derive(owners, begins))
    s.give("Image", s.derive(owners, offsets))
    s.out("Out", begins)
    s.leave_out("ROW", "COLUMN")


@varied_windows.lower("cpu")
def varied_windows_cpu(o: Lowering) -> None:
    """Image by image."""
    out, a = o.output("Out"), o.attrs
    arrays = [o.input(slot) for slot in ("Rows", "Columns", "Offsets", "Begins", "Owner")]
    if out.size:
        images = o.input("Begins").size - 1
        o.call(take_windows, o.input("X"), *arrays, out, images, out.shape[0], a["channels"], *a["size"], *a["strides"])


@varied_windows.grad(uses="Rows Columns Offsets Begins Image").lower("cpu")
def varied_windows_grad_cpu(o: Lowering) -> None:
    """Image by image."""
    dx, a = o.output("X@GRAD"), o.attrs
    arrays = [o.input(slot) for slot in ("Rows", "Columns", "Offsets", "Begins", "Image")]
    if dx.size:
        images = o.input("Begins").size - 1
        o.call(take_windows_back, o.input("Out@GRAD"), *arrays, dx, images, dx.size, a["channels"], *a["size"], *a["strides"])


# --- varied_channels --------------------------------------------------------------------------------------------------


def _scaled(offsets: Indices, *, times: int) -> Indices:
    return offsets * times


@kernel
def put_channels_first(x: Ptr, offsets: PtrI64, owner: PtrI64, out: Ptr, rows: Int, width: Int):
    """out of every sequence = its rows, column by column."""
    for r in range(rows):
        begin = offsets[owner[r]]
        length = offsets[owner[r] + 1] - begin
        for k in range(width):
            # Transposed inside each sequence: number k of a row goes behind the whole columns before it.
            out[begin * width + k * length + r - begin] = x[r * width + k]


@kernel
def put_channels_last(x: Ptr, offsets: PtrI64, owner: PtrI64, out: Ptr, rows: Int, width: Int):
    """out[r, k] = what put_channels_first took from there."""
    for r in range(rows):
        begin = offsets[owner[r]]
        length = offsets[owner[r] + 1] - begin
        for k in range(width):
            out[r * width + k] = x[begin * width + k * length + r - begin]


_PLACES = fixed([0, 3, 3, 5])


@op(
    "varied_channels",
    inputs="X Offsets? Owner?",
    differentiable="X",
    samples=[
        Sample({"X": (5, 3), "Offsets": _PLACES, "Owner": fixed([0, 0, 0, 2, 2])}, name="three images, one of them empty"),
        Sample({"X": (1, 1), "Offsets": fixed([0, 1]), "Owner": fixed([0])}, name="one element"),
        Sample({"X": (0, 2), "Offsets": fixed([0]), "Owner": fixed([])}, name="no images"),
    ],
)
def varied_channels(x: TensorType, offsets: TensorType | None, owner: TensorType | None) -> TensorType:
    """Turn every sequence's matrix [rows, channels] into [channels, rows], its numbers one below the other.

    Args:
        X: [rows, channels] float32 or float64, with sequences.
        Offsets: of X's innermost sequences, int64 [sequences + 1].
        Owner: number of the sequence of every row, int64 [rows].

    Returns:
        Out: [rows channels, 1] element type of X; as many sequences.

    Raises:
        PeError: X is no matrix of floating-point numbers, or has no sequences.

    Source:
        fluid's operator var_conv_2d: the order of its output.
    """
    del offsets, owner
    if len(x.shape) != 2 or x.dtype not in FLOATS or x.shape[1] < 1:
        raise PeError(f"varied_channels needs X [rows, channels], float32 or float64, got {x}")
    return x.with_shape(x.shape[0] * x.shape[1] if x.shape[0] >= 0 else -1, 1)


@varied_channels.sequences("Offsets Owner")
def varied_channels_lod(s: LodRequest) -> None:
    """As many sequences, longer by the number of channels."""
    offsets = s.offsets("X")
    s.give("Offsets", offsets)
    s.give("Owner", s.derive(owners, offsets))
    s.out("Out", s.derive(_scaled, offsets, times=s.types(s.inputs["X"][0]).shape[1]))


@varied_channels.lower("cpu")
def varied_channels_cpu(o: Lowering) -> None:
    """Row by row."""
    x = o.input("X")
    if x.size:
        o.call(put_channels_first, x, o.input("Offsets"), o.input("Owner"), o.output("Out"), *x.shape)


@varied_channels.grad(uses="Offsets Owner").lower("cpu")
def varied_channels_grad_cpu(o: Lowering) -> None:
    """Back to where they were."""
    dx = o.output("X@GRAD")
    if dx.size:
        o.call(put_channels_last, o.input("Out@GRAD"), o.input("Offsets"), o.input("Owner"), dx, *dx.shape)


deal(put_channels_first, put_channels_last)
also_on_cuda(varied_windows, varied_channels)
not_in_onnx(VARIED, "varied_channels", "varied_windows")
