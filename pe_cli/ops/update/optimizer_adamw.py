"""Successors of adam, with weight decay apart from the gradient: adamw, nadam, radam. In place, as in `pe_cli.ops.update.optimizer`.

Corrections for the first steps are computed in float64 and are the same for all elements of a parameter.
"""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrU, Real, T, kernel
from pe_cli.kernels.math.vector_math import square_root
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import RowsApart
from pe_cli.ops.update.lr_schedule import reals
from pe_cli.ops.update.optimizer import check_update, in_place, state_samples
from pe_cli.ops.update.optimizer_decayed import DECAY
from pe_cli.ops.update.optimizer_moments import ADAM_STATE, BETA1, BETA2
from pe_cli.ops.update.update_kernels import adam_corrected, adamw_span, blend, move_on, shrink

EPSILON = Attr(1e-8, "keeps the quotient finite, unit of the gradient")
_NO_DECAY = Attr(0.0, DECAY.doc)


def late(sample: Sample) -> Sample:
    """Return a sample of a step, by its counter, at which enough gradients were seen."""
    return Sample({**sample.inputs, "Count": lambda rng: rng.integers(20, 30, 1).astype("float64")}, sample.attrs, "a late step")


# --- adamw ------------------------------------------------------------------------------------------------------------


@kernel
def adamw_step(
    p: Ptr, g: Ptr, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real, decay: Real
):
    """Both moments, then p = p - rate * decay * p - corrected rate * m / (sqrt(v) + corrected eps)."""
    # Both bias corrections are folded into the rate and epsilon, and so cost nothing per element.
    step, far = T(adam_corrected(rate, pow1, pow2)), T(eps * math.sqrt(1.0 - pow2[0]))
    adamw_span(p, g, m, v, 0, n, step, T(rate[0]) * decay, b1, b2, far)


