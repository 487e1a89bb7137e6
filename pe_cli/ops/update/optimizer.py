"""Parameter updates that move along the gradient, one pass over memory each: sgd, momentum, lars_momentum.

Outputs are the same variables as the inputs (ParamOut is Param): the kernels work in place. Where a program gives an
output another variable, the input is copied there first. The learning rate is a [1] variable, of any float type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, helper, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ByRows, Descends, Pointwise, RowsApart, Scalar
from pe_cli.ops.update.optimizer_rows import momentum_rows, sgd_rows
from pe_cli.ops.update.table_rows import by_places, momentum_by_places
from pe_cli.ops.update.update_kernels import accelerate, descend

#: How the slots end whose state is one number for all elements.
SINGLE = ("Pow", "Count", "Product")


def rate(rng):
    """Make a learning rate, for samples."""
    return rng.uniform(0.05, 0.2, 1)


def positive(*shape: int):
    """Return a maker of numbers in [0.1, 1), for samples of second moments."""
    return lambda rng: rng.uniform(0.1, 1.0, shape)


def row_sample(slots: Sequence[str], **attrs: float | bool) -> Sample:
    """Return a sample with a row-sparse gradient: two of five rows, and a place without one."""
    inputs = {"Param": (5, 3), "Grad": (3, 3), "LearningRate": rate, "Rows": lambda rng: np.array([3, 0, -1])}
    inputs |= {s: positive(*((1,) if s.endswith("Pow") else (5, 3))) for s in slots}
    return Sample(inputs, attrs, f"rows {', '.join(attrs)}".rstrip())


def state_samples(slots: Sequence[str], *, rates: bool = True, **attrs: float | bool) -> list[Sample]:
    """Return samples of ordinary and odd shapes, one element and nothing, whose state slots are positive."""
    made = []
    for name, shape in (("a matrix", (3, 5)), ("an odd vector", (37,)), ("one element", (1,)), ("nothing", (0, 3))):
        inputs = {"Param": shape, "Grad": shape, **({"LearningRate": rate} if rates else {})}
        inputs |= {s: positive(*((1,) if s.endswith(SINGLE) else shape)) for s in slots}
        made.append(Sample(inputs, attrs, name))
    return made


def check_update(
    name: str,
    param: TensorType,
    gradient: TensorType,
    rate: TensorType | None,
    *states: TensorType | None,
    rows: TensorType | None = None,
) -> None:
    """Check the types of an update's inputs.

    Args:
        name: of the op.
        param: float32 or float64.
        gradient: type of param, or [n, width] where rows are given.
        rate: [1].
        states: each of param's type or [1] of its element type; None where absent.
        rows: [n] int64, the rows of param that gradient is for; None for all.

    Raises:
        PeError: a type does not fit.
    """
    if param.dtype not in FLOATS:
        raise PeError(f"{name} updates float32 and float64 parameters, Param is {param}")
    if rows is not None:
        if len(param.shape) != 2 or gradient != param.with_shape(*rows.shape, param.shape[1]) or rows.dtype != "int64":
            raise PeError(f"{name}: Grad is {gradient} for Rows {rows} of Param {param}", hint="rows [n], values [n, width]")
    elif gradient != param:
        raise PeError(f"{name}: Grad is {gradient} and Param is {param}, they must have one type")
    if rate is not None and (rate.shape != (1,) or rate.dtype not in FLOATS):
        raise PeError(f"{name}: LearningRate must be a float [1], it is {rate}")
    for state in states:
        if state is not None and state != param and state != param.with_shape(1):
            raise PeError(f"{name}: an accumulator is {state} and Param is {param}, they must have one type")


def in_place(o: Lowering, *slots: str | tuple[str, str]) -> list[Buffer]:
    """Return output buffers, after copying an input that is another variable into its output.

    Args:
        slots: input slots whose outputs are called `<slot>Out`, or (input, output).
    """
    return [buffers[0] for buffers in lists_in_place(o, *slots)]


def lists_in_place(o: Lowering, *slots: str | tuple[str, str]) -> list[Sequence[Buffer]]:
    """Do as `in_place`, for slots of any number of variables."""
    found = []
    for slot in slots:
        given, made = slot if isinstance(slot, tuple) else (slot, f"{slot}Out")
        found.append(o.outputs(made))
        for source, out in zip(o.inputs(given), found[-1], strict=True):
            if source is not out:
                o.call(copy, source, out, out.size)
    return found


# --- sgd --------------------------------------------------------------------------------------------------------------


@kernel(each=descend)
def sgd_step(p: Ptr, g: Ptr, rate: PtrU, n: Int):
    """p -= rate * g."""
    step = T(rate[0])
    for i in range(n):
        p[i] = descend(p[i], step, g[i])


@op(
    "sgd",
    inputs="Param Grad LearningRate Rows?",
    outputs="ParamOut",
    differentiable="",
    traits=[RowsApart(), ByRows()],
    samples=[*state_samples([]), row_sample([])],
)
def sgd(param: TensorType, gradient: TensorType, rate: TensorType, rows: TensorType | None = None) -> TensorType:
    """Step against the gradient.

    Param -= LearningRate * Grad, with Rows only in these rows.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param; with Rows [n, width].
        LearningRate: [1], no unit.
        Rows: [n] int64, the rows of Param [height, width] that Grad is for, each once; -1 for none.

    Returns:
        ParamOut: type of Param; the same variable.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.SGD.
    """
    check_update("sgd", param, gradient, rate, rows=rows)
    return param


@sgd.lower("cpu")
def sgd_cpu(o: Lowering) -> None:
    """One pass."""
    (p,) = in_place(o, "Param")
    if o.has("Rows"):
        g = o.input("Grad")
        for part, *rows in o.row_parts(g.shape[0], g.type.nbytes):
            o.call(sgd_rows, p, g, o.input("Rows"), o.input("LearningRate"), *rows, g.shape[1], part=part)
    else:
        o.call(sgd_step, p, o.input("Grad"), o.input("LearningRate"), p.size)


sgd.give(Descends())
sgd.give(Pointwise(lambda attrs, _: [Scalar("ParamOut", sgd_step, ("Param", "LearningRate", "Grad"))]))


# --- momentum ---------------------------------------------------------------------------------------------------------


@kernel(each=accelerate)
def momentum_step(p: Ptr, g: Ptr, v: Ptr, rate: PtrU, n: Int, mu: Real, nesterov: Int):
    """v = mu v + g; p -= rate * v, or rate * (g + mu v)."""
    step = T(rate[0])
    if nesterov:
        for i in range(n):
            now = accelerate(v[i], g[i], mu)
            v[i] = now
            # Nesterov's gradient is one more step of the same recursion: g + mu v, with the velocity that was just made.
            p[i] = descend(p[i], step, accelerate(now, g[i], mu))
    else:
        for i in range(n):
            now = accelerate(v[i], g[i], mu)
            v[i] = now
            p[i] = descend(p[i], step, now)


@op(
    "momentum",
    inputs="Param Grad Velocity LearningRate Rows?",
    outputs="ParamOut VelocityOut",
    attrs={
        "mu": Attr(0.9, "part of the velocity that stays each step, no unit"),
        "use_nesterov": Attr(False, "look one step ahead"),
    },
    differentiable="",
    traits=[RowsApart()],
    samples=[
        *state_samples(["Velocity"]),
        *state_samples(["Velocity"], use_nesterov=True, mu=0.5)[:1],
        row_sample(["Velocity"]),
        row_sample(["Velocity"], use_nesterov=True),
    ],
)
def momentum(
    param: TensorType,
    gradient: TensorType,
    velocity: TensorType,
    rate: TensorType,
    rows: TensorType | None = None,
    *,
    mu: float,
    use_nesterov: bool,
) -> tuple[TensorType, TensorType]:
    """Step along a decaying sum of gradients.

    Velocity = mu Velocity + Grad; Param -= LearningRate * Velocity, with Nesterov LearningRate * (Grad + mu Velocity).
    With Rows the gradient of the other rows is 0; all velocities decay and all rows move.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param; with Rows [n, width].
        Velocity: type of Param, 0 at first.
        LearningRate: [1], no unit.
        Rows: [n] int64, the rows of Param [height, width] that Grad is for, each once; -1 for none.
        mu: part that stays.
        use_nesterov: look one step ahead.

    Returns:
        ParamOut, VelocityOut: the same variables as Param and Velocity.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.Momentum; Sutskever et al. 2013.
    """
    del mu, use_nesterov
    check_update("momentum", param, gradient, rate, velocity, rows=rows)
    return param, velocity


@momentum.lower("cpu")
def momentum_cpu(o: Lowering) -> None:
    """One pass, with rows cut for threads."""
    p, v = in_place(o, "Param", "Velocity")
    g, rate, settings = o.input("Grad"), o.input("LearningRate"), (o.attrs["mu"], int(o.attrs["use_nesterov"]))
    if o.has("Rows"):
        by_places(o, momentum_by_places, (p, g, o.input("Rows"), v, rate), o.input("Rows"), -1, settings)
    else:
        o.call(momentum_step, p, g, v, rate, p.size, *settings)


@momentum.lower("cuda")
def momentum_cuda(o: Lowering) -> None:
    """The same, but for rows: all slow down, some get their gradients, all move."""
    if not o.has("Rows"):
        momentum_cpu(o)
        return
    p, v = in_place(o, "Param", "Velocity")
    g, settings = o.input("Grad"), (o.attrs["mu"], int(o.attrs["use_nesterov"]))
    o.call(momentum_rows, p, g, o.input("Rows"), v, o.input("LearningRate"), *g.shape, p.size, *settings)


def _momentum_scalars(attrs: Mapping[str, Any], _: Mapping[str, Sequence[Any]]) -> list[Scalar]:
    mu = (attrs["mu"],)
    velocity = Scalar("VelocityOut", momentum_step, ("Velocity", "Grad"), mu)
    if not attrs["use_nesterov"]:
        return [velocity, Scalar("ParamOut", sgd_step, ("Param", "LearningRate", "VelocityOut"))]
    ahead = Scalar("ahead", momentum_step, ("VelocityOut", "Grad"), mu)
    return [velocity, ahead, Scalar("ParamOut", sgd_step, ("Param", "LearningRate", "ahead"))]


momentum.give(Pointwise(_momentum_scalars))


# --- norms ------------------------------------------------------------------------------------------------------------


@helper
def sum_of_squares(x, n):
    """Return the sum of squares in float64, chunk by chunk."""
    total = 0.0
    # Chunks of the element type vectorise; float64 between them keeps digits over millions of elements.
    for begin in range(0, n, CHUNK):
        part = T(0)
        for i in range(begin, min(n, begin + CHUNK)):
            part += x[i] * x[i]
        total += part
    return total


# --- lars_momentum ----------------------------------------------------------------------------------------------------


@kernel
def lars_step(p: Ptr, g: Ptr, v: Ptr, rate: PtrU, n: Int, mu: Real, trust: Real, decay: Real):
    """v = mu v + local (g + decay p); p -= v."""
    local = T(rate[0])
    size = math.sqrt(sum_of_squares(p, n))
    slope = math.sqrt(sum_of_squares(g, n))
    # Without a length on both sides their ratio says nothing, and the rate stays as it is given.
    if size > 0 and slope > 0:
        local = T(local * trust * size / (slope + decay * size))
    for i in range(n):
        now = mu * v[i] + local * (g[i] + decay * p[i])
        v[i] = now
        p[i] -= now


@op(
    "lars_momentum",
    inputs="Param Grad Velocity LearningRate",
    outputs="ParamOut VelocityOut",
    attrs={
        "mu": Attr(0.9, "part of the velocity that stays each step, no unit"),
        "lars_coeff": Attr(0.001, "trust in a layer's own scale, no unit"),
        "lars_weight_decay": Attr(0.0005, "pull towards 0, no unit"),
    },
    differentiable="",
    samples=state_samples(["Velocity"]),
)
def lars_momentum(
    param: TensorType,
    gradient: TensorType,
    velocity: TensorType,
    rate: TensorType,
    *,
    mu: float,
    lars_coeff: float,
    lars_weight_decay: float,
) -> tuple[TensorType, TensorType]:
    """Momentum whose learning rate follows the ratio of the parameter's length to its gradient's.

    local = LearningRate * lars_coeff * |Param| / (|Grad| + lars_weight_decay |Param|), LearningRate if a length is 0;
    Velocity = mu Velocity + local (Grad + lars_weight_decay Param); Param -= Velocity.

    Args:
        Param: any shape, float32 or float64.
        Grad: type of Param.
        Velocity: type of Param, 0 at first.
        LearningRate: [1], no unit.
        mu: part that stays.
        lars_coeff: trust.
        lars_weight_decay: decay.

    Returns:
        ParamOut, VelocityOut: the same variables as Param and Velocity.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.LarsMomentum; You et al. 2017.
    """
    del mu, lars_coeff, lars_weight_decay
    check_update("lars_momentum", param, gradient, rate, velocity)
    return param, velocity


@lars_momentum.lower("cpu")
def lars_momentum_cpu(o: Lowering) -> None:
    """Two norms, then one pass."""
    p, v = in_place(o, "Param", "Velocity")
    attrs = o.attrs
    o.call(
        lars_step,
        p,
        o.input("Grad"),
        v,
        o.input("LearningRate"),
        p.size,
        attrs["mu"],
        attrs["lars_coeff"],
        attrs["lars_weight_decay"],
    )


# --- CUDA -------------------------------------------------------------------------------------------------------------


# lars_step is not dealt, as its norms need all elements first: optimizer_cuda.py has it in several kernels.
deal(sgd_step, sgd_rows, momentum_step)
also_on_cuda(sgd)
