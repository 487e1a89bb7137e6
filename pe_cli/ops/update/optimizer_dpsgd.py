"""dpsgd: descent along a shortened gradient with noise, for privacy."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, PtrU, Real, T, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.random import normal
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import STEP, Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Random
from pe_cli.ops.update.optimizer import check_update, in_place, state_samples

#: Keeps the noise apart from the parameter's first value, which is drawn under the same name.
APART = 0x5DEECE66D


@kernel
def squared_length(g: Ptr, out: PtrF64, n: Int):
    """out[0] = sum of squares."""
    total = 0.0
    for begin in range(0, n, CHUNK):
        part = T(0)
        for i in range(begin, min(n, begin + CHUNK)):
            part += g[i] * g[i]
        total += part
    out[0] = total


@on_cuda(squared_length)
def squared_length_cuda(g: Ptr, out: PtrF64, n: Int):
    """One thread."""
    # A loop of one round is dealt to one thread: the others have nothing to add to its sum.
    for _ in range(1):
        total = 0.0
        for i in range(n):
            total += g[i] * g[i]
        out[0] = total


@kernel
def noisy_step(p: Ptr, g: Ptr, rate: PtrU, squares: PtrF64, n: Int, clip: Real, noise: Real, seed: Int, step: PtrI64, fixed: Int):
    """p -= rate (g / max(1, ||g|| / clip) + noise z), z standard normal."""
    at = 0 if fixed else step[0]
    # The batch's gradient is shortened as a whole, as in the original; the paper shortens each sample's.
    shorten = T(1.0 / max(1.0, squares[0] ** 0.5 / clip))
    speed = T(rate[0])
    for i in range(n):
        p[i] -= speed * (g[i] * shorten + noise * T(normal(seed, at, i)))


@op(
    "dpsgd",
    inputs="Param Grad LearningRate",
    outputs="ParamOut",
    attrs={
        "clip": Attr(10.0, "longest gradient, in its unit"),
        "batch_size": Attr(16.0, "what the noise is divided by: samples"),
        "sigma": Attr(1.0, "standard deviation of the noise before that, in the gradient's unit"),
        "seed": Attr(0, "own seed, the same noise at every step; 0 takes the program's, with new noise at every step"),
    },
    differentiable="",
    samples=state_samples([], clip=1.5, batch_size=4.0, sigma=0.3),
    traits=[Random()],
)
def dpsgd(
    param: TensorType, gradient: TensorType, rate: TensorType, *, clip: float, batch_size: float, sigma: float, seed: int
) -> TensorType:
    """Step against a gradient that is cut to a length and blurred by noise.

    Param -= LearningRate (Grad / max(1, ||Grad|| / clip) + sigma / batch_size z), z standard normal for every element

    The noise of an element depends on the seed, the step and the element; it is the same on every device. The original draws one
    number for a whole parameter.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        LearningRate: [1], no unit.

    Returns:
        ParamOut: type of Param; the same variable.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.optimizer.Dpsgd; Abadi et al. 2016, "Deep Learning with Differential Privacy", algorithm 1.
    """
    check_update("dpsgd", param, gradient, rate)
    return param


@dpsgd.lower("cpu")
def dpsgd_cpu(o: Lowering) -> None:
    """A length, then one pass."""
    (p,), g, own = in_place(o, "Param"), o.input("Grad"), int(o.attrs["seed"])
    if p.size:
        squares = o.scratch(1, "float64")
        o.call(squared_length, g, squares, g.size)
        noise = o.attrs["sigma"] / o.attrs["batch_size"]
        seed = own or o.seed ^ APART
        more = (o.attrs["clip"], noise, seed, STEP, int(own != 0))
        o.call(noisy_step, p, g, o.input("LearningRate"), squares, p.size, *more)


deal(noisy_step)
also_on_cuda(dpsgd)
