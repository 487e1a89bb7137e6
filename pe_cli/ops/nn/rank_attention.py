"""rank_attention: a row times the weights of the pair of its rank and that of every other row of its page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, Status, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import report
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData


@kernel
def attend_ranks(x: Ptr, ranks: PtrI32, param: Ptr, out: Ptr, n: Int, rows: Int, width: Int, size: Int, most: Int, status: Status):
    """out[r] = sum over the others k of x[their row] times the weights of (rank of r, rank of k)."""
    for i in range(n):
        r = i // size
        j = i - r * size
        at = r * (2 * most + 1)
        # Times 1 widens what is stored as int32 to the kernels' int64, in which places are computed.
        own = ranks[at] * 1
        # Each row is reported once, by the first of its numbers.
        if j == 0 and own > most:
            report(status, r, own, most + 1)
        total = T(0)
        for k in range(most):
            other = ranks[at + 2 * k + 1] * 1
            row = ranks[at + 2 * k + 2] * 1
            if 0 < own <= most and other > 0:
                if other > most or row < 0 or row >= rows:
                    if j == 0:
                        report(status, r, other if other > most else row, most + 1 if other > most else rows)
                else:
                    # Weights of two ranks are [width, size] blocks, one below the other.
                    begin = ((own - 1) * most + other - 1) * width
                    for a in range(width):
                        total += x[row * width + a] * param[(begin + a) * size + j]
        out[i] = total


@kernel
def attend_ranks_back(x: Ptr, ranks: PtrI32, g: Ptr, dparam: Ptr, n: Int, rows: Int, width: Int, size: Int, most: Int):
    """dparam = for every row of the weights of two ranks the sum of what was multiplied with it."""
    # Each row of the weights looks for the pairs that used it: no two threads add to one number.
    for i in range(n):
        both = i // width
        a = i - both * width
        own = both // most + 1
        other = both - (own - 1) * most + 1
        for j in range(size):
            dparam[i * size + j] = T(0)
        for r in range(rows):
            at = r * (2 * most + 1)
            if ranks[at] == own:
                for k in range(most):
                    row = ranks[at + 2 * k + 2] * 1
                    # Rows that forward reported do not come here; the check keeps a gradient of other ranks inside memory.
                    if ranks[at + 2 * k + 1] == other and 0 <= row < rows:
                        share = x[row * width + a]
                        for j in range(size):
                            dparam[i * size + j] += share * g[r * size + j]


def _ranks(*rows: list[int]) -> Callable[[Any], NDArray[np.int32]]:
    return lambda rng: np.array(rows, np.int32).reshape(len(rows), -1)


#: A page of two rows, one of one, and a row of a rank that does not count.
_PAGES = _ranks([2, 1, 1, 2, 0], [1, 1, 1, 2, 0], [1, 1, 2, -1, -1], [-1, -1, -1, -1, -1])


@op(
    "rank_attention",
    inputs="X RankOffset RankParam",
    differentiable="RankParam",
    traits=[ReportsData()],
    attrs={"MaxRank": Attr(3, "ranks that count")},
    samples=[
        Sample({"X": (4, 3), "RankOffset": _PAGES, "RankParam": (12, 2)}, {"MaxRank": 2}, "two pages", keep=("RankOffset",)),
        Sample({"X": (1, 1), "RankOffset": _ranks([1, 1, 0]), "RankParam": (1, 1)}, {"MaxRank": 1}, "one row", keep=("RankOffset",)),
        Sample(
            {"X": (0, 2), "RankOffset": lambda rng: _PAGES(rng)[:0], "RankParam": (8, 3)}, {"MaxRank": 2}, "no rows", keep=("RankOffset",)
        ),
    ],
)  # fmt: skip
def rank_attention(x: TensorType, ranks: TensorType, param: TensorType, *, MaxRank: int) -> TensorType:
    """Let every row of a page of results see the others: each is multiplied with weights of its own for both ranks.

    Out[r] = sum over k of X[index of k] RankParam[(rank of r, rank of k)], the weights of two ranks being [width, size].

    Args:
        X: [rows, width] float32 or float64; the results of all pages.
        RankOffset: int32 [rows, 1 + 2 MaxRank]; the rank of a row, from 1, and of every row of its page its rank and its number in X.
            Ranks and numbers below 1 stand for no row.
        RankParam: [MaxRank MaxRank width, size] element type of X.
        MaxRank: see the attribute.

    Returns:
        Out: [rows, size] element type of X.

    Raises:
        PeError: types that do not fit; while running, a rank or a row that there is not.

    Source:
        fluid's operator of that name. As in the original, X gets no gradient.
    """
    many = MaxRank
    fits = len(x.shape) == 2 and x.dtype in FLOATS and param.dtype == x.dtype and len(param.shape) == 2 and many > 0
    if not fits or param.shape[0] != many * many * x.shape[1]:
        raise PeError(f"rank_attention needs X [rows, width] and RankParam [{many} {many} width, size] of one float type, got {x}, {param}")
    if ranks.dtype != "int32" or len(ranks.shape) != 2 or ranks.shape[1] != 2 * many + 1:
        raise PeError(f"rank_attention needs RankOffset int32 [rows, {2 * many + 1}] for {many} ranks, got {ranks}")
    if -1 not in (x.shape[0], ranks.shape[0]) and x.shape[0] != ranks.shape[0]:
        raise PeError(f"rank_attention: X has {x.shape[0]} rows, RankOffset {ranks.shape[0]}")
    return x.with_shape(x.shape[0], param.shape[1])


@rank_attention.lower("cpu")
def rank_attention_cpu(o: Lowering) -> None:
    """Number by number."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        numbers = (out.size, *x.shape, out.shape[1], o.attrs["MaxRank"])
        o.call(attend_ranks, x, o.input("RankOffset"), o.input("RankParam"), out, *numbers, STATUS)


@rank_attention.grad(uses="X RankOffset").lower("cpu")
def rank_attention_grad_cpu(o: Lowering) -> None:
    """Row by row of the weights."""
    x, d = o.input("X"), o.output("RankParam@GRAD")
    if d.size:
        numbers = (d.shape[0], *x.shape, d.shape[1], o.attrs["MaxRank"])
        o.call(attend_ranks_back, x, o.input("RankOffset"), o.input("Out@GRAD"), d, *numbers)


deal(attend_ranks, attend_ranks_back)
also_on_cuda(rank_attention)
