"""linalg of 2.x: functions of matrices that are composed of products and inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers


def _turned(x: Any) -> Any:
    return layers.transpose(x, [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2])


def cov(
    x: Any, rowvar: bool = True, ddof: bool = True, fweights: Any = None, aweights: Any = None, name: str | None = None
) -> Any:
    """Return how variables vary together: [variables, variables].

    Args:
        x: [variables, samples], or [samples].
        rowvar: variables are rows, else columns.
        ddof: divide by one less than there are samples.
        fweights: [samples] whole numbers: how often each counts; or None.
        aweights: [samples]: how much each counts; or None.
        name: without effect.

    Raises:
        FluidValueError: x has more axes; a ValueError.
    """
    if len(x.shape) > 2:
        raise FluidValueError(f"cov: {x}", hint="[variables, samples], or [samples]")
    rows = layers.reshape(x, [1, -1]) if len(x.shape) == 1 else x if rowvar else layers.transpose(x, [1, 0])
    counts = None if fweights is None else layers.cast(fweights, x.dtype)
    weights = counts if aweights is None else aweights if counts is None else layers.elementwise_mul(counts, aweights)
    if weights is None:
        total = layers.reduce_sum(layers.full_like(layers.slice(rows, [0], [0], [1]), 1.0))
        means = layers.reduce_mean(rows, 1, True)
        each = layers.elementwise_sub(rows, means)
        spread, less = each, layers.scale(total, 1.0, -1.0 if ddof else 0.0)
    else:
        total = layers.reduce_sum(weights)
        means = layers.elementwise_div(layers.reduce_sum(layers.elementwise_mul(rows, weights), 1, True), total)
        each = layers.elementwise_sub(rows, means)
        spread, less = layers.elementwise_mul(each, weights), total
        if ddof and aweights is None:
            less = layers.scale(total, 1.0, -1.0)
        elif ddof:
            squares = layers.reduce_sum(layers.elementwise_mul(weights, aweights))
            less = layers.elementwise_sub(total, layers.elementwise_div(squares, total))
    product = layers.matmul(spread, each, False, True)
    found = layers.elementwise_div(product, less)
    return layers.reshape(found, [1]) if len(x.shape) == 1 else found


def corrcoef(x: Any, rowvar: bool = True, name: str | None = None) -> Any:
    """Return the correlations of variables, from -1 to 1: [variables, variables]; see `cov`."""
    found = cov(x, rowvar)
    if len(x.shape) == 1:
        return layers.elementwise_div(found, found)
    size = found.shape[0]
    spread = layers.sqrt(layers.reduce_sum(layers.elementwise_mul(found, layers.eye(size, dtype=x.dtype)), 1, True))
    return layers.clip(layers.elementwise_div(layers.elementwise_div(found, spread), layers.transpose(spread, [1, 0])), -1.0, 1.0)


def matrix_power(x: Any, n: int, name: str | None = None) -> Any:
    """Multiply a matrix, [..., size, size], by itself n times; its inverse where n is negative."""
    if n < 0:
        return matrix_power(layers.inverse(x), -n)
    made, square = None, x
    while n:
        if n & 1:
            made = square if made is None else layers.matmul(made, square)
        n >>= 1
        square = layers.matmul(square, square) if n else square
    if made is None:
        zeros = layers.scale(x, 0.0)
        zeros.stop_gradient = True
        made = layers.elementwise_add(zeros, layers.eye(x.shape[-1], dtype=x.dtype))
    return made


def multi_dot(x: Sequence[Any], name: str | None = None) -> Any:
    """Multiply matrices in a row, in the order that needs the fewest products; the first and the last may be vectors.

    Raises:
        FluidValueError: fewer than two, or sizes that do not fit; a ValueError.
    """
    given = list(x)
    if len(given) < 2 or any(len(v.shape) != 2 for v in given[1:-1]):
        raise FluidValueError(f"multi_dot: {len(given)} tensors", hint="two at least, matrices but for the ends")
    ends = [len(given[i].shape) == 1 for i in (0, -1)]
    given[0] = layers.reshape(given[0], [1, -1]) if ends[0] else given[0]
    given[-1] = layers.reshape(given[-1], [-1, 1]) if ends[1] else given[-1]
    sizes = [*(v.shape[0] for v in given), given[-1].shape[1]]
    count = len(given)
    best: dict[tuple[int, int], tuple[float, int]] = {(i, i): (0.0, i) for i in range(count)}
    for length in range(1, count):
        for i in range(count - length):
            costs = [
                (best[i, k][0] + best[k + 1, i + length][0] + abs(sizes[i] * sizes[k + 1] * sizes[i + length + 1]), k)
                for k in range(i, i + length)
            ]
            best[i, i + length] = min(costs)

    def product(i: int, j: int) -> Any:
        if i == j:
            return given[i]
        cut = best[i, j][1]
        return layers.matmul(product(i, cut), product(cut + 1, j))

    found = product(0, count - 1)
    kept = [s for s, gone in zip(found.shape, ends, strict=True) if not gone]
    return layers.reshape(found, kept or [1]) if any(ends) else found


def solve(x: Any, y: Any, name: str | None = None) -> Any:
    """Return z with x z = y, by the inverse of x.

    Args:
        x: [..., size, size].
        y: [..., size, columns], or [size].
        name: without effect.
    """
    if len(y.shape) == 1:
        return layers.squeeze(layers.matmul(layers.inverse(x), layers.unsqueeze(y, [1])), [len(x.shape) - 1])
    return layers.matmul(layers.inverse(x), y)


def triangular_solve(
    x: Any, y: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False, name: str | None = None
) -> Any:
    """Return z with x z = y, of whose x only a triangle counts, by its inverse.

    Args:
        x: [..., size, size].
        y: [..., size, columns].
        upper: the upper triangle counts, else the lower one.
        transpose: of the triangle.
        unitriangular: the diagonal counts as ones.
        name: without effect.
    """
    part = (layers.triu if upper else layers.tril)(x, (1 if upper else -1) if unitriangular else 0)
    if unitriangular:
        part = layers.elementwise_add(part, layers.eye(x.shape[-1], dtype=x.dtype))
    return layers.matmul(layers.inverse(_turned(part) if transpose else part), y)


def cholesky_solve(x: Any, y: Any, upper: bool = False, name: str | None = None) -> Any:
    """Return z with a z = x, where y is the triangle that `cholesky` makes of a.

    Args:
        x: [..., size, columns].
        y: [..., size, size].
        upper: y is the upper triangle.
        name: without effect.
    """
    first = triangular_solve(y, x, upper, transpose=upper)
    return triangular_solve(y, first, upper, transpose=not upper)


FUNCTIONS = (cholesky_solve, corrcoef, cov, matrix_power, multi_dot, solve, triangular_solve)
