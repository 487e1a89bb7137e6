"""Updates of many parameters in one op: fused_sgd, fused_momentum, fused_adam. Each does what its single form does, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.lang import Int, PtrI64, PtrU, Real, T, kernel, pointer
from pe_cli.kernels.vecmath import square_root
from pe_cli.ops.lowering import Lowering, Numbers, Table
from pe_cli.ops.optimizer import accelerate, descend, momentum, momentum_step, rate, sgd_step
from pe_cli.ops.optimizer_moments import adam, adam_step
from pe_cli.ops.registry import Sample, op


@kernel
def sgd_steps(params: PtrI64, gradients: PtrI64, sizes: PtrI64, count: Int, rate: PtrU):
    """p -= rate * g, for every pair."""
    step = T(rate[0])
    for k in range(count):
        p, g = pointer(params[k]), pointer(gradients[k])
        for i in range(sizes[k]):
            p[i] = descend(p[i], step, g[i])


@kernel
def momentum_steps(
    params: PtrI64,
    gradients: PtrI64,
    velocities: PtrI64,
    sizes: PtrI64,
    count: Int,
    rate: PtrU,
    mu: Real,
    nesterov: Int,
):
    """v = mu v + g; p -= rate * v, or rate * (g + mu v), for every triple."""
    step = T(rate[0])
    for k in range(count):
        p, g, v = pointer(params[k]), pointer(gradients[k]), pointer(velocities[k])
        if nesterov:
            for i in range(sizes[k]):
                now = accelerate(v[i], g[i], mu)
                v[i] = now
                p[i] = descend(p[i], step, accelerate(now, g[i], mu))
        else:
            for i in range(sizes[k]):
                now = accelerate(v[i], g[i], mu)
                v[i] = now
                p[i] = descend(p[i], step, now)


@kernel
def adam_steps(
    params: PtrI64,
    gradients: PtrI64,
    firsts: PtrI64,
    seconds: PtrI64,
    powers1: PtrI64,
    powers2: PtrI64,
    sizes: PtrI64,
    count: Int,
    rate: PtrU,
    b1: Real,
    b2: Real,
    eps: Real,
):
    """Both moments and the corrected step, for every parameter."""
    one = T(1)
    for k in range(count):
        p, g, m, v = pointer(params[k]), pointer(gradients[k]), pointer(firsts[k]), pointer(seconds[k])
        pow1, pow2 = pointer(powers1[k]), pointer(powers2[k])
        step = T(rate[0] * math.sqrt(1.0 - pow2[0]) / (1.0 - pow1[0]))
        for i in range(sizes[k]):
            first = b1 * m[i] + (one - b1) * g[i]
            second = b2 * v[i] + (one - b2) * g[i] * g[i]
            m[i] = first
            v[i] = second
            p[i] -= step * first / (square_root(second) + eps)
        pow1[0] *= b1
        pow2[0] *= b2


def _check(name: str, params: Sequence[TensorType], *states: Sequence[TensorType]) -> None:
    for state in states:
        if len(state) != len(params):
            raise PeError(f"{name} needs as many of each kind, got {len(params)} parameters and {len(state)}")


def _positive(rng):
    return rng.uniform(0.1, 0.9, 1)


def _room(rng):
    return rng.uniform(0.1, 1.0, (3, 5))


def _run(o: Lowering, kernel_: object, slots: Sequence[str], settings: Sequence[float | int]) -> None:
    """Call a kernel over lists: parameters, gradients and state by slot, then the settings."""
    params = o.inputs("Param")
    tables = [Table(tuple(o.inputs(s))) for s in slots]
    sizes = Numbers(tuple(p.size for p in params))
    speed = o.input("LearningRate")
    o.call(kernel_, *tables, sizes, len(params), speed, *settings, dtype=params[0].dtype)  # type: ignore[arg-type]


@op(
    "fused_sgd",
    inputs="Param* Grad* LearningRate",
    outputs="ParamOut*",
    differentiable="",
    samples=[Sample({"Param": [(3, 5), (7,)], "Grad": [(3, 5), (7,)], "LearningRate": rate}, name="two parameters")],
)
def fused_sgd(params: list[TensorType], gradients: list[TensorType], rate: TensorType) -> list[TensorType]:
    """Step against many gradients: sgd for every parameter.

    Args:
        Param, Grad: lists of equal length and types.
        LearningRate: [1].

    Returns:
        ParamOut: the same variables as Param.

    Raises:
        PeError: lists of different lengths.

    Source:
        sgd; fluid's fuse_all_optimizer_ops.
    """
    _check("fused_sgd", params, gradients)
    return params


@fused_sgd.lower("cpu")
def fused_sgd_cpu(o: Lowering) -> None:
    """One call for all."""
    _run(o, sgd_steps, ("Param", "Grad"), ())


@op(
    "fused_momentum",
    inputs="Param* Grad* Velocity* LearningRate",
    outputs="ParamOut* VelocityOut*",
    attrs=momentum.attrs,
    differentiable="",
    samples=[
        Sample(
            {"Param": [(3, 5), (7,)], "Grad": [(3, 5), (7,)], "Velocity": [(3, 5), (7,)], "LearningRate": rate},
            name="two",
        )
    ],
)
def fused_momentum(
    params: list[TensorType],
    gradients: list[TensorType],
    velocities: list[TensorType],
    rate: TensorType,
    **attrs: object,
) -> tuple[list[TensorType], list[TensorType]]:
    """Step along many velocities: momentum for every parameter.

    Args:
        Param, Grad, Velocity: lists of equal length and types.
        LearningRate: [1].

    Returns:
        ParamOut, VelocityOut: the same variables as Param and Velocity.

    Raises:
        PeError: lists of different lengths.

    Source:
        momentum; fluid's fuse_all_optimizer_ops.
    """
    _check("fused_momentum", params, gradients, velocities)
    return params, velocities


@fused_momentum.lower("cpu")
def fused_momentum_cpu(o: Lowering) -> None:
    """One call for all."""
    _run(o, momentum_steps, ("Param", "Grad", "Velocity"), (float(o.attrs["mu"]), int(o.attrs["use_nesterov"])))


_STATE = ("Moment1", "Moment2", "Beta1Pow", "Beta2Pow")


@op(
    "fused_adam",
    inputs="Param* Grad* LearningRate Moment1* Moment2* Beta1Pow* Beta2Pow*",
    outputs="ParamOut* Moment1Out* Moment2Out* Beta1PowOut* Beta2PowOut*",
    attrs=adam.attrs,
    differentiable="",
    samples=[
        Sample(
            {
                "Param": [_room, _room],
                "Grad": [_room, _room],
                "LearningRate": rate,
                "Moment1": [_room, _room],
                "Moment2": [_room, _room],
                "Beta1Pow": [_positive, _positive],
                "Beta2Pow": [_positive, _positive],
            },
            name="two",
        )
    ],
)
def fused_adam(
    params: list[TensorType], gradients: list[TensorType], rate: TensorType, *states: list[TensorType], **attrs: object
) -> tuple[list[TensorType], ...]:
    """Step by corrected moments: adam for every parameter.

    Args:
        Param, Grad, Moment1, Moment2, Beta1Pow, Beta2Pow: lists of equal length.
        LearningRate: [1].

    Returns:
        ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut: the same variables as the inputs.

    Raises:
        PeError: lists of different lengths.

    Source:
        adam; fluid's fuse_all_optimizer_ops.
    """
    _check("fused_adam", params, gradients, *states)
    return params, *states


@fused_adam.lower("cpu")
def fused_adam_cpu(o: Lowering) -> None:
    """One call for all."""
    settings = tuple(float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon"))
    _run(o, adam_steps, ("Param", "Grad", *_STATE), settings)


# --- CUDA -------------------------------------------------------------------------------------------------------------


def _each(o: Lowering, step: object, slots: Sequence[str], order: Sequence[str], settings: Sequence[float | int]) -> None:
    """Call the kernel of the single op for every parameter."""
    speed = o.input("LearningRate")
    for k, p in enumerate(o.inputs("Param")):
        of = {"Rate": speed, "Size": p.size, **{s: o.inputs(s)[k] for s in slots}}
        o.call(step, *(of[name] for name in order), *settings)  # type: ignore[arg-type]


@fused_sgd.lower("cuda")
def fused_sgd_cuda(o: Lowering) -> None:
    """A launch a parameter: CUDA has no lists of buffers."""
    _each(o, sgd_step, ("Param", "Grad"), ("Param", "Grad", "Rate", "Size"), ())


@fused_momentum.lower("cuda")
def fused_momentum_cuda(o: Lowering) -> None:
    """A launch a parameter."""
    slots = ("Param", "Grad", "Velocity")
    _each(o, momentum_step, slots, (*slots, "Rate", "Size"), (float(o.attrs["mu"]), int(o.attrs["use_nesterov"])))


@fused_adam.lower("cuda")
def fused_adam_cuda(o: Lowering) -> None:
    """Two launches a parameter: the second moves the powers on."""
    slots = ("Param", "Grad", *_STATE)
    settings = tuple(float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon"))
    _each(o, adam_step, slots, (*slots, "Rate", "Size"), settings)
