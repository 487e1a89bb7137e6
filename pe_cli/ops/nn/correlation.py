"""correlation: products of the features at places of two images that lie a bounded displacement apart."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def correlate(
    x: Ptr, y: Ptr, out: Ptr, n: Int, channels: Int, height: Int, width: Int, rows: Int, columns: Int, begin: Int, size: Int,
    stride: Int, step: Int, reach: Int,
):  # fmt: skip
    """out[s, shift, h, w] = the mean of the products of a window of x and one of y that is shifted."""
    ways = 2 * reach + 1
    for i in range(n):
        line = i // columns
        left = (i - line * columns) * stride + begin
        image = line // rows
        top = (line - image * rows) * stride + begin
        s = image // (ways * ways)
        shift = image - s * ways * ways
        down = (shift // ways - reach) * step
        along = (shift % ways - reach) * step
        total = T(0)
        for c in range(channels):
            at = (s * channels + c) * height
            for a in range(size):
                for b in range(size):
                    p = top + a
                    q = left + b
                    inside = 0 <= p < height and 0 <= q < width
                    if inside and 0 <= p + down < height and 0 <= q + along < width:
                        total += x[(at + p) * width + q] * y[(at + p + down) * width + q + along]
        out[i] = total / T(channels * size * size)


@kernel
def correlate_back(
    g: Ptr, other: Ptr, d: Ptr, n: Int, channels: Int, height: Int, width: Int, rows: Int, columns: Int, begin: Int, size: Int,
    stride: Int, step: Int, reach: Int, second: Int,
):  # fmt: skip
    """d = the gradients of all products that a number is in, by the other factor: of y where `second`, else of x."""
    ways = 2 * reach + 1
    for i in range(n):
        line = i // width
        column = i - line * width
        plane = line // height
        row = line - plane * height
        s = plane // channels
        total = T(0)
        for shift in range(ways * ways):
            down = (shift // ways - reach) * step
            along = (shift % ways - reach) * step
            top = row - second * down  # the place in x, and that of the other factor
            left = column - second * along
            p = row + (1 - 2 * second) * down
            q = column + (1 - 2 * second) * along
            if 0 <= top < height and 0 <= left < width and 0 <= p < height and 0 <= q < width:
                share = T(0)
                for a in range(size):
                    h = (top - begin - a) // stride
                    if 0 <= h < rows and h * stride == top - begin - a:
                        for b in range(size):
                            w = (left - begin - b) // stride
                            if 0 <= w < columns and w * stride == left - begin - b:
                                share += g[((s * ways * ways + shift) * rows + h) * columns + w]
                total += share * other[(plane * height + p) * width + q]
        d[i] = total / T(channels * size * size)


@op(
    "correlation",
    inputs="Input1 Input2",
    attrs={
        "pad_size": Attr(0, "rows and columns of zeros around both images"),
        "kernel_size": Attr(1, "rows and columns of a window"),
        "max_displacement": Attr(1, "rows and columns that places are apart at most"),
        "stride1": Attr(1, "rows and columns from one window of the first image to the next"),
        "stride2": Attr(1, "rows and columns from one shift to the next"),
    },
    samples=[
        Sample({"Input1": (2, 3, 4, 5), "Input2": (2, 3, 4, 5)}, {"pad_size": 1}, "neighbours"),
        Sample(
            {"Input1": (1, 2, 6, 7), "Input2": (1, 2, 6, 7)},
            {"pad_size": 3, "kernel_size": 3, "max_displacement": 3, "stride1": 2, "stride2": 2}, "windows, and strides",
        ),
        Sample({"Input1": (1, 1, 1, 1), "Input2": (1, 1, 1, 1)}, {"max_displacement": 0}, "one element"),
        Sample({"Input1": (0, 2, 3, 3), "Input2": (0, 2, 3, 3)}, {"pad_size": 1}, "an empty batch"),
    ],
)  # fmt: skip
def correlation(
    x: TensorType, y: TensorType, *, pad_size: int, kernel_size: int, max_displacement: int, stride1: int, stride2: int
) -> TensorType:
    """Measure for every place of an image how alike it is to the places around it in another image.

    Out[s, (a, b), h, w] = the mean over channels and window of X[stride1 h + ..] Y[stride1 h + a stride2 + .., ...], for the shifts a and b
    from -max_displacement // stride2 on, as many to the other side. Windows and shifts stay in the images with their zeros around them.

    Args:
        Input1, Input2: [batch, channels, height, width] float32 or float64, of one type.
        pad_size, kernel_size, max_displacement, stride1, stride2: see the attributes.

    Returns:
        Out: [batch, shifts, rows, columns] element type of Input1; with k = kernel_size // 2 there are
            ceil((height + 2 pad_size - 2 (max_displacement + k)) / stride1) rows.

    Raises:
        PeError: types that do not fit, an even kernel_size, or no place that has all shifts.

    Source:
        fluid.contrib.layers.correlation of 2.0; Dosovitskiy et al. 2015, 'FlowNet', equation 1.
    """
    if len(x.shape) != 4 or x != y or x.dtype not in FLOATS:
        raise PeError(f"correlation needs two images [batch, channels, height, width] of one float type, got {x} and {y}")
    if kernel_size < 1 or kernel_size % 2 == 0 or min(pad_size, max_displacement) < 0 or min(stride1, stride2) < 1:
        numbers = f"kernel_size {kernel_size}, pad_size {pad_size}, max_displacement {max_displacement}, strides {stride1} and {stride2}"
        raise PeError(f"correlation: {numbers}", hint="an odd kernel_size, strides of at least 1, the others at least 0")
    border = 2 * (max_displacement + kernel_size // 2) - 2 * pad_size
    sizes = [s if s < 0 else -((border - s) // stride1) for s in x.shape[2:]]
    if any(s - border < 1 for s in x.shape[2:] if s >= 0):
        raise PeError(f"correlation: no place of {x} has all shifts inside", hint="a larger pad_size")
    ways = 2 * (max_displacement // stride2) + 1
    return x.with_shape(x.shape[0], ways * ways, *sizes)


def _numbers(o: Lowering, x: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, ...]:
    a = o.attrs
    return (*x[1:], *out[2:], a["max_displacement"] - a["pad_size"], a["kernel_size"], a["stride1"], a["stride2"],
            a["max_displacement"] // a["stride2"])  # fmt: skip


@correlation.lower("cpu")
def correlation_cpu(o: Lowering) -> None:
    """Number by number."""
    x, out = o.input("Input1"), o.output("Out")
    if out.size:
        o.call(correlate, x, o.input("Input2"), out, out.size, *_numbers(o, x.shape, out.shape))


@correlation.grad(uses="Input1 Input2").lower("cpu")
def correlation_grad_cpu(o: Lowering) -> None:
    """Number by number of either image."""
    g = o.input("Out@GRAD")
    for second, (slot, other) in enumerate((("Input1", "Input2"), ("Input2", "Input1"))):
        if o.has(f"{slot}@GRAD") and o.output(f"{slot}@GRAD").size:
            d = o.output(f"{slot}@GRAD")
            o.only(f"{slot}@GRAD")
            o.call(correlate_back, g, o.input(other), d, d.size, *_numbers(o, d.shape, g.shape), second)


deal(correlate, correlate_back)
also_on_cuda(correlation)
