"""Parameter updates whose weight decay is apart from the gradient: sgdw, momentumw, lion.

A regularizer's decay goes through velocities and moments, as a part of the gradient. Here the parameter shrinks by
LearningRate * weight_decay of itself, whatever its gradient was. In place and in one pass, as in `pe_cli.ops.update.optimizer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Pointwise, RowsApart, Scalar
from pe_cli.ops.update.optimizer import check_update, in_place, momentum_step, state_samples
from pe_cli.ops.update.update_kernels import accelerate, blend, descend, shrink

#: Attribute of every op of this family; `Optimizer.decay_attr` names it.
DECAY = Attr(0.01, "coefficient of the decay apart from the gradient, no unit")


# --- sgdw -------------------------------------------------------------------------------------------------------------


@helper
def descend_shrunk(p, step, g, decay):
    # Shrunk first and by the rate, so that the decay does not depend on the gradient's size.
    return descend(shrink(p, step * decay), step, g)


@kernel(each=descend_shrunk)
def sgdw_step(p: Ptr, g: Ptr, rate: PtrU, n: Int, decay: Real):
    """p = p - rate * decay * p - rate * g."""
    step = T(rate[0])
    for i in range(n):
        p[i] = descend_shrunk(p[i], step, g[i], decay)


@op(
    "sgdw",
    inputs="Param Grad LearningRate",
    outputs="ParamOut",
    attrs={"weight_decay": DECAY},
    differentiable="",
    traits=[RowsApart()],
    samples=[*state_samples([]), *state_samples([], weight_decay=0.5)[:1]],
)
def sgdw(param: TensorType, gradient: TensorType, rate: TensorType, *, weight_decay: float) -> TensorType:
    """Step against the gradient, and shrink the parameter apart from it.

    Param = Param - LearningRate * weight_decay * Param - LearningRate * Grad

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        LearningRate: [1], no unit.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut: type of Param; the same variable.

    Raises:
        PeError: types do not fit.

    Source:
        Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 1, with the learning rate
        as the factor of both terms.
    """
    del weight_decay
    check_update("sgdw", param, gradient, rate)
    return param


@sgdw.lower("cpu")
def sgdw_cpu(o: Lowering) -> None:
    """One pass."""
    (p,) = in_place(o, "Param")
    o.call(sgdw_step, p, o.input("Grad"), o.input("LearningRate"), p.size, o.attrs["weight_decay"])


def _last(attrs: Mapping[str, Any], gradient: str) -> Scalar:
    """Return the step along a gradient, and the decay."""
    return Scalar("ParamOut", sgdw_step, ("Param", "LearningRate", gradient), (attrs["weight_decay"],))


sgdw.give(Pointwise(lambda attrs, _: [_last(attrs, "Grad")]))


# --- momentumw --------------------------------------------------------------------------------------------------------


@kernel(exact=True)
def momentumw_step(p: Ptr, g: Ptr, v: Ptr, rate: PtrU, n: Int, mu: Real, nesterov: Int, decay: Real):
    """v = mu v + g; p = p - rate * decay * p - rate * v, or rate * (g + mu v) for the last."""
    step = T(rate[0])
    if nesterov:
        for i in range(n):
            now = accelerate(v[i], g[i], mu)
            v[i] = now
            p[i] = descend_shrunk(p[i], step, accelerate(now, g[i], mu), decay)
    else:
        for i in range(n):
            now = accelerate(v[i], g[i], mu)
            v[i] = now
            p[i] = descend_shrunk(p[i], step, now, decay)


@op(
    "momentumw",
    inputs="Param Grad Velocity LearningRate",
    outputs="ParamOut VelocityOut",
    attrs={
        "mu": Attr(0.9, "part of the velocity that stays each step, no unit"),
        "use_nesterov": Attr(False, "look one step ahead"),
        "weight_decay": DECAY,
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[*state_samples(["Velocity"]), *state_samples(["Velocity"], use_nesterov=True, mu=0.5, weight_decay=0.5)[:1]],
)
def momentumw(
    param: TensorType,
    gradient: TensorType,
    velocity: TensorType,
    rate: TensorType,
    *,
    mu: float,
    use_nesterov: bool,
    weight_decay: float,
) -> tuple[TensorType, TensorType]:
    """Step along a decaying sum of gradients, and shrink the parameter apart from them.

    Velocity = mu Velocity + Grad; Param = Param - LearningRate * weight_decay * Param - LearningRate * Velocity, with Nesterov
    LearningRate * (Grad + mu Velocity) for the last.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        Velocity: type of Param, 0 at first.
        LearningRate: [1], no unit.
        mu: part that stays.
        use_nesterov: look one step ahead.
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, VelocityOut: the same variables as Param and Velocity.

    Raises:
        PeError: types do not fit.

    Source:
        Loshchilov and Hutter 2019, algorithm 1; the velocity is that of `momentum`.
    """
    del mu, use_nesterov, weight_decay
    check_update("momentumw", param, gradient, rate, velocity)
    return param, velocity


@momentumw.lower("cpu")
def momentumw_cpu(o: Lowering) -> None:
    """One pass."""
    p, v = in_place(o, "Param", "Velocity")
    settings = o.attrs["mu"], int(o.attrs["use_nesterov"]), o.attrs["weight_decay"]
    o.call(momentumw_step, p, o.input("Grad"), v, o.input("LearningRate"), p.size, *settings)


def _momentumw_scalars(attrs: Mapping[str, Any], _: Mapping[str, Sequence[Any]]) -> list[Scalar]:
    mu = (attrs["mu"],)
    velocity = Scalar("VelocityOut", momentum_step, ("Velocity", "Grad"), mu)
    if not attrs["use_nesterov"]:
        return [velocity, _last(attrs, "VelocityOut")]
    return [velocity, Scalar("ahead", momentum_step, ("VelocityOut", "Grad"), mu), _last(attrs, "ahead")]


momentumw.give(Pointwise(_momentumw_scalars))


# --- lion -------------------------------------------------------------------------------------------------------------


@helper
def step_by_sign(p, step, aim, decay):
    sign = T(1) if aim > T(0) else (T(-1) if aim < T(0) else aim)  # aim itself: 0, or NaN, which must show
    return descend(shrink(p, step * decay), step, sign)


@kernel(each=blend)
def blend_step(m: Ptr, g: Ptr, out: Ptr, n: Int, keep: Real):
    """out = keep m + (1 - keep) g: the form in which `blend` is fused."""
    for i in range(n):
        out[i] = blend(m[i], g[i], keep)


@kernel(each=step_by_sign)
def lion_step(p: Ptr, g: Ptr, m: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, decay: Real):
    """p = p - rate * decay * p - rate * sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g."""
    step = T(rate[0])
    for i in range(n):
        p[i] = step_by_sign(p[i], step, blend(m[i], g[i], b1), decay)
        # Last: the direction is made of the moment of the steps before, with a factor of its own.
        m[i] = blend(m[i], g[i], b2)


@op(
    "lion",
    inputs="Param Grad LearningRate Moment",
    outputs="ParamOut MomentOut",
    attrs={
        "beta1": Attr(0.9, "part of the moment in the direction, no unit"),
        "beta2": Attr(0.99, "decay of the moment per step, no unit"),
        "weight_decay": Attr(0.0, DECAY.doc),
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[*state_samples(["Moment"]), *state_samples(["Moment"], weight_decay=0.5)[:1]],
)
def lion(
    param: TensorType,
    gradient: TensorType,
    rate: TensorType,
    moment: TensorType,
    *,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> tuple[TensorType, TensorType]:
    """Step by the sign of a mean of the gradient: every element moves equally far.

    Param = Param - LearningRate * weight_decay * Param - LearningRate * sign(beta1 Moment + (1 - beta1) Grad);
    Moment = beta2 Moment + (1 - beta2) Grad. sign(0) is 0.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        LearningRate: [1], unit of Param.
        Moment: type of Param, 0 at first.
        beta1, beta2: in [0, 1).
        weight_decay: at least 0, no unit.

    Returns:
        ParamOut, MomentOut: the same variables as Param and Moment.

    Raises:
        PeError: types do not fit.

    Source:
        Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1.
    """
    del beta1, beta2, weight_decay
    check_update("lion", param, gradient, rate, moment)
    return param, moment


@lion.lower("cpu")
def lion_cpu(o: Lowering) -> None:
    """One pass."""
    p, m = in_place(o, "Param", "Moment")
    settings = [o.attrs[name] for name in ("beta1", "beta2", "weight_decay")]
    o.call(lion_step, p, o.input("Grad"), m, o.input("LearningRate"), p.size, *settings)


lion.give(
    Pointwise(
        lambda attrs, _: [
            Scalar("aim", blend_step, ("Moment", "Grad"), (attrs["beta1"],)),
            Scalar("ParamOut", lion_step, ("Param", "LearningRate", "aim"), (attrs["weight_decay"],)),
            Scalar("MomentOut", blend_step, ("Moment", "Grad"), (attrs["beta2"],)),
        ]
    )
)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(sgdw_step, momentumw_step, lion_step)
also_on_cuda(sgdw, momentumw, lion)
