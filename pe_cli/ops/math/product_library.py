"""Matrix products that cuBLASLt may compute on CUDA: those whose matrices lie evenly, one product for each matrix of C.

Of factors that are bfloat16 in memory C is bfloat16 or float32. It has a bias only where both are float32: so what comes behind a
product that is stored as bfloat16 is a launch of ours on sums of float32, which are rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import BFLOAT16, DTYPES, FLOATS
from pe_cli.kernels.calls import buffers_of
from pe_cli.kernels.cuda.library_calls import CUBLAS, Product, offer
from pe_cli.ops.define.copy_kernels import convert
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.math.matrix_product import Matrices

#: Bytes of workspace: so many partial results of C at most, and never more in all.
PARTIAL, MOST_ROOM = 32, 32 << 20


def even(starts: Sequence[int]) -> int | None:
    """Return how far apart numbers are, 0 for one; None where they are not evenly spaced."""
    steps = {b - a for a, b in itertools.pairwise(starts)}
    return None if len(steps) > 1 else min(steps, default=0)


def room_of(c: Buffer) -> int:
    """Return the elements of workspace that a product into C is given."""
    size = DTYPES[c.dtype]
    return min(PARTIAL * c.size * size, MOST_ROOM) // size


def product_of(
    m: int, n: int, k: int, left: Matrices, right: Matrices, pairs: Sequence[Sequence[tuple[int, int]]], starts: Sequence[int], dtype: str,
    made: str, precision: str, alpha: float, adds: bool, bias: bool, relu: bool, deterministic: bool,
) -> Product | None:  # fmt: skip
    """Return what cuBLASLt is asked for; None where it has no such call.

    Args:
        m, n, k: sizes.
        left, right: factors.
        pairs: where factors begin whose products are added up, for each matrix of C.
        starts: where the matrices of C begin.
        dtype: of the factors; empty where they differ.
        made: type of C.
        precision, alpha, adds, bias, relu, deterministic: see `Product`.
    """
    known = {dtype} if dtype in FLOATS else {"float32", BFLOAT16} if dtype == BFLOAT16 else set()
    if made not in known or not k or not pairs or any(len(group) != 1 for group in pairs):
        return None
    # cuBLASLt takes a batch of matrices as a start and a stride: those that do not lie evenly are multiplied by our own kernels.
    steps = [step for s in ([a for ((a, _),) in pairs], [b for ((_, b),) in pairs], starts) if (step := even(s)) is not None]
    if len(steps) < 3 or min(steps) < 0:
        return None
    a, b, c = steps
    return Product(
        m, n, k, left.transposed, right.transposed, left.columns, right.columns, len(pairs), a, b, c, dtype,
        "float32" if bias and made == BFLOAT16 else made, precision if dtype == "float32" else "float32", alpha, adds, bias, relu,
        deterministic,
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
    a, b, c, bias = args
    if what is None or CUBLAS not in o.libraries or (what.bias and type_of(bias) != what.made):
        return
    (at_a, at_b) = pairs[0][0]
    total = c if what.made == c.dtype else o.scratch(c.size, what.made)
    room = o.scratch(room_of(total), what.made)
    after = [] if total is c else o.apart(lambda: o.call(convert, total, c, c.size, dtype=c.dtype, second=what.made))
    called = (moved(a, at_a), moved(b, at_b), total, bias if what.bias else total, room)
    offer(o.calls, begin, what, called, (2, 4), [c], after=after)


def type_of(*args: Any) -> str:
    """Return the element type of arguments; empty where they have several."""
    found = {held.dtype for arg in args for held in buffers_of(arg)}
    return found.pop() if len(found) == 1 else ""


def moved(arg: Any, elements: int) -> Any:
    """Return a place so many elements behind another."""
    if not elements:
        return arg
    return Offset(arg.buffer, arg.elements + elements) if isinstance(arg, Offset) else Offset(arg, elements)

