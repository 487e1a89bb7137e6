"""Parameter updates with a rate for every element: adagrad, decayed_adagrad, rmsprop, adadelta.

In place and in one pass, as in `pe_cli.ops.update.optimizer`.
"""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, kernel
from pe_cli.kernels.math.vector_math import square_root
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ByRows, RowsApart
from pe_cli.ops.update.optimizer import check_update, in_place, positive, rate, row_sample, state_samples
from pe_cli.ops.update.optimizer_rows import adagrad_rows

_EPSILON = Attr(1e-6, "keeps the quotient finite, unit of the gradient")


# --- adagrad and decayed_adagrad --------------------------------------------------------------------------------------


@kernel
def adagrad_step(p: Ptr, g: Ptr, s: Ptr, rate: PtrU, n: Int, keep: Real, gain: Real, eps: Real):
    """s = keep s + gain g^2; p -= rate * g / (sqrt(s) + eps)."""
    step = T(rate[0])
    for i in range(n):
        now = keep * s[i] + gain * g[i] * g[i]
        s[i] = now
        p[i] -= step * g[i] / (square_root(now) + eps)


@op(
    "adagrad",
    inputs="Param Grad Moment LearningRate Rows?",
    outputs="ParamOut MomentOut",
    attrs={"epsilon": _EPSILON},
    differentiable="",
    traits=[RowsApart(), ByRows()],
    samples=[*state_samples(["Moment"]), row_sample(["Moment"])],
)
def adagrad(
    param: TensorType,
    gradient: TensorType,
    moment: TensorType,
    rate: TensorType,
    rows: TensorType | None = None,
    *,
    epsilon: float,
) -> tuple[TensorType, TensorType]:
    """Divide each element's step by the root of its sum of squared gradients.

    Moment += Grad^2; Param -= LearningRate * Grad / (sqrt(Moment) + epsilon). With Rows only these rows are touched.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param; with Rows [n, width].
        Moment: type of Param, at least 0.
        LearningRate: [1], no unit.
        Rows: [n] int64, the rows of Param [height, width] that Grad is for, each once; -1 for none.
        epsilon: keeps the quotient finite.

    Returns:
        ParamOut, MomentOut: the same variables as Param and Moment.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Adagrad; Duchi et al. 2011.
    """
    del epsilon
    check_update("adagrad", param, gradient, rate, moment, rows=rows)
    return param, moment


@adagrad.lower("cpu")
def adagrad_cpu(o: Lowering) -> None:
    """One pass."""
    p, s = in_place(o, "Param", "Moment")
    # Rows without a gradient keep their state, as sums of squares do not decay.
    g, rate, epsilon = o.input("Grad"), o.input("LearningRate"), o.attrs["epsilon"]
    if o.has("Rows"):
        for part, *rows in o.row_parts(g.shape[0], g.type.nbytes):
            o.call(adagrad_rows, p, g, o.input("Rows"), s, rate, *rows, g.shape[1], epsilon, part=part)
    else:
        # Nothing decays: adagrad is decayed_adagrad with factors of 1.
        o.call(adagrad_step, p, g, s, rate, p.size, 1.0, 1.0, epsilon)


@op(
    "decayed_adagrad",
    inputs="Param Grad Moment LearningRate",
    outputs="ParamOut MomentOut",
    attrs={"decay": Attr(0.95, "part of the moment that stays each step, no unit"), "epsilon": _EPSILON},
    differentiable="",
    traits=[RowsApart()],
    samples=state_samples(["Moment"]),
)
def decayed_adagrad(
    param: TensorType, gradient: TensorType, moment: TensorType, rate: TensorType, *, decay: float, epsilon: float
) -> tuple[TensorType, TensorType]:
    """Adagrad that forgets.

    Moment = decay Moment + (1 - decay) Grad^2; Param -= LearningRate * Grad / (sqrt(Moment) + epsilon).

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        Moment: type of Param, at least 0.
        LearningRate: [1], no unit.
        decay, epsilon: as above.

    Returns:
        ParamOut, MomentOut: the same variables as Param and Moment.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.DecayedAdagrad.
    """
    del decay, epsilon
    check_update("decayed_adagrad", param, gradient, rate, moment)
    return param, moment


