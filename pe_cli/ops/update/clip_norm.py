"""Clipping by length: squared lengths, the factor that shortens a gradient or all of them, and the product with it."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import cuda_kernel, deal
from pe_cli.kernels.language import Int, Ptr, PtrF64, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ByValue, InPlace, Pointwise, RowsApart, Scalar
from pe_cli.ops.math.reduction_cuda import sum_whole
from pe_cli.ops.update.optimizer import sum_of_squares


@kernel
def squared_norm(x: Ptr, out: Ptr, n: Int):
    """out[0] = sum x^2."""
    out[0] = T(sum_of_squares(x, n))


@kernel
def squared_norm_back(x: Ptr, gradient: Ptr, out: Ptr, n: Int):
    """out = 2 gradient x."""
    factor = T(2) * gradient[0]
    for i in range(n):
        out[i] = factor * x[i]


@op(
    "squared_l2_norm",
    traits=[ByValue(keeps_rows=False)],
    inputs="X",
    samples=[
        Sample({"X": (3, 5)}),
        Sample({"X": (1,)}, name="one element"),
        Sample({"X": (30, 70)}, name="several chunks"),
    ],
)
def squared_l2_norm(x: TensorType) -> TensorType:
    """Add up all squares.

    Out[0] = sum(X^2)

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: [1], element type of X.

    Source:
        fluid's operator squared_l2_norm.
    """
    return x.with_shape(1)


@squared_l2_norm.lower("cpu")
def squared_l2_norm_cpu(o: Lowering) -> None:
    """Chunks in the element type, added in float64."""
    x = o.input("X")
    o.call(squared_norm, x, o.output("Out"), x.size)


@squared_l2_norm.grad(uses="X").lower("cpu")
def squared_l2_norm_grad_cpu(o: Lowering) -> None:
    """One pass."""
    out = o.output("X@GRAD")
    o.call(squared_norm_back, o.input("X"), o.input("Out@GRAD"), out, out.size)


@kernel
def shorten(x: Ptr, out: Ptr, n: Int, limit: Real):
    """out = x, scaled to length limit where it is longer; out may be x."""
    length = math.sqrt(sum_of_squares(x, n))
    factor = T(limit / length) if length > limit else T(1)
    if length != length:  # a NaN must show in all elements, as it does in the norm
        factor = T(length)
    for i in range(n):
        out[i] = factor * x[i]


def _check_limit(name: str, what: str, limit: float) -> None:
    if not limit > 0:
        raise PeError(f"{name}: {what} must be > 0, got {limit}")


@op(
    "clip_by_norm",
    faces=[Face("", "x max_norm! name", "Shorten a tensor whose length is above a limit to that length.")],
    inputs="X",
    attrs={"max_norm": Attr(1.0, "longest length allowed, unit of X")},
    differentiable="",
    traits=[ByValue(), InPlace({"Out": "X"})],
    samples=[
        Sample({"X": (3, 5)}, {"max_norm": 0.5}, "longer"),
        Sample({"X": (3, 5)}, {"max_norm": 1e3}, "shorter"),
        Sample({"X": (1,)}, {"max_norm": 0.1}, "one element"),
        Sample({"X": (0, 2)}, name="nothing"),
    ],
)
def clip_by_norm(x: TensorType, *, max_norm: float) -> TensorType:
    """Shorten a tensor, taken as one vector, to a length.

    Out = X * max_norm / |X| where |X| = sqrt(sum X^2) > max_norm, else X.

    Args:
        X: any shape, float32 or float64.
        max_norm: above 0.

    Returns:
        Out: type of X.

    Raises:
        PeError: max_norm is not above 0.

    Source:
        fluid.layers.clip_by_norm.
    """
    _check_limit("clip_by_norm", "max_norm", max_norm)
    return x


@clip_by_norm.lower("cpu")
def clip_by_norm_cpu(o: Lowering) -> None:
    """The norm, then one pass."""
    out = o.output("Out")
    o.call(shorten, o.input("X"), out, out.size, o.attrs["max_norm"])


@kernel
def norm_scale(x: Ptr, out: Ptr, limit: Real):
    """out[0] = limit / max(sqrt(x[0]), limit)."""
    length = math.sqrt(x[0])
    # A NaN is not at most the limit, so that it comes out.
    out[0] = T(1) if length <= limit else T(limit / length)


def _square(rng):
    return rng.uniform(4.0, 9.0, 1)


@op(
    "global_norm_scale",
    inputs="X",
    attrs={"clip_norm": Attr(1.0, "longest length allowed, unit of the gradients")},
    differentiable="",
    samples=[Sample({"X": _square}, name="longer"), Sample({"X": _square}, {"clip_norm": 5.0}, "shorter")],
)
def global_norm_scale(x: TensorType, *, clip_norm: float) -> TensorType:
    """Return the factor that shortens gradients of a common squared length to a length.

    Out[0] = clip_norm / max(sqrt(X[0]), clip_norm); NaN for NaN.

    Args:
        X: [1] float32 or float64; the sum of all squares.
        clip_norm: above 0.

    Returns:
        Out: [1], element type of X; at most 1.

    Raises:
        PeError: X is not [1], or clip_norm is not above 0.

    Source:
        fluid.clip.GradientClipByGlobalNorm; Pascanu et al. 2013, algorithm 1.
    """
    _check_limit("global_norm_scale", "clip_norm", clip_norm)
    if x.shape != (1,):
        raise PeError(f"global_norm_scale needs a sum of squares [1], got {x}")
    return x


@global_norm_scale.lower("cpu")
def global_norm_scale_cpu(o: Lowering) -> None:
    """One number."""
    o.call(norm_scale, o.input("X"), o.output("Out"), o.attrs["clip_norm"])


@helper
def product(x, factor):
    return factor * x


@kernel(each=product)
def multiply_one(x: Ptr, factor: Ptr, out: Ptr, n: Int):
    """out = factor[0] x; out may be x."""
    by = factor[0]
    for i in range(n):
        out[i] = product(x[i], by)


@op(
    "scale_by",
    inputs="X Scale",
    differentiable="",
    traits=[RowsApart(), ByValue(), InPlace({"Out": "X"})],
    samples=[
        Sample({"X": (3, 5), "Scale": (1,)}),
        Sample({"X": (1,), "Scale": (1,)}, name="one element"),
        Sample({"X": (0, 2), "Scale": (1,)}, name="nothing"),
    ],
)
def scale_by(x: TensorType, scale: TensorType) -> TensorType:
    """Multiply a tensor by a number that is known only while running.

    Out = Scale[0] * X

    Args:
        X: any shape, float32 or float64.
        Scale: [1], element type of X.

    Returns:
        Out: type of X.

    Raises:
        PeError: Scale is not [1] of X's element type.

    Source:
        The last step of fluid.clip.GradientClipByGlobalNorm.
    """
    if scale != x.with_shape(1):
        raise PeError(f"scale_by needs a Scale {x.with_shape(1)}, got {scale}")
    return x


@scale_by.lower("cpu")
def scale_by_cpu(o: Lowering) -> None:
    """One pass."""
    out = o.output("Out")
    o.call(multiply_one, o.input("X"), o.input("Scale"), out, out.size)


scale_by.give(Pointwise(lambda attrs, _: [Scalar("Out", multiply_one, ("X", "Scale"))]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


@cuda_kernel
def shorten_by(x: Ptr, out: Ptr, square: PtrF64, n: Int, limit: Real):
    """As shorten, with the squared length given."""
    length = math.sqrt(square[0])
    factor = T(limit / length) if length > limit else T(1)
    if length != length:
        factor = T(length)
    for i in range(n):
        out[i] = factor * x[i]


def square_sum(o: Lowering, x: Buffer, out: Buffer) -> None:
    """Append the calls that write the sum of squares of x."""
    sum_whole(o, x, out, x.size, squares=True)


@squared_l2_norm.lower("cuda")
def squared_l2_norm_cuda(o: Lowering) -> None:
    """Partial sums side by side, then their sum."""
    square_sum(o, o.input("X"), o.output("Out"))


@clip_by_norm.lower("cuda")
def clip_by_norm_cuda(o: Lowering) -> None:
    """The squared length, then one pass."""
    x, out, square = o.input("X"), o.output("Out"), o.scratch(1, "float64")
    square_sum(o, x, square)
    o.call(shorten_by, x, out, square, out.size, o.attrs["max_norm"])


deal(squared_norm_back, multiply_one)
also_on_cuda(squared_l2_norm, global_norm_scale, scale_by)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("squared_l2_norm")
def squared_l2_norm_onnx(o: Writer) -> None:
    """The sum of squares."""
    o.node("Reshape", [o.node("ReduceSumSquare", [o.x()], keepdims=0), o.const(o.out_type().shape)], to="Out")


@in_onnx("scale_by")
def scale_by_onnx(o: Writer) -> None:
    """X times one number."""
    o.node("Mul", [o.x(), o.x("Scale")], to="Out")


@in_onnx("clip_by_norm")
def clip_by_norm_onnx(o: Writer) -> None:
    """X times the limit, divided by the length or the limit, whichever is larger."""
    limit = o.const(o.attrs["max_norm"], "X")
    length = o.node("Max", [o.node("ReduceL2", [o.x()], keepdims=0), limit])
    o.node("Mul", [o.x(), o.node("Div", [limit, length])], to="Out")
