"""Matrix products: mul (of tensors flattened to matrices, what fc uses) and matmul (of batches of matrices)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda import Tuned, cuda, on_cuda
from pe_cli.kernels.gemm import adds_at_once, gemm, gemm_scratch
from pe_cli.kernels.lang import SIZE, Int, Ptr, PtrI64, Real, T, address, kernel
from pe_cli.ops.addto import beside, preload
from pe_cli.ops.areas import ENOUGH, Area, areas, quarters
from pe_cli.ops.cuda import also_on_cuda
from pe_cli.ops.lowering import Lowering, Numbers, Offset
from pe_cli.ops.registry import Attr, Sample, op


@kernel
def products(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """Do C = alpha op(A) op(B) for count matrices; a row of table: offsets in a, b and c, and whether to add to C.

    C's size is in elements, all matrices together; without a product it is zero. To add to C is 1 after another product of the same
    place, and 2 where C's old value counts; with that alpha is 1, and so it is where C's rows lie further apart than n.
    """
    if count == 0:
        for i in range(size):
            c[i] = T(0)
    for i in range(count):
        at_a = address(a) + SIZE * table[4 * i]
        at_b = address(b) + SIZE * table[4 * i + 1]
        at_c = address(c) + SIZE * table[4 * i + 2]
        gemm(ta, tb, m, n, k, at_a, lda, at_b, ldb, table[4 * i + 3], at_c, ldc, address(scratch))
    if alpha != 1.0:
        for i in range(size):
            c[i] *= T(alpha)


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices as stored.

    Args:
        batch: sizes of the axes before the last two.
        rows: of one matrix as stored.
        columns: of one matrix as stored.
        transposed: whether the product takes the transpose.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    transposed: bool = False

    @property
    def height(self) -> int:
        """Rows of the factor."""
        return self.columns if self.transposed else self.rows

    @property
    def width(self) -> int:
        """Columns of the factor."""
        return self.rows if self.transposed else self.columns

    def flipped(self) -> Matrices:
        """Return the transposed factor, in the same memory."""
        return Matrices(self.batch, self.rows, self.columns, not self.transposed)

    def offsets(self, batch: tuple[int, ...]) -> list[int]:
        """Return the start of the matrix for every index of a batch that this one is broadcast to, in elements."""
        own = (1,) * (len(batch) - len(self.batch)) + self.batch
        steps = [0] * len(own)
        step = self.rows * self.columns
        for axis in reversed(range(len(own))):
            steps[axis] = 0 if own[axis] == 1 else step
            step *= own[axis]
        return [
            sum(i * s for i, s in zip(index, steps, strict=True)) for index in itertools.product(*map(range, batch))
        ]


def multiply(
    o: Lowering,
    factors: tuple[Any, Matrices],
    others: tuple[Any, Matrices],
    out: tuple[Any, Matrices],
    alpha: float,
    acc: int = 0,
    part: int = 0,
    weights: bool = False,
) -> None:
    """Append the calls for out (+)= alpha factors @ others; products of one place of out are added up.

    Where threads may share it, a large product is several calls, for parts of out or of its matrices.

    Args:
        o: collects them.
        factors, others, out: each with its matrices.
        alpha: factor.
        acc: 1 to add to out.
        part: number of the first part.
        weights: see `areas`.
    """
    (a, left), (b, right), (c, result) = factors, others, out
    batch = broadcast(left.batch, right.batch, result.batch)
    seen: set[int] = set()
    table: list[tuple[int, int, int, int]] = []
    for at_a, at_b, at_c in zip(left.offsets(batch), right.offsets(batch), result.offsets(batch), strict=True):
        table.append((at_a, at_b, at_c, 1 if at_c in seen else 2 * acc))
        seen.add(at_c)
    m, n, k = left.height, right.width, left.width
    work = 2 * m * n * k * len(table)

    def call(area: Area, rows: Sequence[tuple[int, int, int, int]], start: int, size: int, number: int | None) -> None:
        high, wide = (end - begin for begin, end in (area.rows, area.columns))
        o.call(
            products, int(left.transposed), int(right.transposed), high, wide, k, a, left.columns, b, right.columns,
            Offset(c, start), n, size, alpha, Numbers(tuple(itertools.chain(*rows)) or (0,)), len(rows),
            o.scratch(gemm_scratch(wide, k), c.dtype), part=number,
        )  # fmt: skip

    if len(table) == 1 and alpha == 1:
        found = quarters(m, n, k) if o.helped else areas(m, n, k, o.threads, weights=weights)
        if len(found) > 1:
            for number, area in enumerate(found, part):
                (top, _), (side, _) = area.rows, area.columns
                at_a, at_b = top * (1 if left.transposed else left.columns), side * (right.columns if right.transposed else 1)
                call(area, [(at_a, at_b, 0, table[0][3])], top * n + side, 0, number)
            return
    whole = Area((0, m), (0, n))
    chunks = min(o.threads, work // ENOUGH, len(table)) if len(seen) == len(table) else 1
    if chunks < 2:
        call(whole, table, 0, c.size, part if o.threads > 1 and work >= ENOUGH else None)
        return
    for number in range(chunks):
        rows = table[len(table) * number // chunks : len(table) * (number + 1) // chunks]
        start = rows[0][2]
        call(whole, [(p, q, r - start, flag) for p, q, r, flag in rows], start, len(rows) * m * n, part + number)


def multiply_back(o: Lowering, x: Matrices, y: Matrices, out: Matrices, alpha: float) -> None:
    """Append the calls for the gradients of alpha x @ y that are wanted."""
    g = o.input("Out@GRAD")
    if o.has("X@GRAD"):
        pair = ((g, out), (o.input("Y"), y.flipped()))
        _gradient(o, "X@GRAD", ((o.input("Y"), y), (g, out.flipped())) if x.transposed else pair, x, alpha)
    if o.has("Y@GRAD"):
        pair = ((o.input("X"), x.flipped()), (g, out))
        _gradient(o, "Y@GRAD", ((g, out.flipped()), (o.input("X"), x)) if y.transposed else pair, y, alpha)


def _gradient(
    o: Lowering, slot: str, pair: tuple[tuple[Any, Matrices], tuple[Any, Matrices]], result: Matrices, alpha: float
) -> None:
    """Append the product that is a gradient: added by the kernel itself where that is one addition an element."""
    weights = slot == "Y@GRAD"
    part = o.threads if weights else 0  # beside the parts of X@GRAD
    left, right = pair[0][1], pair[1][1]
    many = math.prod(broadcast(left.batch, right.batch, result.batch))
    sizes = left.height, right.width, left.width, o.output(slot).type.numpy.itemsize
    once = many == math.prod(result.batch) and adds_at_once(left.transposed, *sizes)
    if many and once and alpha == 1:
        multiply(o, *pair, (o.output(slot), result), alpha, preload(o, slot), part, weights)
    else:
        beside(o, slot, lambda out: multiply(o, *pair, (out, result), alpha, 0, part, weights))


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common shape of batch axes, aligned at the right; an unknown size (-1) gives way to a known one.

    Raises:
        PeError: two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes))
    out = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        known = sizes - {-1}
        if len(known) > 1:
            raise PeError(
                f"batch axes {' and '.join(str(list(s)) for s in shapes)} cannot be broadcast: {sorted(known)} differ"
            )
        out.append(next(iter(known or sizes), 1))
    return tuple(out)


# --- mul ------------------------------------------------------------------------------------------------------------


@op(
    "mul",
    cut=True,
    inputs="X Y",
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


@mul.grad(uses="X Y", adds="X@GRAD Y@GRAD").lower("cpu")
def mul_grad_cpu(o: Lowering) -> None:
    """X@GRAD = Out@GRAD Y^T, Y@GRAD = X^T Out@GRAD."""
    multiply_back(o, *_mul_matrices(o), 1.0)


@mul.count
def mul_flops(x: TensorType, y: TensorType, *, x_num_col_dims: int, y_num_col_dims: int) -> int:
    """Return 2 rows inner columns."""
    return 2 * product(x.shape) * product(y.shape[y_num_col_dims:])


# --- matmul ---------------------------------------------------------------------------------------------------------


@op(
    "matmul",
    cut=True,
    inputs="X Y",
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
    """One product a matrix."""
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


# --- CUDA -------------------------------------------------------------------------------------------------------------


#: A block computes a square of the product, tile by tile of the factors; a tile's rows are one longer, so that its columns lie in
#: different banks of shared memory.
TILE: Any = Tuned(16, 6)
LINE: Any = Tuned(17, 7)


@on_cuda(products)
def no_products(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """Without a product C is zero."""
    for i in range(size if count == 0 else 0):
        c[i] = T(0)


@on_cuda(products, block=(TILE, TILE, 1), threads=("m", "n", "count"))
def products_cuda(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, ldc: Int, size: Int, alpha: Real,
    table: PtrI64, count: Int, scratch: Ptr,
):  # fmt: skip
    """One thread an element of C; of the products that are added up in one place, the first block does all, in order."""
    left = cuda.shared.array((TILE, LINE), T)
    right = cuda.shared.array((TILE, LINE), T)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, side = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
    for z in range(cuda.blockIdx.z, count, cuda.gridDim.z):
        if table[4 * z + 3] == 1:
            continue
        total = T(0)
        last = count if size < count * m * n else z + 1
        for q in range(z, last):
            if table[4 * q + 2] != table[4 * z + 2]:
                continue
            at_a, at_b = table[4 * q], table[4 * q + 1]
            for begin in range(0, k, TILE):
                # Neighbours in x read neighbours in memory, whichever way a factor lies.
                row, inner = (top + tx, begin + ty) if ta else (top + ty, begin + tx)
                value = T(0)
                if row < m and inner < k:
                    value = a[at_a + (inner * lda + row if ta else row * lda + inner)]
                left[row - top, inner - begin] = value
                column, inner = (side + ty, begin + tx) if tb else (side + tx, begin + ty)
                value = T(0)
                if column < n and inner < k:
                    value = b[at_b + (column * ldb + inner if tb else inner * ldb + column)]
                right[inner - begin, column - side] = value
                cuda.syncthreads()
                for i in range(TILE):
                    total += left[ty, i] * right[i, tx]
                cuda.syncthreads()
        if top + ty < m and side + tx < n:
            at = table[4 * z + 2] + (top + ty) * ldc + side + tx
            c[at] = c[at] + total if table[4 * z + 3] == 2 else T(alpha) * total


also_on_cuda(mul, matmul)