@decayed_adagrad.lower("cpu")
def decayed_adagrad_cpu(o: Lowering) -> None:
    """One pass."""
    p, s = in_place(o, "Param", "Moment")
    decay = o.attrs["decay"]
    o.call(adagrad_step, p, o.input("Grad"), s, o.input("LearningRate"), p.size, decay, 1.0 - decay, o.attrs["epsilon"])


# --- rmsprop ----------------------------------------------------------------------------------------------------------


@kernel(exact=True)
def rmsprop_step(p: Ptr, g: Ptr, s: Ptr, v: Ptr, rate: PtrU, n: Int, rho: Real, eps: Real, mu: Real):
    """s = rho s + (1 - rho) g^2; v = mu v + rate * g / sqrt(s + eps); p -= v. Exact: else vectors would take a faster quotient."""
    one = T(1)
    step = T(rate[0])
    for i in range(n):
        square = rho * s[i] + (one - rho) * g[i] * g[i]
        now = mu * v[i] + step * g[i] / square_root(square + eps)
        s[i] = square
        v[i] = now
        p[i] -= now


@kernel(exact=True)
def rmsprop_centered(p: Ptr, g: Ptr, s: Ptr, a: Ptr, v: Ptr, rate: PtrU, n: Int, rho: Real, eps: Real, mu: Real):
    """As `rmsprop_step`, with the variance s - a^2 in place of s, where a is the mean gradient."""
    one = T(1)
    step = T(rate[0])
    for i in range(n):
        square = rho * s[i] + (one - rho) * g[i] * g[i]
        mean = rho * a[i] + (one - rho) * g[i]
        # The variance of the gradient: its mean square less its squared mean.
        now = mu * v[i] + step * g[i] / square_root(square - mean * mean + eps)
        s[i] = square
        a[i] = mean
        v[i] = now
        p[i] -= now


@op(
    "rmsprop",
    inputs="Param MeanSquare LearningRate Grad Moment MeanGrad?",
    outputs="ParamOut MomentOut MeanSquareOut MeanGradOut?",
    attrs={
        "decay": Attr(0.95, "part of the mean square that stays each step (rho), no unit"),
        "epsilon": _EPSILON,
        "momentum": Attr(0.0, "part of the last step that is repeated, no unit"),
        "centered": Attr(False, "divide by the deviation instead of the root of the mean square; needs MeanGrad"),
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(["MeanSquare", "Moment"], momentum=0.5),
        # Squares above 1 and means below 1: the variance stays positive.
        Sample(
            {"Param": (3, 5), "Grad": (3, 5), "LearningRate": rate, "Moment": (3, 5)}
            | {"MeanGrad": positive(3, 5), "MeanSquare": lambda rng: rng.uniform(1.1, 2.0, (3, 5))},
            {"centered": True},
            "centered",
        ),
    ],
)
def rmsprop(
    param: TensorType,
    square: TensorType,
    rate: TensorType,
    gradient: TensorType,
    moment: TensorType,
    mean: TensorType | None,
    *,
    decay: float,
    epsilon: float,
    momentum: float,
    centered: bool,
) -> tuple[TensorType | None, ...]:
    """Divide each element's step by the root of its mean squared gradient.

    s = decay s + (1 - decay) Grad^2; v = momentum v + LearningRate * Grad / sqrt(s + epsilon); Param -= v.
    Centered: a = decay a + (1 - decay) Grad, and s - a^2 in place of s under the root.

    Args:
        Param: any shape, float32 or float64.
        MeanSquare: s, type of Param.
        LearningRate: [1], no unit.
        Grad: type of Param.
        Moment: v, type of Param.
        MeanGrad: a, type of Param; only when centered.
        decay, epsilon, momentum, centered: as above.

    Returns:
        ParamOut, MomentOut, MeanSquareOut, MeanGradOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit, or centered without MeanGrad.

    Source:
        fluid.optimizer.RMSProp: epsilon stands inside the root.
    """
    del decay, epsilon, momentum
    check_update("rmsprop", param, gradient, rate, square, moment, mean)
    if centered and mean is None:
        raise PeError("rmsprop: centered needs an input MeanGrad")
    return param, moment, square, mean if centered else None


