"""cholesky and inverse of small matrices, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, check_kind
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, helper, kernel
from pe_cli.kernels.math.vector_math import absolute, square_root
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op


def _check(name: str, x: TensorType) -> TensorType:
    """Return the type of x, unless it is no batch of square matrices."""
    check_kind(name, x)
    if len(x.shape) < 2 or (x.shape[-1] != x.shape[-2] and -1 not in x.shape[-2:]):
        raise PeError(f"{name} needs square matrices, got {x}")
    return x


def _matrices(out: Buffer) -> tuple[int, int]:
    """Return how many matrices there are, and their size."""
    n = out.shape[-1]
    return out.size // (n * n), n


# --- inverse ----------------------------------------------------------------------------------------------------------


@helper
def _bring_pivot(out, work, at, n, c):
    """Exchange row c with the one below whose element in column c is the largest."""
    best = c
    for i in range(c + 1, n):
        if absolute(work[at + i * n + c]) > absolute(work[at + best * n + c]):
            best = i
    for j in range(n):
        a, b = work[at + c * n + j], out[at + c * n + j]
        work[at + c * n + j], out[at + c * n + j] = work[at + best * n + j], out[at + best * n + j]
        work[at + best * n + j], out[at + best * n + j] = a, b


@kernel
def inverted(x: Ptr, out: Ptr, work: Ptr, matrices: Int, n: Int):
    """out = the inverse of each matrix, by elimination with the largest pivot of each column; work: scratch of x's size."""
    for m in range(matrices):
        at = m * n * n
        for i in range(n):
            for j in range(n):
                work[at + i * n + j] = x[at + i * n + j]
                out[at + i * n + j] = T(1) if i == j else T(0)
        for c in range(n):
            # A zero on the diagonal must not be divided by, and the largest pivot loses the fewest digits.
            _bring_pivot(out, work, at, n, c)
            scale = T(1) / work[at + c * n + c]
            for j in range(n):
                work[at + c * n + j] *= scale
                out[at + c * n + j] *= scale
            for i in range(n):
                if i != c:
                    times = work[at + i * n + c]
                    for j in range(n):
                        work[at + i * n + j] -= times * work[at + c * n + j]
                        out[at + i * n + j] -= times * out[at + c * n + j]


@kernel
def inverted_back(inverse: Ptr, g: Ptr, dx: Ptr, work: Ptr, matrices: Int, n: Int):
    """dx = -inverse^T g inverse^T; work: scratch of dx's size."""
    # From X inverse = I: dX^-1 = -X^-1 dX X^-1, whose transpose multiplies the gradient from both sides.
    for m in range(matrices):
        at = m * n * n
        for i in range(n):
            for j in range(n):
                total = T(0)
                for k in range(n):
                    total += inverse[at + k * n + i] * g[at + k * n + j]
                work[at + i * n + j] = total
        for i in range(n):
            for j in range(n):
                total = T(0)
                for k in range(n):
                    total += work[at + i * n + k] * inverse[at + j * n + k]
                dx[at + i * n + j] = -total


def _regular(*shape: int) -> Any:
    """Return a sample's matrices, which are far from singular."""
    return lambda rng: rng.standard_normal(shape) + 3 * np.eye(shape[-1])


@op(
    "inverse",
    faces=[Face("", "x name")],
    inputs="Input",
    outputs="Output",
    samples=[
        Sample({"Input": _regular(4, 4)}, name="a matrix"),
        Sample({"Input": _regular(2, 3, 5, 5)}, name="matrices"),
        Sample({"Input": lambda rng: np.array([[0.0, 2, 1], [1, 0, 0], [3, 0, 1]])}, name="zeros on the diagonal"),
        Sample({"Input": _regular(1, 1)}, name="one element"),
        Sample({"Input": (0, 3, 3)}, name="an empty batch"),
    ],
)
def inverse(x: TensorType) -> TensorType:
    """Invert square matrices.

    Input Output = I; infinite or NaN where a matrix is singular.

    Args:
        Input: [.., n, n] float32 or float64.

    Returns:
        Output: type of Input.

    Raises:
        PeError: Input has fewer than two axes, or the last two differ.

    Source:
        paddle.inverse; Gauss and Jordan's elimination with partial pivoting, gradient -Output^T G Output^T.
    """
    return _check("inverse", x)


@inverse.lower("cpu")
def inverse_cpu(o: Lowering) -> None:
    """Matrix by matrix."""
    out = o.output("Output")
    if out.size:
        o.call(inverted, o.input("Input"), out, o.scratch(out.size, out.dtype), *_matrices(out))


@inverse.grad(uses="Output").lower("cpu")
def inverse_grad_cpu(o: Lowering) -> None:
    """Two products per matrix."""
    dx = o.output("Input@GRAD")
    if dx.size:
        work = o.scratch(dx.size, dx.dtype)
        o.call(inverted_back, o.input("Output"), o.input("Output@GRAD"), dx, work, *_matrices(dx))


# --- cholesky ---------------------------------------------------------------------------------------------------------