@op(
    "adamw",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    attrs={"beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON, "weight_decay": DECAY},
    differentiable="",
    traits=[RowsApart()],
    samples=[*state_samples(ADAM_STATE), *state_samples(ADAM_STATE, weight_decay=0.5)[:1]],
)
def adamw(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    power1: TensorType,
    power2: TensorType,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> tuple[TensorType, ...]:
    """Step by corrected moments, and shrink the parameter apart from the gradient.

    m = beta1 m + (1 - beta1) Grad; v = beta2 v + (1 - beta2) Grad^2; M = m / (1 - Beta1Pow); V = v / (1 - Beta2Pow);
    Param = Param - LearningRate * weight_decay * Param - LearningRate * M / (sqrt(V) + epsilon);
    Beta1Pow *= beta1; Beta2Pow *= beta2. At step t, counted from 1, Beta1Pow is beta1^t.
    Unlike that of `adam`, epsilon stands beside the corrected root.

    Args:
        Param: any shape, float32 or float64.
        Grad, Moment1, Moment2: type of Param.
        LearningRate: [1], no unit.
        Beta1Pow, Beta2Pow: [1] of Param's element type; beta1 and beta2 at first.
        beta1, beta2, epsilon: as above.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2, with the decay of torch.optim.AdamW.
    """
    del beta1, beta2, epsilon, weight_decay
    check_update("adamw", param, gradient, rate, moment1, moment2, power1, power2)
    return param, moment1, moment2, power1, power2


@adamw.lower("cpu")
def adamw_cpu(o: Lowering) -> None:
    """One pass; then the powers move on."""
    p, m, v, pow1, pow2 = in_place(o, "Param", *ADAM_STATE)
    b1, b2, *rest = [o.attrs[name] for name in ("beta1", "beta2", "epsilon", "weight_decay")]
    o.call(adamw_step, p, o.input("Grad"), m, v, pow1, pow2, o.input("LearningRate"), p.size, b1, b2, *rest)
    # A call of its own: every part of the step reads the powers before they change.
    o.call(move_on, pow1, pow2, b1, b2)


# --- nadam ------------------------------------------------------------------------------------------------------------


@kernel
def nadam_step(
    p: Ptr, g: Ptr, m: Ptr, v: Ptr, count: Ptr, product: Ptr, rate: PtrU, n: Int, numbers: PtrF64,
    b1: Real, b2: Real, eps: Real, decay: Real,
):  # fmt: skip
    """Both moments, and a step along the gradient and the first moment; numbers are beta1, beta2 and the decay of the momentum."""
    pull = T(rate[0]) * decay
    at = count[0] + 1.0
    # 0.5 and 0.96 are the constants of Dozat's momentum schedule.
    now = numbers[0] * (1.0 - 0.5 * math.pow(0.96, at * numbers[2]))
    ahead = numbers[0] * (1.0 - 0.5 * math.pow(0.96, (at + 1.0) * numbers[2]))
    by_gradient = T(rate[0] * (1.0 - now) / (1.0 - product[0] * now))
    by_moment = T(rate[0] * ahead / (1.0 - product[0] * now * ahead))
    shrunk = T(1.0 / math.sqrt(1.0 - math.pow(numbers[1], at)))
    for i in range(n):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        p[i] = shrink(p[i], pull) - (by_gradient * g[i] + by_moment * first) / (square_root(second) * shrunk + eps)


@kernel
def nadam_move_on(count: Ptr, product: Ptr, numbers: PtrF64):
    """Count the step, and its factor of the momentum."""
    count[0] += T(1)
    # The count is that of this step by now: the same factor as `now` in nadam_step.
    product[0] = T(product[0] * (numbers[0] * (1.0 - 0.5 * math.pow(0.96, count[0] * numbers[2]))))


@op(
    "nadam",
    inputs="Param Grad LearningRate Moment1 Moment2 Count Product",
    outputs="ParamOut Moment1Out Moment2Out CountOut ProductOut",
    attrs={
        "beta1": BETA1,
        "beta2": BETA2,
        "epsilon": EPSILON,
        "momentum_decay": Attr(0.004, "how fast the momentum of a step grows to beta1, no unit"),
        "weight_decay": _NO_DECAY,
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(["Moment1", "Moment2", "Count", "Product"]),
        *state_samples(["Moment1", "Moment2", "Count", "Product"], weight_decay=0.5, momentum_decay=0.5)[:1],
    ],
)
def nadam(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    count: TensorType,
    product: TensorType,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    momentum_decay: float,
    weight_decay: float,
) -> tuple[TensorType, ...]:
    """Adam that looks one step ahead, as Nesterov's momentum does.

    t = Count + 1; u_t = beta1 (1 - 0.5 * 0.96^(t * momentum_decay)); P = Product * u_t;
    m = beta1 m + (1 - beta1) Grad; v = beta2 v + (1 - beta2) Grad^2; V = v / (1 - beta2^t);
    Param = Param - LearningRate * weight_decay * Param
    - LearningRate * ((1 - u_t) / (1 - P) * Grad + u_(t+1) / (1 - P * u_(t+1)) * m) / (sqrt(V) + epsilon);
    Count = t; Product = P.

    Args:
        Param: any shape, float32 or float64.
        Grad, Moment1, Moment2: type of Param.
        LearningRate: [1], no unit.
        Count: [1] of Param's element type, steps; 0 at first.
        Product: [1] of Param's element type, of all u; 1 at first.
        beta1, beta2, epsilon, momentum_decay: as above.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, Moment1Out, Moment2Out, CountOut, ProductOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        Dozat 2016, "Incorporating Nesterov Momentum into Adam"; torch.optim.NAdam with decoupled_weight_decay.
    """
    del beta1, beta2, epsilon, momentum_decay, weight_decay
    check_update("nadam", param, gradient, rate, moment1, moment2, count, product)
    return param, moment1, moment2, count, product


@nadam.lower("cpu")
def nadam_cpu(o: Lowering) -> None:
    """One pass; then the step is counted."""
    p, m, v, count, product = in_place(o, "Param", "Moment1", "Moment2", "Count", "Product")
    b1, b2, eps, decay = (o.attrs[name] for name in ("beta1", "beta2", "epsilon", "weight_decay"))
    numbers = reals(b1, b2, o.attrs["momentum_decay"])
    g, rate = o.input("Grad"), o.input("LearningRate")
    o.call(nadam_step, p, g, m, v, count, product, rate, p.size, numbers, b1, b2, eps, decay)
    # A call of its own: all threads of the step have read count and product before they change.
    o.call(nadam_move_on, count, product, numbers)


# --- radam ------------------------------------------------------------------------------------------------------------


@kernel
def radam_step(
    p: Ptr, g: Ptr, m: Ptr, v: Ptr, count: Ptr, rate: PtrU, n: Int, numbers: PtrF64, b1: Real, b2: Real, eps: Real, decay: Real
):
    """Both moments, and a step that is rectified once enough gradients were seen; numbers are beta1 and beta2."""
    pull = T(rate[0]) * decay
    at = count[0] + 1.0
    power = math.pow(numbers[1], at)
    step = rate[0] / (1.0 - math.pow(numbers[0], at))
    # How many gradients the mean of squares is worth, at most and by now (Liu et al. 2019). PyTorch rectifies above 5; the paper says 4.
    most = 2.0 / (1.0 - numbers[1]) - 1.0
    seen = most - 2.0 * at * power / (1.0 - power)
    if seen > 5.0:
        step *= math.sqrt((seen - 4.0) * (seen - 2.0) * most / ((most - 4.0) * (most - 2.0) * seen) * (1.0 - power))
    scaled = T(step)
    # The choice stands outside of the loops, so that each of them vectorizes.
    if seen > 5.0:
        for i in range(n):
            first = blend(m[i], g[i], b1)
            second = blend(v[i], g[i] * g[i], b2)
            m[i] = first
            v[i] = second
            p[i] = shrink(p[i], pull) - scaled * first / (square_root(second) + eps)
    else:
        for i in range(n):
            first = blend(m[i], g[i], b1)
            m[i] = first
            v[i] = blend(v[i], g[i] * g[i], b2)
            p[i] = shrink(p[i], pull) - scaled * first


@kernel
def count_on(count: Ptr):
    """Count a step."""
    count[0] += T(1)


@op(
    "radam",
    inputs="Param Grad LearningRate Moment1 Moment2 Count",
    outputs="ParamOut Moment1Out Moment2Out CountOut",
    attrs={"beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON, "weight_decay": _NO_DECAY},
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(["Moment1", "Moment2", "Count"]),
        *state_samples(["Moment1", "Moment2", "Count"], weight_decay=0.5)[:1],
        late(state_samples(["Moment1", "Moment2", "Count"])[0]),
    ],
)
def radam(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    count: TensorType,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> tuple[TensorType, ...]:
    """Adam without its second moment in the first steps, when that is known from few gradients, and rectified afterwards.

    t = Count + 1; m = beta1 m + (1 - beta1) Grad; v = beta2 v + (1 - beta2) Grad^2; M = m / (1 - beta1^t);
    R = 2 / (1 - beta2) - 1; r = R - 2 t beta2^t / (1 - beta2^t);
    d = M sqrt((r - 4) (r - 2) R / ((R - 4) (R - 2) r)) sqrt(1 - beta2^t) / (sqrt(v) + epsilon) where r > 5, else M;
    Param = Param - LearningRate * weight_decay * Param - LearningRate * d; Count = t.

    Args:
        Param: any shape, float32 or float64.
        Grad, Moment1, Moment2: type of Param.
        LearningRate: [1], no unit.
        Count: [1] of Param's element type, steps; 0 at first.
        beta1, beta2, epsilon: as above.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, Moment1Out, Moment2Out, CountOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond", algorithm 2; torch.optim.RAdam with
        decoupled_weight_decay.
    """
    del beta1, beta2, epsilon, weight_decay
    check_update("radam", param, gradient, rate, moment1, moment2, count)
    return param, moment1, moment2, count


@radam.lower("cpu")
def radam_cpu(o: Lowering) -> None:
    """One pass; then the step is counted."""
    p, m, v, count = in_place(o, "Param", "Moment1", "Moment2", "Count")
    b1, b2, eps, decay = (o.attrs[name] for name in ("beta1", "beta2", "epsilon", "weight_decay"))
    o.call(radam_step, p, o.input("Grad"), m, v, count, o.input("LearningRate"), p.size, reals(b1, b2), b1, b2, eps, decay)
    o.call(count_on, count)


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(adamw_step)
def adamw_values(
    p: Ptr, g: Ptr, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real, decay: Real
):
    """The same, one thread per element."""
    pull = T(rate[0]) * decay
    step, far = T(rate[0] * math.sqrt(1.0 - pow2[0]) / (1.0 - pow1[0])), T(eps * math.sqrt(1.0 - pow2[0]))
    for i in range(n):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        p[i] = shrink(p[i], pull) - step * first / (square_root(second) + far)


deal(nadam_step, radam_step)
also_on_cuda(adamw, nadam, radam)