@rmsprop.lower("cpu")
def rmsprop_cpu(o: Lowering) -> None:
    """One pass."""
    p, s, v = in_place(o, "Param", "MeanSquare", "Moment")
    rate, a = o.input("LearningRate"), o.attrs
    numbers = p.size, a["decay"], a["epsilon"], a["momentum"]
    if a["centered"]:
        (mean,) = in_place(o, "MeanGrad")
        o.call(rmsprop_centered, p, o.input("Grad"), s, mean, v, rate, *numbers)
    else:
        o.call(rmsprop_step, p, o.input("Grad"), s, v, rate, *numbers)


# --- adadelta ---------------------------------------------------------------------------------------------------------


@kernel
def adadelta_step(p: Ptr, g: Ptr, s: Ptr, u: Ptr, n: Int, rho: Real, eps: Real):
    """s = rho s + (1 - rho) g^2; d^2 = (u + eps) / (s + eps) g^2; u = rho u + (1 - rho) d^2; p -= d with the new u."""
    one = T(1)
    for i in range(n):
        square = rho * s[i] + (one - rho) * g[i] * g[i]
        # One division for both uses of 1 / (s + eps).
        share = one / (square + eps)
        s[i] = square
        moved = rho * u[i] + (one - rho) * (u[i] + eps) * share * g[i] * g[i]
        u[i] = moved
        p[i] -= square_root((moved + eps) * share) * g[i]


@kernel
def adadelta_rated_step(p: Ptr, g: Ptr, s: Ptr, u: Ptr, rate: PtrU, n: Int, rho: Real, eps: Real):
    """As `adadelta_step`, with p -= rate * d."""
    one = T(1)
    step = T(rate[0])
    for i in range(n):
        square = rho * s[i] + (one - rho) * g[i] * g[i]
        share = one / (square + eps)
        s[i] = square
        moved = rho * u[i] + (one - rho) * (u[i] + eps) * share * g[i] * g[i]
        # By the average before this step, as in Zeiler's paper.
        p[i] -= step * square_root((u[i] + eps) * share) * g[i]
        u[i] = moved


@op(
    "adadelta",
    inputs="Param Grad AvgSquaredGrad AvgSquaredUpdate LearningRate?",
    outputs="ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
    attrs={"rho": Attr(0.95, "part of the averages that stays each step, no unit"), "epsilon": _EPSILON},
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(["AvgSquaredGrad", "AvgSquaredUpdate"], rates=False),
        *state_samples(["AvgSquaredGrad", "AvgSquaredUpdate"])[:1],
    ],
)
def adadelta(
    param: TensorType,
    gradient: TensorType,
    squares: TensorType,
    updates: TensorType,
    rate: TensorType | None = None,
    *,
    rho: float,
    epsilon: float,
) -> tuple[TensorType, ...]:
    """Take steps in the parameter's own unit: the ratio of past steps to past gradients.

    s = rho s + (1 - rho) Grad^2; d = sqrt((u + epsilon) / (s + epsilon)) Grad; u = rho u + (1 - rho) d^2;
    Param -= sqrt((u + epsilon) / (s + epsilon)) Grad, with the new u, as PaddlePaddle 1.8 does; Zeiler moves by d.
    With LearningRate: Param -= LearningRate * d, as PaddlePaddle 2.6 and later do.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        AvgSquaredGrad: s, type of Param.
        AvgSquaredUpdate: u, type of Param.
        LearningRate: [1], no unit.
        rho, epsilon: as above.

    Returns:
        ParamOut, AvgSquaredGradOut, AvgSquaredUpdateOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Adadelta; Zeiler 2012, algorithm 1.
    """
    del rho, epsilon
    check_update("adadelta", param, gradient, rate, squares, updates)
    return param, squares, updates


@adadelta.lower("cpu")
def adadelta_cpu(o: Lowering) -> None:
    """One pass."""
    p, s, u = in_place(o, "Param", "AvgSquaredGrad", "AvgSquaredUpdate")
    settings = p.size, o.attrs["rho"], o.attrs["epsilon"]
    if o.has("LearningRate"):
        o.call(adadelta_rated_step, p, o.input("Grad"), s, u, o.input("LearningRate"), *settings)
    else:
        o.call(adadelta_step, p, o.input("Grad"), s, u, *settings)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(adagrad_step, adagrad_rows, rmsprop_step, rmsprop_centered, adadelta_step, adadelta_rated_step)
also_on_cuda(adagrad, decayed_adagrad, rmsprop, adadelta)
