"""softmax_with_cross_entropy on CUDA: a warp on a row of neighbours."""

from __future__ import annotations

from pe_cli.kernels.cuda.language import cuda, deal, on_cuda
from pe_cli.kernels.cuda.warp import LANES, WARPS, first_row, row_step, warp_sum
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import report
from pe_cli.ops.loss.softmax_with_cross_entropy import (
    add_to,
    softmax_loss,
    softmax_loss_back,
    softmax_loss_strided,
    softmax_loss_strided_back,
    softmax_with_cross_entropy,
)
from pe_cli.ops.nn.softmax_cuda import warp_top


@on_cuda(softmax_loss, block=WARPS, threads=("32", "rows"))
def softmax_loss_cuda(
    x: Ptr, label: PtrI64, p: Ptr, loss: Ptr, rows: Int, n: Int, ignored: Int, per: Int, status: Status
):
    """Probabilities and loss, a warp on a row; p may be x."""
    lane, r = cuda.threadIdx.x, first_row()
    while r < rows:
        k = label[r]
        # All lanes of the warp read the same label, so all of them leave here, and no one waits in warp_sum.
        if k != ignored and (k < 0 or k >= n):
            if lane == 0:
                report(status, r // per, k, n)
            return
        first, end = r * n + lane, r * n + n
        at = r * n + k
        m = warp_top(x, first, end)
        total, mine = T(0), T(0)
        j = first
        while j < end:
            d = x[j] - m
            # The label's logit is taken in this pass: p may be x, and then it is gone afterwards.
            if j == at:
                mine = d
            d = exp(d)
            p[j] = d
            total += d
            j += LANES
        total = warp_sum(total)
        # One lane met the label, the others have 0: the sum brings its difference to lane 0.
        picked = warp_sum(mine)
        if lane == 0:
            loss[r] = T(0) if k == ignored else log(total) - picked
        share = T(1) / total
        j = first
        while j < end:
            p[j] *= share
            j += LANES
        r += row_step()


@on_cuda(softmax_loss_back, block=WARPS, threads=("32", "rows"))
def softmax_loss_back_cuda(p: Ptr, label: PtrI64, g: Ptr, dx: Ptr, rows: Int, n: Int, ignored: Int):
    """A warp on a row; dx may be p."""
    r = first_row()
    while r < rows:
        k = label[r]
        j, end, at = r * n + cuda.threadIdx.x, r * n + n, r * n + k
        if k == ignored or k < 0 or k >= n:
            # Not multiplied by 0: the row of an ignored label may hold NaN.
            while j < end:
                dx[j] = T(0)
                j += LANES
        share = g[r]
        while j < end:
            dx[j] = share * (p[j] - (T(1) if j == at else T(0)))
            j += LANES
        r += row_step()


deal(softmax_loss_strided, softmax_loss_strided_back, add_to)
also_on_cuda(softmax_with_cross_entropy)
