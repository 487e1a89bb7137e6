"""Products of vectors and matrices."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Multiply matrices, one pair per sample.

    Out[b] = x[b] y[b]

    Args:
        x: [batch, rows, inner] float32 or float64.
        y: [batch, inner, columns], dtype of x.
        name: prefix of the output's name.

    Returns:
        [batch, rows, columns].

    Raises:
        PeError: other numbers of axes, or sizes do not fit.

    Source:
        paddle.bmm.
    """
    helper = LayerHelper("bmm", name)
    helper.check_rank(x, "x", 3, "[batch, rows, inner]")
    helper.check_rank(y, "y", 3, "[batch, inner, columns]")
    return helper.one("matmul", {"X": x, "Y": y})


@layer
def mv(x: Variable, vec: Variable, name: str | None = None) -> Variable:
    """Multiply a matrix and a vector.

    Out[i] = sum_j x[i, j] vec[j]

    Args:
        x: [rows, columns] float32 or float64.
        vec: [columns], dtype of x.
        name: prefix of the output's name.

    Returns:
        [rows].

    Raises:
        PeError: other numbers of axes, or sizes do not fit.

    Source:
        paddle.mv.
    """
    helper = LayerHelper("mv", name)
    helper.check_rank(x, "x", 2, "[rows, columns]")
    helper.check_rank(vec, "vec", 1, "[columns]")
    column = helper.one("unsqueeze", {"X": vec}, {"axes": [1]})
    return helper.one("squeeze", {"X": helper.one("matmul", {"X": x, "Y": column})}, {"axes": [1]})


@layer
def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Multiply vectors element by element and add up.

    Out[b] = sum_i x[b, i] y[b, i]

    Args:
        x: [size], or [batch, size] for one product per row; a number type.
        y: type of x.
        name: prefix of the output's name.

    Returns:
        [1], or [batch, 1].

    Raises:
        PeError: more axes, or types differ.

    Source:
        paddle.dot.
    """
    helper = LayerHelper("dot", name)
    helper.check_same(x, y)
    if len(x.shape) not in (1, 2):
        raise helper.error(f"dot: x should be [size] or [batch, size], got {x}", hint="reshape it")
    # As a sum of products and not by matmul, which is for floating-point numbers: whole numbers have a dot product, too.
    return helper.one("reduce_sum", {"X": helper.one("elementwise_mul", {"X": x, "Y": y})}, {"dim": [-1], "keep_dim": True})


@layer
def addmm(input: Variable, x: Variable, y: Variable, beta: float = 1.0, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Multiply matrices and add a third.

    Out = beta input + alpha x y

    Args:
        input: [rows, columns], or sizes of 1; dtype of x.
        x: [rows, inner] float32 or float64.
        y: [inner, columns], dtype of x.
        beta: factor of input, no unit.
        alpha: factor of the product, no unit.
        name: prefix of the output's name.

    Returns:
        [rows, columns].

    Raises:
        PeError: other numbers of axes, or sizes do not fit.

    Source:
        paddle.addmm.
    """
    helper = LayerHelper("addmm", name)
    helper.check_rank(x, "x", 2, "[rows, inner]")
    helper.check_rank(y, "y", 2, "[inner, columns]")
    product = helper.one("matmul", {"X": x, "Y": y}, {"alpha": alpha})
    added = input if beta == 1 else helper.one("scale", {"X": input}, {"scale": beta})
    return helper.one("elementwise_add", {"X": product, "Y": added})


@layer
def kron(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Put the product of each element of one tensor with all of another in the element's place.

    Out[.., i size(y) + j, ..] = x[.., i, ..] y[.., j, ..]

    Args:
        x: any shape, a number type; all sizes but the first are known.
        y: all sizes known; dtype of x. Where one has fewer axes, axes of size 1 stand before its own.
        name: prefix of the output's name.

    Returns:
        The products of the sizes.

    Raises:
        PeError: a size is not known.

    Source:
        paddle.kron.
    """
    helper = LayerHelper("kron", name)
    # The last reshape can work out one size, so only the first of x may be unknown.
    if -1 in (*x.shape[1:], *y.shape):
        raise helper.error(f"kron needs known sizes of x and y, got {x} and {y}", hint="reshape one of them")
    most = max(len(x.shape), len(y.shape))
    # Axes in pairs, coarse and fine: x has size 1 on the fine ones, y on the coarse ones, and each pair then becomes one axis.
    first, second = ((1,) * (most - len(v.shape)) + v.shape for v in (x, y))
    coarse = [s for size in first for s in (size, 1)]
    fine = [s for size in second for s in (1, size)]
    one = helper.one("reshape", {"X": x}, {"shape": coarse})
    two = helper.one("reshape", {"X": y}, {"shape": fine})
    sizes = [-1 if a == -1 else a * b for a, b in zip(first, second, strict=True)]
    return helper.one("reshape", {"X": helper.one("elementwise_mul", {"X": one, "Y": two})}, {"shape": sizes})


@layer
def cross(x: Variable, y: Variable, axis: int | None = None, name: str | None = None) -> Variable:
    """Multiply vectors of three numbers to ones at right angles to both.

    Out = (x2 y3 - x3 y2, x3 y1 - x1 y3, x1 y2 - x2 y1)

    Args:
        x: any shape with an axis of size 3, a number type.
        y: type of x.
        axis: that axis; the first of size 3 by default.
        name: prefix of the output's name.

    Returns:
        Type of x.

    Raises:
        PeError: types differ, or the axis is not of size 3.

    Source:
        paddle.cross.
    """
    helper = LayerHelper("cross", name)
    helper.check_same(x, y)
    # The first axis of size 3, as in the original.
    at = (x.shape.index(3) if 3 in x.shape else 0) if axis is None else axis
    if not -len(x.shape) <= at < len(x.shape) or x.shape[at] != 3:
        raise helper.error(f"cross needs an axis of size 3, got axis {at} of {x}")

    def turned(v: Variable, by: int) -> Variable:
        parts = [
            helper.one("slice", {"Input": v}, {"axes": [at], "starts": [a], "ends": [b]}) for a, b in ((by, 3), (0, by))
        ]
        return helper.one("concat", {"X": parts}, {"axis": at})

    def product(a: Variable, b: Variable) -> Variable:
        return helper.one("elementwise_mul", {"X": a, "Y": b})

    # Turned by one and by two places, the numbers of three axes are those that the cross product multiplies.
    forward, back = product(turned(x, 1), turned(y, 2)), product(turned(x, 2), turned(y, 1))
    return helper.one("elementwise_sub", {"X": forward, "Y": back})