@kernel
def rooted(x: Ptr, out: Ptr, matrices: Int, n: Int, row: Int, column: Int):
    """out = L with L L^T = (x + x^T) / 2; L[i, j] is at i row + j column of its matrix."""
    for m in range(matrices):
        at = m * n * n
        for i in range(n):
            for j in range(n):
                out[at + i * row + j * column] = T(0)
        for i in range(n):
            for j in range(i + 1):
                # The mean of both triangles: the gradient is then symmetric, and rounding in either triangle counts alike.
                total = T(0.5) * (x[at + i * n + j] + x[at + j * n + i])
                for k in range(j):
                    total -= out[at + i * row + k * column] * out[at + j * row + k * column]
                if i == j:
                    out[at + i * row + i * column] = square_root(total)
                else:
                    out[at + i * row + j * column] = total / out[at + j * row + j * column]


@helper
def _solve_from_left(root, work, at, n, row, column):
    """work = L^-T work, for the matrix at `at`."""
    # L^-T is upper triangular: each row needs those below it.
    for down in range(n):
        i = n - 1 - down
        for j in range(n):
            total = work[at + i * n + j]
            for k in range(i + 1, n):
                total -= root[at + k * row + i * column] * work[at + k * n + j]
            work[at + i * n + j] = total / root[at + i * row + i * column]


@helper
def _solve_from_right(root, work, at, n, row, column):
    """work = work L^-1, for the matrix at `at`."""
    for i in range(n):
        # Each column needs those behind it, so the last one is solved first.
        for back in range(n):
            j = n - 1 - back
            total = work[at + i * n + j]
            for k in range(j + 1, n):
                total -= work[at + i * n + k] * root[at + k * row + j * column]
            work[at + i * n + j] = total / root[at + j * row + j * column]


@kernel
def rooted_back(root: Ptr, g: Ptr, dx: Ptr, work: Ptr, matrices: Int, n: Int, row: Int, column: Int):
    """dx = (S + S^T) / 2, S = L^-T P L^-1, P = the lower triangle of L^T g with half its diagonal; work: scratch of dx's size."""
    # Murray, "Differentiation of the Cholesky decomposition" (2016).
    for m in range(matrices):
        at = m * n * n
        for i in range(n):
            for j in range(n):
                total = T(0)
                if j <= i:
                    for k in range(i, n):
                        total += root[at + k * row + i * column] * g[at + k * row + j * column]
                work[at + i * n + j] = total * T(0.5) if i == j else total
        _solve_from_left(root, work, at, n, row, column)
        _solve_from_right(root, work, at, n, row, column)
        for i in range(n):
            for j in range(n):
                dx[at + i * n + j] = T(0.5) * (work[at + i * n + j] + work[at + j * n + i])


def _definite(*shape: int) -> Any:
    """Return a sample's matrices, which are symmetric and positive definite."""

    def make(rng: np.random.Generator) -> Any:
        half = rng.standard_normal(shape)
        return half @ half.swapaxes(-1, -2) + 2 * np.eye(shape[-1])

    return make


@op(
    "cholesky",
    faces=[Face("", "x upper name")],
    inputs="X",
    attrs={"upper": Attr(False, "give the upper triangle L^T")},
    samples=[
        Sample({"X": _definite(4, 4)}, name="a matrix"),
        Sample({"X": _definite(4, 4)}, {"upper": True}, "an upper triangle"),
        Sample({"X": _definite(2, 3, 5, 5)}, name="matrices"),
        Sample({"X": _definite(1, 1)}, name="one element"),
        Sample({"X": (0, 3, 3)}, name="an empty batch"),
    ],
)
def cholesky(x: TensorType, *, upper: bool) -> TensorType:
    """Write symmetric positive definite matrices as the product of a triangle and its transpose.

    X = L L^T, L a lower triangle with a positive diagonal. Of an X that is not symmetric, (X + X^T) / 2 is taken;
    NaN where a matrix is not positive definite.

    Args:
        X: [.., n, n] float32 or float64.
        upper: give L^T.

    Returns:
        Out: type of X, zeros in the other triangle.

    Raises:
        PeError: X has fewer than two axes, or the last two differ.

    Source:
        paddle.cholesky; the gradient is that of Murray 2016, eq. 10, made symmetric.
    """
    return _check("cholesky", x)


def _steps(o: Lowering, n: int) -> tuple[int, int]:
    return (1, n) if o.attrs["upper"] else (n, 1)


@cholesky.lower("cpu")
def cholesky_cpu(o: Lowering) -> None:
    """Matrix by matrix, row by row."""
    out = o.output("Out")
    if out.size:
        o.call(rooted, o.input("X"), out, *_matrices(out), *_steps(o, out.shape[-1]))


@cholesky.grad(uses="Out").lower("cpu")
def cholesky_grad_cpu(o: Lowering) -> None:
    """A product and two solutions per matrix."""
    dx = o.output("X@GRAD")
    if dx.size:
        work = o.scratch(dx.size, dx.dtype)
        o.call(rooted_back, o.input("Out"), o.input("Out@GRAD"), dx, work, *_matrices(dx), *_steps(o, dx.shape[-1]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(inverted, inverted_back, rooted, rooted_back)
also_on_cuda(inverse, cholesky)
