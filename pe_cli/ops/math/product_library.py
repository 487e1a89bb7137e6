"""Matrix products that cuBLASLt may compute on CUDA: those whose matrices lie evenly, one product for each matrix of C."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pe_cli.kernels.library_calls import CUBLAS, Product, offer
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.math.matrix_product import Matrices

#: Bytes of workspace: so many partial results of C at most, and never more in all.
PARTIAL, MOST_ROOM = 32, 32 << 20
_SIZES = {"float32": 4, "float64": 8}


def even(starts: Sequence[int]) -> int | None:
    """Return how far apart numbers are, 0 for one; None where they are not evenly spaced."""
    steps = {b - a for a, b in itertools.pairwise(starts)}
    return None if len(steps) > 1 else min(steps, default=0)


def room_of(c: Buffer) -> int:
    """Return the elements of workspace that a product into C is given."""
    size = _SIZES[c.dtype]
    return min(PARTIAL * c.size * size, MOST_ROOM) // size


def product_of(
    m: int, n: int, k: int, left: Matrices, right: Matrices, pairs: Sequence[Sequence[tuple[int, int]]], starts: Sequence[int], dtype: str,
    precision: str, alpha: float, adds: bool, bias: bool, relu: bool,
) -> Product | None:  # fmt: skip
    """Return what cuBLASLt is asked for; None where it has no such call.

    Args:
        m, n, k: sizes.
        left, right: factors.
        pairs: where factors begin whose products are added up, for each matrix of C.
        starts: where the matrices of C begin.
        dtype, precision, alpha, adds, bias, relu: see `Product`.
    """
    if dtype not in _SIZES or not k or not pairs or any(len(group) != 1 for group in pairs):
        return None
    steps = [step for s in ([a for ((a, _),) in pairs], [b for ((_, b),) in pairs], starts) if (step := even(s)) is not None]
    if len(steps) < 3 or min(steps) < 0:
        return None
    a, b, c = steps
    precision = "float32" if dtype == "float64" else precision
    return Product(
        m, n, k, left.transposed, right.transposed, left.columns, right.columns, len(pairs), a, b, c, dtype, precision, alpha, adds,
        bias, relu,
    )  # fmt: skip


def offer_product(o: Lowering, begin: int, what: Product | None, pairs: Sequence[Sequence[tuple[int, int]]], args: Sequence[Any]) -> None:
    """Let cuBLASLt take the place of the calls from one on, where the run may use it.

    Args:
        o: of the op.
        begin: number of the first call.
        what: of `product_of`.
        pairs: see `product_of`.
        args: A, B, C, and the bias, or C again.
    """
    if what is None or CUBLAS not in o.libraries:
        return
    a, b, c, bias = args
    (at_a, at_b) = pairs[0][0]
    room = o.scratch(room_of(c), c.dtype)
    offer(o.calls, begin, what, (moved(a, at_a), moved(b, at_b), c, bias, room), (2, 4), c)


def moved(arg: Any, elements: int) -> Any:
    """Return a place so many elements behind another."""
    if not elements:
        return arg
    return Offset(arg.buffer, arg.elements + elements) if isinstance(arg, Offset) else Offset(arg, elements)

