"""kldiv_loss: how far one distribution is from another."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import cuda, deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, Real, T, helper, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.vector_math import log
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.loss.sigmoid_cross_entropy import chances


@helper
def divergence(x, target):
    """Return target (log(target) - x), 0 for a target of 0 or less."""
    return T(0) if target <= T(0) else target * (log(target) - x)


@kernel
def kldiv(x: Ptr, target: Ptr, out: Ptr, n: Int, share: Real, every: Int):
    """out[i] = divergence, or with every = 0 out[0] = share times their sum."""
    if every:
        for i in range(n):
            out[i] = divergence(x[i], target[i])
        return
    total = 0.0
    for begin in range(0, n, CHUNK):
        part = T(0)
        for i in range(begin, min(n, begin + CHUNK)):
            part += divergence(x[i], target[i])
        total += part
    out[0] = T(total * share)


@kernel
def kldiv_back(target: Ptr, g: Ptr, dx: Ptr, n: Int, share: Real, every: Int):
    """dx = -share g target, where target > 0."""
    for i in range(n):
        t = T(0) if target[i] <= T(0) else target[i]
        dx[i] = -share * t * (g[i] if every else g[0])


def _kldiv_samples() -> list[Sample]:
    made = [
        Sample({"X": (3, 4), "Target": chances(3, 4)}, {"reduction": how}, how)
        for how in ("mean", "batchmean", "sum", "none")
    ]
    return [*made, Sample({"X": (1, 1), "Target": chances(1, 1)}, name="one element")]


@op(
    "kldiv_loss",
    faces=[Face("", "x target reduction name", "Measure how far a distribution is from another.", label="target")],
    inputs="X Target",
    floats="X Target",
    outputs="Loss",
    attrs={
        "reduction": Attr("mean", "mean: over elements, batchmean: over samples", ("mean", "batchmean", "sum", "none"))
    },
    differentiable="X",
    samples=_kldiv_samples(),
)
def kldiv_loss(x: TensorType, target: TensorType, *, reduction: str) -> TensorType:
    """Measure how far a distribution is from a target distribution (Kullback-Leibler divergence).

    l = Target (ln Target - X), 0 where Target <= 0;  Loss = mean, sum, sum / batch, or every l.

    Args:
        X: [batch, ...] float32 or float64; logarithms of probabilities, in nats.
        Target: type of X; probabilities.
        reduction: see the formula.

    Returns:
        Loss: [1], or with reduction none the type of X; nats.

    Raises:
        PeError: X and Target of different types.

    Source:
        fluid.layers.kldiv_loss.
    """
    if target.dtype != x.dtype or not same_sizes(target.shape, x.shape):
        raise PeError(f"kldiv_loss needs X and Target of one type, got {x} and {target}", hint="reshape or cast one")
    return x if reduction == "none" else x.with_shape(1)


def _share(o: Lowering) -> float:
    shape = o.input("Target").shape
    count = {"mean": product(shape), "batchmean": shape[0] if shape else 1}.get(o.attrs["reduction"], 1)
    # The mean of nothing is NaN, as in NumPy.
    return 1.0 / count if count else float("nan")


@kldiv_loss.lower("cpu")
def kldiv_loss_cpu(o: Lowering) -> None:
    """One loop."""
    x = o.input("X")
    every = int(o.attrs["reduction"] == "none")
    o.call(kldiv, x, o.input("Target"), o.output("Loss"), product(x.shape), _share(o), every)


@kldiv_loss.grad(uses="Target").lower("cpu")
def kldiv_loss_grad_cpu(o: Lowering) -> None:
    """X' = -Loss' Target, shared out."""
    target = o.input("Target")
    every = int(o.attrs["reduction"] == "none")
    o.call(kldiv_back, target, o.input("Loss@GRAD"), o.output("X@GRAD"), product(target.shape), _share(o), every)


# --- CUDA -------------------------------------------------------------------------------------------------------------


#: Threads that add up the terms; a power of 2.
ADDERS: Any = 256
WIDE: Any = np.float64


@on_cuda(kldiv, block=(ADDERS,))
def kldiv_cuda(x: Ptr, target: Ptr, out: Ptr, n: Int, share: Real, every: Int):
    """One thread a term; a sum is the first block's, in a tree."""
    parts = cuda.shared.array(ADDERS, WIDE)
    me = cuda.threadIdx.x
    if every:
        for i in range(cuda.blockIdx.x * ADDERS + me, n, cuda.gridDim.x * ADDERS):
            out[i] = divergence(x[i], target[i])
    elif cuda.blockIdx.x == 0:
        total = 0.0
        for i in range(me, n, ADDERS):
            total += divergence(x[i], target[i])
        parts[me] = total
        # A tree of fixed shape gives the same digits in every run; atomic additions would come in any order.
        half = ADDERS // 2
        while half > 0:
            # Before each round, the first one too: the sums that are read next are other threads' work.
            cuda.syncthreads()
            if me < half:
                parts[me] += parts[me + half]
            half //= 2
        if me == 0:
            out[0] = T(parts[0] * share)


deal(kldiv_back)
also_on_cuda(kldiv_loss)
