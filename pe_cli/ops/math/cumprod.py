"""The cumulative product."""

from __future__ import annotations

from pe_cli.core.types import NUMBERS, TensorType, check_kind
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.axes import around, normal_axis
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def running_products(x: Ptr, out: Ptr, outer: Int, n: Int, inner: Int, exclusive: Int, reverse: Int):
    """out[.., i, ..] = product of x up to i, without i itself where exclusive, from the end where reverse."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        total = T(1)
        for j in range(n):
            i = at + (n - 1 - j if reverse else j) * inner
            v = x[i]
            if exclusive:
                out[i] = total
            total *= v
            if not exclusive:
                out[i] = total


@kernel
def running_products_back(x: Ptr, g: Ptr, dx: Ptr, outer: Int, n: Int, inner: Int, exclusive: Int, reverse: Int):
    """dx_i = sum over the products that have x_i of g times the other factors, which divides by no x."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        before = T(1)
        for j in range(n):
            i = at + (n - 1 - j if reverse else j) * inner
            total, others = T(0), before
            if not exclusive:
                total += g[i] * others
            for k in range(j + 1, n):
                later = at + (n - 1 - k if reverse else k) * inner
                if exclusive:
                    total += g[later] * others
                others *= x[later]
                if not exclusive:
                    total += g[later] * others
            dx[i] = total
            before *= x[i]


@op(
    "cumprod",
    faces=[Face("", "x axis=-1 exclusive=False reverse=False name", "Multiply everything up to each element, along an axis.")],
    inputs="X",
    attrs={
        "axis": Attr(-1, "along which"),
        "exclusive": Attr(False, "leave the element itself out"),
        "reverse": Attr(False, "from the end"),
    },
    samples=[
        Sample({"X": (3, 5)}, name="rows"),
        Sample({"X": (2, 4, 3)}, {"axis": 1, "exclusive": True}, "a middle axis, without the element"),
        Sample({"X": (2, 4, 3)}, {"axis": 0, "reverse": True}, "the first axis, from the end"),
        Sample({"X": (5,)}, {"exclusive": True, "reverse": True}, "a vector"),
        Sample({"X": (0, 3)}, name="empty batch"),
    ],
)
def cumprod(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """Multiply everything up to each element, along an axis.

    Out[.., i, ..] = prod_{j <= i} X[.., j, ..]

    Args:
        X: any shape with axes; float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Raises:
        PeError: there is no such axis.

    Source:
        paddle.cumprod; the gradient goes through each line once for each of its elements.
    """
    del exclusive, reverse
    normal_axis("cumprod", axis, len(x.shape))
    check_kind("cumprod", x, NUMBERS)
    return x


def _line(o: Lowering, shape: tuple[int, ...]) -> tuple[int, ...]:
    return *around(shape, o.attrs["axis"]), int(o.attrs["exclusive"]), int(o.attrs["reverse"])


@cumprod.lower("cpu")
def cumprod_cpu(o: Lowering) -> None:
    """One pass."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(running_products, x, out, *_line(o, x.shape))


@cumprod.grad(uses="X").lower("cpu")
def cumprod_grad_cpu(o: Lowering) -> None:
    """Each line, once for each element."""
    x, dx = o.input("X"), o.output("X@GRAD")
    if dx.size:
        o.call(running_products_back, x, o.input("Out@GRAD"), dx, *_line(o, x.shape))


not_in_onnx("ONNX has it from opset 26 on, which is newer than what is written", "cumprod")
