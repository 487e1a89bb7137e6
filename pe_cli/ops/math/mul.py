"""Matrix products: mul (of tensors flattened to matrices, what fc uses) and matmul (of batches of matrices)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, Narrow, SumsRows, Weight
from pe_cli.ops.math.matrix_product import Matrices, broadcast, multiply, multiply_back
from pe_cli.ops.math.matrix_product_cuda import multiply_cuda

# --- mul ------------------------------------------------------------------------------------------------------------


@op(
    "mul",
    faces=[Face("", "x y x_num_col_dims y_num_col_dims name")],
    traits=[Divisible(), Narrow(("X", "Y")), SumsRows(("Y",)), Weight(("Y",), "matrix", "io")],
    inputs="X Y",
    floats="X Y",
    attrs={
        "x_num_col_dims": Attr(1, "leading axes of X that become rows, at least 1"),
        "y_num_col_dims": Attr(1, "leading axes of Y that become rows, at least 1"),
    },
    samples=[
        Sample({"X": (3, 4), "Y": (4, 5)}),
        Sample({"X": (1, 1), "Y": (1, 1)}, name="one element"),
        Sample({"X": (2, 3, 4), "Y": (12, 5)}, name="an image is flattened"),
        Sample({"X": (2, 3, 4), "Y": (2, 2, 7)}, {"x_num_col_dims": 2, "y_num_col_dims": 2}, "two leading axes"),
        Sample({"X": (0, 4), "Y": (4, 5)}, name="empty batch"),
        Sample({"X": (17, 33), "Y": (33, 9)}, name="odd sizes"),
    ],
)
def mul(x: TensorType, y: TensorType, *, x_num_col_dims: int, y_num_col_dims: int) -> TensorType:
    """Multiply two tensors as matrices.

    Out = reshape(X, [rows, inner]) @ reshape(Y, [inner, columns]), with the axes of both.

    Args:
        X: its first x_num_col_dims axes are rows, the others inner; float32 or float64.
        Y: its first y_num_col_dims axes are inner, the others columns; dtype of X.

    Returns:
        Out: leading axes of X, then trailing axes of Y.

    Raises:
        PeError: inner sizes or dtypes differ, or there are too few axes.

    Source:
        fluid.layers.mul.
    """
    for name, kind, split in (("x", x, x_num_col_dims), ("y", y, y_num_col_dims)):
        if not 1 <= split < len(kind.shape):
            hint = f"set it from 1 to {len(kind.shape) - 1}" if len(kind.shape) > 1 else "reshape it to two axes"
            raise PeError(
                f"mul: {name}_num_col_dims is {split}, but {name} is {kind}, of {len(kind.shape)} axes", hint=hint
            )
    _same_dtype("mul", x, y)
    left, right = product(x.shape[x_num_col_dims:]), product(y.shape[:y_num_col_dims])
    if left != right and -1 not in (left, right):
        raise PeError(
            f"mul: inner sizes differ: x is {x}, y is {y}, and {left} != {right}", hint=f"y should have {left} rows"
        )
    return x.with_shape(*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:])


def _mul_matrices(o: Lowering) -> tuple[Matrices, Matrices, Matrices]:
    x, y = o.input("X").shape, o.input("Y").shape
    a, b = o.attrs["x_num_col_dims"], o.attrs["y_num_col_dims"]
    m, k, n = math.prod(x[:a]), math.prod(x[a:]), math.prod(y[b:])
    return Matrices((), m, k), Matrices((), k, n), Matrices((), m, n)


@mul.lower("cpu")
def mul_cpu(o: Lowering) -> None:
    """One product."""
    x, y, out = _mul_matrices(o)
    multiply(o, (o.input("X"), x), (o.input("Y"), y), (o.output("Out"), out), 1.0)


@mul.grad(uses="X Y", adds="X@GRAD Y@GRAD", descends="Y@GRAD").lower("cpu")
def mul_grad_cpu(o: Lowering) -> None:
    """X@GRAD = Out@GRAD Y^T, Y@GRAD = X^T Out@GRAD."""
    multiply_back(o, *_mul_matrices(o), 1.0)


@mul.count
def mul_flops(x: TensorType, y: TensorType, *, x_num_col_dims: int, y_num_col_dims: int) -> int:
    """Return 2 rows inner columns."""
    return 2 * product(x.shape) * product(y.shape[y_num_col_dims:])


# --- matmul ---------------------------------------------------------------------------------------------------------


def _of_matrices(attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether the rows of X are those of Out."""
    return len(shapes["X"]) == len(shapes["Y"]) == 2 and not attrs["transpose_X"]


