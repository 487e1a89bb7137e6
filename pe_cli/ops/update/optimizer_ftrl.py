"""ftrl: follow the regularized leader; sets elements with small gradients to exactly 0."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, kernel
from pe_cli.kernels.math.vector_math import square_root
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import RowsApart
from pe_cli.ops.update.optimizer import check_update, in_place, state_samples


@kernel
def ftrl_step(p: Ptr, g: Ptr, s: Ptr, z: Ptr, rate: PtrU, n: Int, l1: Real, l2: Real, power: Real):
    """s grows by g^2, z by g - (s_new^-power - s^-power) / rate * p; p is the minimum of the regularized sum."""
    step = T(rate[0])
    # 1e-10 is the original's: with it nothing is divided by 0.
    limit = l1 + T(1e-10)
    curve = T(2) * (l2 + T(1e-10))
    for i in range(n):
        old = s[i]
        now = old + g[i] * g[i]
        # The usual power is a root, which takes a fraction of the time of pow.
        if power == T(-0.5):
            before, after = square_root(old), square_root(now)
        else:
            before, after = T(math.pow(old, -power)), T(math.pow(now, -power))
        total = z[i] + g[i] - (after - before) / step * p[i]
        s[i] = now
        z[i] = total
        # Written so that NaN passes: it is on neither side of the limit.
        pull = T(0) if abs(total) <= limit else ((limit if total > 0 else -limit) - total)
        p[i] = pull / (after / step + curve)


@op(
    "ftrl",
    inputs="Param SquaredAccumulator LinearAccumulator Grad LearningRate",
    outputs="ParamOut SquaredAccumOut LinearAccumOut",
    attrs={
        "l1": Attr(0.0, "weight of sum |Param|, no unit"),
        "l2": Attr(0.0, "weight of sum Param^2, no unit"),
        "lr_power": Attr(-0.5, "of the sum of squares in the rate, at most 0, no unit"),
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(["SquaredAccumulator", "LinearAccumulator"], l1=0.1, l2=0.2),
        *state_samples(["SquaredAccumulator", "LinearAccumulator"], lr_power=-0.7)[:1],
    ],
)
def ftrl(
    param: TensorType,
    squares: TensorType,
    linear: TensorType,
    gradient: TensorType,
    rate: TensorType,
    *,
    l1: float,
    l2: float,
    lr_power: float,
) -> tuple[TensorType, ...]:
    """Follow the regularized leader.

    n = s + Grad^2; z += Grad - (n^-lr_power - s^-lr_power) / LearningRate * Param; s = n;
    Param = 0 where |z| <= l1, else (l1 sign(z) - z) / (n^-lr_power / LearningRate + c), with c = 2 l2. 1e-10 is
    added to l1 and l2.

    Args:
        Param: any shape, float32 or float64.
        SquaredAccumulator: s, type of Param, at least 0.
        LinearAccumulator: z, type of Param.
        Grad: type of Param.
        LearningRate: [1], no unit.
        l1, l2, lr_power: as above.

    Returns:
        ParamOut, SquaredAccumOut, LinearAccumOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Ftrl; McMahan et al. 2013, algorithm 1.
    """
    del l1, l2, lr_power
    check_update("ftrl", param, gradient, rate, squares, linear)
    return param, squares, linear


@ftrl.lower("cpu")
def ftrl_cpu(o: Lowering) -> None:
    """One pass."""
    p, s, z = in_place(o, "Param", ("SquaredAccumulator", "SquaredAccumOut"), ("LinearAccumulator", "LinearAccumOut"))
    a = o.attrs
    o.call(ftrl_step, p, o.input("Grad"), s, z, o.input("LearningRate"), p.size, a["l1"], a["l2"], a["lr_power"])


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(ftrl_step)
also_on_cuda(ftrl)
