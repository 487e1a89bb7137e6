"""Weight normalisation: a weight is a length times a direction, and the norms that give the lengths their first values."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, PtrF64, T, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op

_DIM = Attr(-1, "axis that has a length for each of its indices; -1: one length for everything")


@kernel
def products_except(x: Ptr, y: Ptr, sums: PtrF64, outer: Int, n: Int, inner: Int):
    """sums[k] = sum of x y over the outer and inner axes of [outer, n, inner]; in a fixed order."""
    for k in range(n):
        sums[k] = 0.0
    # Neighbours belong to different sums here: one running sum for each, all of them in the cache.
    if inner == 1:
        for o in range(outer):
            at = o * n
            for k in range(n):
                sums[k] += x[at + k] * y[at + k]
        return
    for o in range(outer):
        for k in range(n):
            at = (o * n + k) * inner
            # Chunks of the element type vectorise, and float64 between them keeps digits over long axes.
            for begin in range(0, inner, CHUNK):
                part = T(0)
                for i in range(at + begin, at + min(inner, begin + CHUNK)):
                    part += x[i] * y[i]
                sums[k] += part


@on_cuda(products_except)
def products_except_cuda(x: Ptr, y: Ptr, sums: PtrF64, outer: Int, n: Int, inner: Int):
    """One thread an index."""
    for k in range(n):
        total = 0.0
        for o in range(outer):
            at = (o * n + k) * inner
            for i in range(at, at + inner):
                total += x[i] * y[i]
        sums[k] = total


@kernel
def roots(sums: PtrF64, out: Ptr, n: Int):
    """out = sqrt(sums)."""
    for k in range(n):
        out[k] = T(sums[k] ** 0.5)


@kernel
def scale_except(v: Ptr, g: Ptr, squares: PtrF64, out: Ptr, outer: Int, n: Int, inner: Int):
    """out = v g / sqrt(squares); out may be v."""
    for o in range(outer):
        for k in range(n):
            at = (o * n + k) * inner
            # One division and one root per index, not per element.
            f = T(g[k] / squares[k] ** 0.5)
            for i in range(at, at + inner):
                out[i] = v[i] * f


@kernel
def lengths_back(squares: PtrF64, dots: PtrF64, dg: Ptr, n: Int):
    """dg = (dw . v) / ||v||."""
    for k in range(n):
        dg[k] = T(dots[k]) / T(squares[k] ** 0.5)


@kernel
def directions_back(v: Ptr, g: Ptr, dw: Ptr, squares: PtrF64, dots: PtrF64, dv: Ptr, outer: Int, n: Int, inner: Int):
    """dv = g / ||v|| (dw - v (dw . v) / ||v||^2): what is left of dw across v."""
    for o in range(outer):
        for k in range(n):
            at = (o * n + k) * inner
            f = T(g[k] / squares[k] ** 0.5)
            # The part of the gradient along the direction changes nothing, as only the direction counts; it is taken away.
            along = T(dots[k] / squares[k])
            for i in range(at, at + inner):
                dv[i] = f * (dw[i] - v[i] * along)


@on_cuda(scale_except)
def scale_except_cuda(v: Ptr, g: Ptr, squares: PtrF64, out: Ptr, outer: Int, n: Int, inner: Int):
    """One thread per element."""
    for i in range(outer * n * inner):
        line = quotient(i, inner)
        k = line - quotient(line, n) * n
        out[i] = v[i] * (g[k] / T(squares[k] ** 0.5))


@on_cuda(directions_back)
def directions_back_cuda(
    v: Ptr, g: Ptr, dw: Ptr, squares: PtrF64, dots: PtrF64, dv: Ptr, outer: Int, n: Int, inner: Int
):
    """One thread per element."""
    for i in range(outer * n * inner):
        line = quotient(i, inner)
        k = line - quotient(line, n) * n
        length = T(squares[k] ** 0.5)
        dv[i] = g[k] / length * (dw[i] - v[i] * (T(dots[k]) / length / length))


def lengths_shape(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """Return the shape of the lengths of a weight: 1 everywhere but at dim; -1 is everything.

    Raises:
        PeError: there is no such axis, or the weight is empty.
    """
    if not -1 <= dim < len(shape) or product(shape) == 0:
        last = len(shape) - 1
        raise PeError(
            f"weight_norm needs elements, and dim from 0 to {last} or -1 for all; got dim {dim} of {list(shape)}"
        )
    return tuple(s if i == dim else 1 for i, s in enumerate(shape))


def _sizes(shape: Sequence[int], dim: int) -> tuple[int, int, int]:
    """Return a shape as [before dim, dim, after dim]."""
    return (1, 1, product(shape)) if dim < 0 else (product(shape[:dim]), shape[dim], product(shape[dim + 1 :]))


@op(
    "norm_except_dim",
    inputs="X",
    attrs={"dim": _DIM},
    differentiable="",
    samples=[
        Sample({"X": (4, 6)}, name="one norm of everything"),
        Sample({"X": (4, 6)}, {"dim": 0}, "a norm per row"),
        Sample({"X": (4, 6)}, {"dim": 1}, "a norm per column"),
        Sample({"X": (2, 3, 4, 5)}, {"dim": 1}, "an axis between"),
    ],
)
def norm_except_dim(x: TensorType, *, dim: int) -> TensorType:
    """Take the Euclidean norm over every axis but one.

    Out = sqrt(sum of X^2 over all axes but dim)

    Args:
        X: any shape, float32 or float64, not empty.
        dim: the axis that stays; -1: none.

    Returns:
        Out: X's shape with sizes of 1 everywhere but at dim.

    Raises:
        PeError: there is no such axis, or X is empty.

    Source:
        Salimans and Kingma 2016, "Weight Normalization", section 2.
    """
    return x.with_shape(*lengths_shape(x.shape, dim))


@norm_except_dim.lower("cpu")
def norm_except_dim_cpu(o: Lowering) -> None:
    """Sums of squares, then roots."""
    _, n, _ = _sizes(o.input("X").shape, o.attrs["dim"])
    o.call(roots, _products(o, o.input("X"), o.input("X")), o.output("Out"), n)


@op(
    "weight_norm",
    inputs="V G",
    outputs="W",
    attrs={"dim": _DIM},
    samples=[
        Sample({"V": (4, 6), "G": (1, 1)}, name="one length"),
        Sample({"V": (4, 6), "G": (4, 1)}, {"dim": 0}, "a length per row"),
        Sample({"V": (4, 6), "G": (1, 6)}, {"dim": 1}, "a length per column"),
        Sample({"V": (2, 3, 4, 5), "G": (1, 3, 1, 1)}, {"dim": 1}, "an axis between"),
        Sample({"V": (5, 1), "G": (5, 1)}, {"dim": 0}, "directions of one element"),
        Sample({"V": (2, 3000), "G": (2, 1)}, {"dim": 0}, "rows of more than one piece"),
    ],
)
def weight_norm(v: TensorType, g: TensorType, *, dim: int) -> TensorType:
    """Make a weight of a length and a direction.

    W = G V / ||V||, the norm over all axes but dim.

    Args:
        V: any shape, float32 or float64, not empty: directions; where one is all 0, W is NaN.
        G: V's shape with sizes of 1 everywhere but at dim: lengths, in W's unit.
        dim: axis that has a length for each of its indices; -1: one length for everything.

    Returns:
        W: type of V.

    Raises:
        PeError: there is no such axis, or G has another type than the lengths of V.

    Source:
        Salimans and Kingma 2016, "Weight Normalization", eq. 2; the gradient is eq. 3.
    """
    wanted = v.with_shape(*lengths_shape(v.shape, dim))
    if g != wanted:
        raise PeError(f"weight_norm needs lengths G of type {wanted} for directions V {v} and dim {dim}, got {g}")
    return v


def _products(o: Lowering, x: Buffer, y: Buffer) -> Buffer:
    """Return the sums of x y over all axes but the op's dim."""
    outer, n, inner = _sizes(x.shape, o.attrs["dim"])
    sums = o.scratch(n, "float64")
    o.call(products_except, x, y, sums, outer, n, inner)
    return sums


@weight_norm.lower("cpu")
def weight_norm_cpu(o: Lowering) -> None:
    """Norms, then one pass over the directions."""
    v = o.input("V")
    o.call(scale_except, v, o.input("G"), _products(o, v, v), o.output("W"), *_sizes(v.shape, o.attrs["dim"]))


@weight_norm.grad(uses="V G").lower("cpu")
def weight_norm_grad_cpu(o: Lowering) -> None:
    """Norms and products with the weight's gradient, from which both follow."""
    v, dw = o.input("V"), o.input("W@GRAD")
    sizes = _sizes(v.shape, o.attrs["dim"])
    # Two sums over the weight give everything: ||v||^2 and v dw. The elements are read once more to write dv.
    squares, dots = _products(o, v, v), _products(o, v, dw)
    if o.has("G@GRAD"):
        o.call(lengths_back, squares, dots, o.output("G@GRAD"), sizes[1])
    if o.has("V@GRAD"):
        o.call(directions_back, v, o.input("G"), dw, squares, dots, o.output("V@GRAD"), *sizes)


deal(roots, lengths_back)
also_on_cuda(norm_except_dim, weight_norm)