@op(
    "matmul",
    faces=[
        Face("", "x y transpose_x:transpose_X transpose_y:transpose_Y alpha name"),
        Functional("mm", "input mat2 name", "Multiply matrices, or batches of them.", at="tensor"),
    ],
    traits=[Divisible(), Narrow(("X", "Y")), SumsRows(("Y",), _of_matrices), Weight(("Y",), "matrix", "io", "transpose_Y")],
    inputs="X Y",
    floats="X Y",
    attrs={
        "transpose_X": Attr(False, "transpose the last two axes of X"),
        "transpose_Y": Attr(False, "transpose the last two axes of Y"),
        "alpha": Attr(1.0, "factor on the product, no unit"),
    },
    samples=[
        Sample({"X": (3, 4), "Y": (4, 5)}),
        Sample(
            {"X": (4, 3), "Y": (5, 4)},
            {"transpose_X": True, "transpose_Y": True, "alpha": 0.5},
            "both transposed, halved",
        ),
        Sample({"X": (2, 3, 4), "Y": (2, 5, 4)}, {"transpose_Y": True}, "a batch, y transposed"),
        Sample({"X": (2, 4, 3), "Y": (4, 5)}, {"transpose_X": True}, "a batch times one matrix, x transposed"),
        Sample({"X": (2, 3, 4), "Y": (4, 5)}, name="a batch times one matrix"),
        Sample({"X": (2, 1, 3, 4), "Y": (3, 4, 2)}, name="batch axes are broadcast"),
        Sample({"X": (4,), "Y": (4,)}, name="two vectors"),
        Sample({"X": (3,), "Y": (4,)}, {"transpose_X": True, "transpose_Y": True}, "an outer product"),
        Sample({"X": (2, 3, 4), "Y": (4,)}, name="matrices times a vector"),
        Sample({"X": (4,), "Y": (2, 4, 3)}, name="a vector times matrices"),
        Sample({"X": (0, 3, 4), "Y": (4, 5)}, name="empty batch"),
    ],
)
def matmul(x: TensorType, y: TensorType, *, transpose_X: bool, transpose_Y: bool, alpha: float) -> TensorType:
    """Multiply matrices, or batches of them.

    Out[..., i, j] = alpha sum_k X[..., i, k] Y[..., k, j], with the last two axes of X or Y swapped where asked.

    Args:
        X: [..., m, k], or [k] which stands for [1, k]; float32 or float64.
        Y: [..., k, n], or [k] which stands for [k, 1]; dtype of X. Axes before the last two are broadcast.

    Returns:
        Out: [..., m, n]; the axis of size 1 that stands for a vector is left out again; [1] for two vectors.

    Raises:
        PeError: inner sizes, batch axes or dtypes do not fit.

    Source:
        fluid.layers.matmul.
    """
    if not x.shape or not y.shape:
        raise PeError(f"matmul needs at least one axis, got x {x} and y {y}")
    _same_dtype("matmul", x, y)
    left, right = _factors(x.shape, y.shape, transpose_X, transpose_Y)
    if left.width != right.height and -1 not in (left.width, right.height):
        shown = f"x is {x}{' transposed' * transpose_X}, y is {y}{' transposed' * transpose_Y}"
        other = "transpose_x" if left.height == right.height else "transpose_y"
        raise PeError(
            f"matmul: inner sizes differ: {shown}, and {left.width} != {right.height}",
            hint=f"change {other}" if left.height == right.height or left.width == right.width else None,
        )
    rows = () if len(x.shape) == 1 and left.height == 1 else (left.height,)
    columns = () if len(y.shape) == 1 and right.width == 1 else (right.width,)
    return x.with_shape(*((*broadcast(left.batch, right.batch), *rows, *columns) or (1,)))


def _same_dtype(name: str, x: TensorType, y: TensorType) -> None:
    if x.dtype != y.dtype:
        raise PeError(f"{name}: x is {x} and y is {y}", hint="cast one of them")


def _factors(x: tuple[int, ...], y: tuple[int, ...], flip_x: bool, flip_y: bool) -> tuple[Matrices, Matrices]:
    x = (1, *x) if len(x) == 1 else x
    y = (*y, 1) if len(y) == 1 else y
    return Matrices(x[:-2], x[-2], x[-1], flip_x), Matrices(y[:-2], y[-2], y[-1], flip_y)


