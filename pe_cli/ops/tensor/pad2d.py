"""pad2d: images continued beyond their edges."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, Real, helper, kernel
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FedSizes


@helper
def _inside(i, n, mode):
    """Return the pixel that continues a line of n at i, or -1 for the constant; mode: 0 constant, 1 reflect, 2 edge."""
    if 0 <= i < n:
        return i
    if mode == 0:
        return -1
    if mode == 2:
        return 0 if i < 0 else n - 1
    # Mirrored at the middle of the edge's pixel, which itself is not repeated.
    return -i if i < 0 else 2 * n - 2 - i


@kernel
def continue_image(
    x: Ptr, y: Ptr, planes: Int, H: Int, W: Int, OH: Int, OW: Int, top: Int, left: Int, mode: Int, value: Real, back: Int
):
    """y = x and what continues it; with back, x += the gradient y."""
    for plane in range(planes):
        for i in range(OH):
            r = _inside(i - top, H, mode)
            for j in range(OW):
                c = _inside(j - left, W, mode)
                o, p = (plane * OH + i) * OW + j, (plane * H + r) * W + c
                if back:
                    if r >= 0 and c >= 0:
                        x[p] += y[o]
                else:
                    y[o] = x[p] if r >= 0 and c >= 0 else value


_MODES = ("constant", "reflect", "edge")


@op(
    "pad2d",
    inputs="X Paddings?",
    traits=[FedSizes({"Paddings": "paddings"})],
    differentiable="X",
    attrs={
        "paddings": Attr([0, 0, 0, 0], "rows above and below, columns to the left and right"),
        "mode": Attr("constant", "what stands there", _MODES),
        "pad_value": Attr(0.0, "the constant, in X's unit"),
    },
    samples=[
        Sample({"X": (2, 2, 3, 4)}, {"paddings": [1, 0, 2, 3], "pad_value": 1.5}, "a constant"),
        Sample({"X": (2, 2, 3, 4)}, {"paddings": [1, 2, 3, 0], "mode": "reflect"}, "mirrored"),
        Sample({"X": (2, 2, 3, 4)}, {"paddings": [4, 1, 0, 5], "mode": "edge"}, "the edge again"),
    ],
)
def pad2d(x: TensorType, fed: TensorType | None = None, *, paddings: list[int], mode: str, pad_value: float) -> TensorType:
    """Continue images beyond their edges.

    Args:
        X: [batch, channels, height, width] float32 or float64.
        Paddings: [4] int32 or int64: a step's paddings, instead of the attribute.

    Returns:
        Out: [batch, channels, height + above + below, width + left + right].

    Raises:
        PeError: X of another rank, or a mirror wider than the image.

    Source:
        fluid.layers.pad2d.
    """
    del pad_value
    if len(x.shape) != 4 or len(paddings) != 4 or min(paddings) < 0:
        raise PeError(f"pad2d needs images of rank 4 and four paddings of at least 0, got {x} and {paddings}")
    limits = [s for s in x.shape[2:] for _ in range(2)]
    if mode == "reflect" and any(p >= s >= 0 for p, s in zip(paddings, limits, strict=True)):
        raise PeError(f"pad2d: images of {x} have nothing to mirror in {paddings}", hint="less padding than pixels")
    if fed is not None:
        return x.with_shape(*x.shape[:2], -1, -1)
    sizes = [-1 if s < 0 else s + a + b for s, a, b in zip(x.shape[2:], paddings[::2], paddings[1::2], strict=True)]
    return x.with_shape(*x.shape[:2], *sizes)


def _continued(o: Lowering, pixels: object, made: object, x: tuple[int, ...], y: tuple[int, ...], *, back: bool) -> None:
    attrs = o.attrs
    more = (attrs["paddings"][0], attrs["paddings"][2], _MODES.index(attrs["mode"]), attrs["pad_value"], int(back))
    o.call(continue_image, pixels, made, x[0] * x[1], *x[2:], *y[2:], *more)


@pad2d.lower("cpu")
def pad2d_cpu(o: Lowering) -> None:
    """Row by row."""
    x, y = o.input("X"), o.output("Out")
    _continued(o, x, y, x.shape, y.shape, back=False)


@pad2d.grad(uses="Paddings", traits=[FedSizes({"Paddings": "paddings"})]).lower("cpu")
def pad2d_grad_cpu(o: Lowering) -> None:
    """Row by row, in order: they share pixels."""
    dx, g = o.output("X@GRAD"), o.input("Out@GRAD")
    o.call(fill, dx, dx.size, 0.0)
    _continued(o, dx, g, dx.shape, g.shape, back=True)


# A thread has whole planes: pixels that several places continue get their gradients in one thread, in order.
deal(continue_image)
also_on_cuda(pad2d)


@in_onnx("pad2d")
def pad2d_onnx(o: Writer) -> None:
    """ONNX's own: what is in front of all axes, then what is behind."""
    above, below, left, right = o.attrs["paddings"]
    sizes, value = o.const([0, 0, above, left, 0, 0, below, right]), o.const(o.attrs["pad_value"], "X")
    o.node("Pad", [o.x(), sizes, value] if o.attrs["mode"] == "constant" else [o.x(), sizes], to="Out", mode=o.attrs["mode"])
