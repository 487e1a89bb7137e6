"""Parameter updates by both moments of the gradient: adam, adamax, lamb. In place, as in `pe_cli.ops.update.optimizer`."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, kernel
from pe_cli.kernels.math.vector_math import square_root
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import RowsApart
from pe_cli.ops.update.optimizer import check_update, in_place, row_sample, state_samples, sum_of_squares
from pe_cli.ops.update.optimizer_rows import adam_every_row, adam_rows
from pe_cli.ops.update.table_rows import adam_by_places, by_places
from pe_cli.ops.update.update_kernels import adam_step, blend, move_on

BETA1 = Attr(0.9, "decay of the first moment per step, no unit")
BETA2 = Attr(0.999, "decay of the second moment per step, no unit")
ADAM_STATE = ("Moment1", "Moment2", "Beta1Pow", "Beta2Pow")


# --- adam and adamax --------------------------------------------------------------------------------------------------


@op(
    "adam",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Rows?",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    attrs={
        "beta1": BETA1,
        "beta2": BETA2,
        "epsilon": Attr(1e-8, "keeps the quotient finite, unit of the gradient"),
        "lazy_mode": Attr(False, "with Rows: leave all other rows and their moments as they are"),
        "ahead": Attr(False, "with Rows: the powers move on before the step, as in PaddlePaddle 1.8, instead of after it"),
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(ADAM_STATE),
        row_sample(ADAM_STATE),
        row_sample(ADAM_STATE, lazy_mode=True),
        row_sample(ADAM_STATE, ahead=True),
    ],
)
def adam(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    power1: TensorType,
    power2: TensorType,
    rows: TensorType | None = None,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    lazy_mode: bool,
    ahead: bool,
) -> tuple[TensorType, ...]:
    """Step along the mean gradient over the root of the mean squared gradient, corrected for the first steps.

    m = beta1 m + (1 - beta1) Grad; v = beta2 v + (1 - beta2) Grad^2;
    Param -= LearningRate * sqrt(1 - Beta2Pow) / (1 - Beta1Pow) * m / (sqrt(v) + epsilon);
    Beta1Pow *= beta1; Beta2Pow *= beta2. At step t, counted from 1, Beta1Pow is beta1^t.
    With Rows the gradient of the other rows is 0; their moments decay and they go on moving, unless lazy_mode leaves
    them as they are.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param; with Rows [n, width].
        Moment1, Moment2: type of Param.
        LearningRate: [1], no unit.
        Beta1Pow, Beta2Pow: [1] of Param's element type; beta1 and beta2 at first.
        Rows: [n] int64, the rows of Param [height, width] that Grad is for, each once; -1 for none.
        beta1, beta2, epsilon, lazy_mode: as above.
        ahead: the correction is that of one more step.

    Returns:
        ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Adam; Kingma and Ba 2014, end of section 2: epsilon stands beside the uncorrected root.
    """
    del beta1, beta2, epsilon, lazy_mode, ahead
    check_update("adam", param, gradient, rate, moment1, moment2, power1, power2, rows=rows)
    return param, moment1, moment2, power1, power2


@adam.lower("cpu")
def adam_cpu(o: Lowering) -> None:
    """One pass, with rows cut for threads; the powers move on when all of them are done."""
    p, m, v, pow1, pow2 = in_place(o, "Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
    a = o.attrs
    g, rate, settings = o.input("Grad"), o.input("LearningRate"), (a["beta1"], a["beta2"], a["epsilon"])
    if not o.has("Rows"):
        o.call(adam_step, p, g, m, v, pow1, pow2, rate, p.size, *settings)
        return
    rows = o.input("Rows")
    if a["ahead"]:
        o.call(move_on, pow1, pow2, *settings[:2])
    if a["lazy_mode"]:
        for part, *some in o.row_parts(g.shape[0], g.type.nbytes):
            o.call(adam_rows, p, g, rows, m, v, pow1, pow2, rate, *some, g.shape[1], *settings, part=part)
    else:
        by_places(o, adam_by_places, (p, g, rows, m, v, pow1, pow2, rate), rows, -1, settings)
    # A call of its own, after all parts have read the powers of this step.
    if not a["ahead"]:
        o.call(move_on, pow1, pow2, *settings[:2])


@adam.lower("cuda")
def adam_cuda(o: Lowering) -> None:
    """The same, but for rows without lazy_mode: all decay, some get their gradients, all move."""
    if not o.has("Rows") or o.attrs["lazy_mode"]:
        adam_cpu(o)
        return
    p, m, v, pow1, pow2 = in_place(o, "Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
    g, rest = o.input("Grad"), [o.attrs[name] for name in ("beta1", "beta2", "epsilon")]
    if o.attrs["ahead"]:
        o.call(move_on, pow1, pow2, *rest[:2])
    o.call(adam_every_row, p, g, o.input("Rows"), m, v, pow1, pow2, o.input("LearningRate"), *g.shape, p.size, *rest)
    if not o.attrs["ahead"]:
        o.call(move_on, pow1, pow2, *rest[:2])


@kernel
def adamax_step(p: Ptr, g: Ptr, m: Ptr, u: Ptr, pow1: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real):
    """Moment and running maximum, then p -= corrected rate * m / u."""
    step = T(rate[0] / (1.0 - pow1[0]))
    for i in range(n):
        first = blend(m[i], g[i], b1)
        size = abs(g[i])
        held = b2 * u[i] + eps
        # Of a NaN gradient the comparison is false: the NaN is kept, where max might drop it.
        largest = held if held > size else size
        m[i] = first
        u[i] = largest
        p[i] -= step * first / largest
    pow1[0] *= b1


@op(
    "adamax",
    inputs="Param Grad LearningRate Moment InfNorm Beta1Pow",
    outputs="ParamOut MomentOut InfNormOut Beta1PowOut",
    attrs={"beta1": BETA1, "beta2": BETA2, "epsilon": Attr(1e-8, "keeps the quotient finite, unit of the gradient")},
    differentiable="",
    traits=[RowsApart()],
    samples=state_samples(["Moment", "InfNorm", "Beta1Pow"]),
)
def adamax(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment: TensorType,
    norm: TensorType,
    power: TensorType,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[TensorType, ...]:
    """Adam with a decaying maximum instead of the root of the mean square.

    m = beta1 m + (1 - beta1) Grad; u = max(|Grad|, beta2 u + epsilon); Param -= LearningRate / (1 - Beta1Pow) * m / u;
    Beta1Pow *= beta1.

    Args:
        Param: any shape, float32 or float64.
        Grad, Moment, InfNorm: type of Param.
        LearningRate: [1], no unit.
        Beta1Pow: [1] of Param's element type; beta1 at first.
        beta1, beta2, epsilon: as above.

    Returns:
        ParamOut, MomentOut, InfNormOut, Beta1PowOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Adamax; Kingma and Ba 2014, algorithm 2.
    """
    del beta1, beta2, epsilon
    check_update("adamax", param, gradient, rate, moment, norm, power)
    return param, moment, norm, power


@adamax.lower("cpu")
def adamax_cpu(o: Lowering) -> None:
    """One pass."""
    p, m, u, power = in_place(o, "Param", "Moment", "InfNorm", "Beta1Pow")
    a = o.attrs
    o.call(
        adamax_step,
        p,
        o.input("Grad"),
        m,
        u,
        power,
        o.input("LearningRate"),
        p.size,
        a["beta1"],
        a["beta2"],
        a["epsilon"],
    )


# --- lamb -------------------------------------------------------------------------------------------------------------


@kernel
def lamb_step(p: Ptr, g: Ptr, m: Ptr, v: Ptr, d: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real, decay: Real):
    """Moments, direction d, then p -= rate * |p| / |d| * d."""
    for i in range(n):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        # Kept aside: its length has to be known before any element moves.
        d[i] = first / (square_root(second) + eps) + decay * p[i]
    size = math.sqrt(sum_of_squares(p, n))
    length = math.sqrt(sum_of_squares(d, n))
    step = T(rate[0])
    if size > 0 and length > 0:
        step = T(step * size / length)
    for i in range(n):
        p[i] -= step * d[i]


@op(
    "lamb",
    inputs="Param Grad LearningRate Moment1 Moment2",
    outputs="ParamOut Moment1Out Moment2Out",
    attrs={
        "beta1": BETA1,
        "beta2": BETA2,
        "epsilon": Attr(1e-6, "keeps the quotient finite, unit of the gradient"),
        "weight_decay": Attr(0.01, "pull towards 0, no unit"),
    },
    differentiable="",
    samples=state_samples(["Moment1", "Moment2"]),
)
def lamb(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> tuple[TensorType, TensorType, TensorType]:
    """Adam's direction, as long as the parameter, without correction of the first steps.

    m = beta1 m + (1 - beta1) Grad; v = beta2 v + (1 - beta2) Grad^2; d = m / (sqrt(v) + epsilon) + weight_decay Param;
    Param -= LearningRate * |Param| / |d| * d, with 1 for the quotient where a length is 0.

    Args:
        Param: any shape, float32 or float64.
        Grad, Moment1, Moment2: type of Param.
        LearningRate: [1], no unit.
        beta1, beta2, epsilon, weight_decay: as above.

    Returns:
        ParamOut, Moment1Out, Moment2Out: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Lamb; You et al. 2019.
    """
    del beta1, beta2, epsilon, weight_decay
    check_update("lamb", param, gradient, rate, moment1, moment2)
    return param, moment1, moment2


@lamb.lower("cpu")
def lamb_cpu(o: Lowering) -> None:
    """Two passes and two norms; the direction is scratch."""
    p, m, v = in_place(o, "Param", "Moment1", "Moment2")
    a = o.attrs
    direction = o.scratch(p.size, p.dtype)
    o.call(
        lamb_step, p, o.input("Grad"), m, v, direction, o.input("LearningRate"), p.size,
        a["beta1"], a["beta2"], a["epsilon"], a["weight_decay"],
    )  # fmt: skip


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(adamax_step)
def adamax_values(p: Ptr, g: Ptr, m: Ptr, u: Ptr, pow1: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real):
    """The same, one thread per element, without the power."""
    step = T(rate[0] / (1.0 - pow1[0]))
    for i in range(n):
        first = blend(m[i], g[i], b1)
        size = abs(g[i])
        held = b2 * u[i] + eps
        # Of a NaN gradient the comparison is false, so that the NaN is kept and shows.
        largest = held if held > size else size
        m[i] = first
        u[i] = largest
        p[i] -= step * first / largest


@on_cuda(adamax_step)
def adamax_power(p: Ptr, g: Ptr, m: Ptr, u: Ptr, pow1: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real):
    """Move the power of beta1 on, when every thread has read it."""
    pow1[0] *= b1


also_on_cuda(adamax)