def _matmul_matrices(o: Lowering) -> tuple[Matrices, Matrices, Matrices]:
    left, right = _factors(o.input("X").shape, o.input("Y").shape, o.attrs["transpose_X"], o.attrs["transpose_Y"])
    if not right.batch and not left.transposed:  # one matrix for all: the batch becomes more rows
        left = Matrices((), math.prod(left.batch) * left.rows, left.columns)
    return left, right, Matrices(broadcast(left.batch, right.batch), left.height, right.width)


@matmul.lower("cpu")
def matmul_cpu(o: Lowering) -> None:
    """Make one product for each matrix."""
    x, y, out = _matmul_matrices(o)
    multiply(o, (o.input("X"), x), (o.input("Y"), y), (o.output("Out"), out), o.attrs["alpha"])


@matmul.grad(uses="X Y", adds="X@GRAD Y@GRAD").lower("cpu")
def matmul_grad_cpu(o: Lowering) -> None:
    """The products of the other factor and Out@GRAD, added up over broadcast axes."""
    multiply_back(o, *_matmul_matrices(o), o.attrs["alpha"])


@matmul.count
def matmul_flops(x: TensorType, y: TensorType, **attrs: Any) -> int:
    """Return 2 sizes of Out times the inner size."""
    left, right = _factors(x.shape, y.shape, attrs["transpose_X"], attrs["transpose_Y"])
    return 2 * product(broadcast(left.batch, right.batch)) * left.height * right.width * left.width


@mul.lower("cuda")
def mul_cuda(o: Lowering, bias: Any = None, cut: bool = False) -> None:
    """One product; bias and cut: see `multiply_cuda`."""
    x, y, out = _mul_matrices(o)
    multiply_cuda(o, (o.input("X"), x), (o.input("Y"), y), (o.output("Out"), out), 1.0, bias=bias, cut=cut)


@matmul.lower("cuda")
def matmul_cuda(o: Lowering) -> None:
    """One product for all matrices."""
    x, y, out = _matmul_matrices(o)
    multiply_cuda(o, (o.input("X"), x), (o.input("Y"), y), (o.output("Out"), out), o.attrs["alpha"])


for _definition, _matrices in ((mul, _mul_matrices), (matmul, _matmul_matrices)):
    assert _definition.grad_op is not None

    @_definition.grad_op.lower("cuda")
    def _grad_cuda(o: Lowering, matrices: Any = _matrices) -> None:
        """Both gradients, a product each."""
        x, y, out = matrices(o)
        multiply_back(o, x, y, out, o.attrs.get("alpha", 1.0), multiply_cuda)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("mul")
def mul_onnx(o: Writer) -> None:
    """A product of matrices; further axes are flattened before and come back after."""
    x, y = o.type("X"), o.type("Y")
    rows, columns = o.attrs["x_num_col_dims"], o.attrs["y_num_col_dims"]
    left = o.x("X")
    if len(y.shape) == 2 and columns == 1 and rows == len(x.shape) - 1 and o.out_type().shape.count(-1) > 1:
        o.node("MatMul", [left, o.x("Y")], to="Out")  # sizes that are not known stay where they are
        return
    if len(x.shape) != 2 or rows != 1:
        left = o.node("Reshape", [left, o.const([-1, product(x.shape[rows:])])])
    right = o.x("Y")
    if len(y.shape) != 2 or columns != 1:
        right = o.node("Reshape", [right, o.const([product(y.shape[:columns]), -1])])
    out = o.out_type()
    if len(out.shape) == 2:
        o.node("MatMul", [left, right], to="Out")
    else:
        o.node("Reshape", [o.node("MatMul", [left, right]), o.const(out.shape)], to="Out")


@in_onnx("matmul")
def matmul_onnx(o: Writer) -> None:
    """Products of matrices with transposition and a factor; of vectors as fluid takes them."""
    names = []
    for slot in ("X", "Y"):
        kind, name = o.type(slot), o.x(slot)
        turned = o.attrs[f"transpose_{slot}"]
        rank = len(kind.shape)
        if turned and rank > 1:
            name = o.node("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2])
        elif rank == 1:  # a row on the left, a column on the right; with transposition the other way
            name = o.node("Unsqueeze", [name, o.const([int((slot == "X") == turned)])])
        names.append(name)
    made = o.node("MatMul", names)
    if o.attrs["alpha"] != 1.0:
        made = o.node("Mul", [made, o.const(o.attrs["alpha"], "X")])
    if 1 in (len(o.type("X").shape), len(o.type("Y").shape)):
        o.node("Reshape", [made, o.const(o.out_type().shape)], to="Out")
    else:
        o.node("Identity", [made], to="Out")
