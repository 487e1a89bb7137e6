"""Updates of many parameters in one op: fused_sgd, fused_momentum, fused_adam. Each does what its single form does, in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import SIZE, Addr, Int, PtrI64, PtrU, Real, T, helper, kernel, pointer
from pe_cli.kernels.math.tree_sum import BLOCK, add_rows
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Offset, Table
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Spreads, UpdatesMany
from pe_cli.ops.update.decay import add_l2, with_l2
from pe_cli.ops.update.optimizer import lists_in_place, momentum, momentum_step, rate, sgd_step
from pe_cli.ops.update.optimizer_moments import ADAM_STATE, adam
from pe_cli.ops.update.update_kernels import (
    accelerate,
    adam_corrected,
    adam_step,
    adam_where_needed,
    descend,
    move_powers,
)

#: Elements of a row of an embedding, about: where all of so many have never had a gradient, adam passes them over.
QUIET = 128
#: A share is at least this many elements: less is not worth waking a thread for.
MIN_SHARE = 4096
#: Elements of a cache line: no two shares write one.
LINE = 16
_DECAY = Attr(0.0, "l2_decay's coefficient: this times Param is added to Grad first; no unit")


@kernel(exact=True)
def sgd_steps(
    params: PtrI64, gradients: PtrI64, order: PtrI64, devices: Int, sizes: PtrI64, count: Int, room: Addr,
    rate: PtrU, decay: Real,
):  # fmt: skip
    """p -= rate * g, for every pair."""
    step = T(rate[0])
    for k in range(count):
        # A block at a time: the sum of the devices' gradients lies in `room`, and in the first cache when it is used.
        for low in range(0, sizes[k], BLOCK):
            n = min(BLOCK, sizes[k] - low)
            p = pointer(params[k] + SIZE * low)
            g = pointer(add_rows(gradients, k * devices, devices, order, low, n, room))
            if decay != T(0):
                for i in range(n):
                    p[i] = descend(p[i], step, with_l2(g[i], p[i], decay))
            else:
                for i in range(n):
                    p[i] = descend(p[i], step, g[i])


@helper
def move_on(p, v, g, n, step, mu, nesterov):
    """v = mu v + g; p -= step * v, or step * (g + mu v)."""
    if nesterov:
        for i in range(n):
            now = accelerate(v[i], g[i], mu)
            v[i] = now
            p[i] = descend(p[i], step, accelerate(now, g[i], mu))
    else:
        for i in range(n):
            now = accelerate(v[i], g[i], mu)
            v[i] = now
            p[i] = descend(p[i], step, now)


@kernel(exact=True)
def momentum_steps(
    params: PtrI64, gradients: PtrI64, velocities: PtrI64, order: PtrI64, devices: Int, sizes: PtrI64, count: Int, room: Addr,
    rate: PtrU, mu: Real, nesterov: Int, decay: Real,
):  # fmt: skip
    """v = mu v + g; p -= rate * v, or rate * (g + mu v), for every triple."""
    step = T(rate[0])
    for k in range(count):
        for low in range(0, sizes[k], BLOCK):
            n = min(BLOCK, sizes[k] - low)
            p, v = pointer(params[k] + SIZE * low), pointer(velocities[k] + SIZE * low)
            g = pointer(add_rows(gradients, k * devices, devices, order, low, n, room))
            # In scratch, as the gradient itself may be fetched.
            if decay != T(0):
                total = pointer(room)
                for i in range(n):
                    total[i] = with_l2(g[i], p[i], decay)
                g = total
            move_on(p, v, g, n, step, mu, nesterov)


@kernel
def adam_steps(
    params: PtrI64, gradients: PtrI64, firsts: PtrI64, seconds: PtrI64, powers1: PtrI64, powers2: PtrI64,
    order: PtrI64, devices: Int, sizes: PtrI64, count: Int, room: Addr, rate: PtrU, b1: Real, b2: Real, eps: Real,
):  # fmt: skip
    """Both moments and the corrected step, for every parameter; `move_powers` comes after."""
    for k in range(count):
        step = T(adam_corrected(rate, pointer(powers1[k]), pointer(powers2[k])))
        for low in range(0, sizes[k], BLOCK):
            n = min(BLOCK, sizes[k] - low)
            p, g = pointer(params[k] + SIZE * low), pointer(add_rows(gradients, k * devices, devices, order, low, n, room))
            m, v = pointer(firsts[k] + SIZE * low), pointer(seconds[k] + SIZE * low)
            # Rows of an embedding without a gradient have moments of 0, and adam changes nothing there: to look is cheaper than to compute
            # roots.
            for begin in range(0, n, QUIET):
                adam_where_needed(p, g, m, v, begin, min(begin + QUIET, n), step, b1, b2, eps)


def check_lists(name: str, params: Sequence[TensorType], *states: Sequence[TensorType]) -> None:
    """Check that lists have equal lengths.

    Raises:
        PeError: one is longer or shorter than that of the parameters.
    """
    for state in states:
        if len(state) != len(params):
            raise PeError(f"{name} needs as many of each kind, got {len(params)} parameters and {len(state)}")


def one_sample(rng):
    """Draw a power of a decay rate, [1], as a sample input."""
    return rng.uniform(0.1, 0.9, 1)


def room_sample(rng):
    """Draw a matrix of positive numbers as a sample input."""
    return rng.uniform(0.1, 1.0, (3, 5))


def shares_of(sizes: Sequence[int], shares: int) -> list[list[tuple[int, int, int]]]:
    """Return for every share (number of a list's buffer, first element, elements); whole cache lines but at the ends of buffers.

    Large buffers are divided one by one, as threads divide the gradients of weights: each finds its own part in its cache.

    Args:
        sizes: elements of the buffers.
        shares: at most this many; fewer where there is little to do.
    """
    shares = max(1, min(shares, sum(sizes) // MIN_SHARE))
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(shares)]
    large = {k for k, size in enumerate(sizes) if size >= shares * MIN_SHARE}
    rest = [0, *itertools.accumulate(0 if k in large else -(-n // LINE) for k, n in enumerate(sizes))]
    for k, size in enumerate(sizes):
        # A large buffer is cut alone; the others are cut as if they lay one after the other, so that shares are equal however small they
        # are.
        at, lines = (0, -(-size // LINE)) if k in large else (rest[k], rest[-1])
        for s in range(shares):
            low = max(0, lines * s // shares - at) * LINE
            high = min(size, (lines * (s + 1) // shares - at) * LINE)
            if low < high:
                found[s].append((k, low, high - low))
    return found


def _held(o: Lowering, slots: Sequence[str]) -> dict[str, Sequence[Buffer]]:
    """Return the lists by slot: what an update changes is in place."""
    changed = [s for s in slots if s != "Grad"]
    return {"Grad": o.inputs("Grad")} | dict(zip(changed, lists_in_place(o, *changed), strict=True))


def run_shares(o: Lowering, kernel_: object, slots: Sequence[str], whole: Sequence[str], settings: Sequence[float | int]) -> None:
    """Call a kernel over lists, once a share: parameters, gradients and state by slot, then the settings.

    Args:
        slots: lists of buffers of the parameters' sizes.
        whole: lists of single elements.
    """
    held = _held(o, (*slots, *whole))
    params, rows = held["Param"], [held["Grad"], *o.more]

    def gradients(spans: Sequence[tuple[int, int, int]]) -> tuple[Offset, ...]:
        # One device after the other for each span: `add_rows` finds those of span k from k * devices on.
        return tuple(Offset(row[k], low) for k, low, _ in spans for row in rows)

    found = shares_of([p.size for p in params], o.update_threads)
    for share, spans in enumerate(found):

        def table(buffers: Sequence[Buffer], spans: Sequence[tuple[int, int, int]] = spans) -> tuple[Offset, ...]:
            return tuple(Offset(buffers[k], low) for k, low, _ in spans)

        tables = [Table(gradients(spans) if s == "Grad" else table(held[s])) for s in slots]
        tables += [Table(tuple(held[s][k] for k, _, _ in spans)) for s in whole]
        sizes = Numbers(tuple(n for _, _, n in spans))
        room = o.scratch(max(1, o.order.rooms) * BLOCK, params[0].dtype)
        o.call(
            kernel_, *tables, Numbers(o.order.words), len(rows), sizes, len(spans), room,  # type: ignore[arg-type]
            o.input("LearningRate"), *settings, dtype=params[0].dtype, part=share if len(found) > 1 else None,
        )  # fmt: skip


@op(
    "fused_sgd",
    inputs="Param* Grad* LearningRate",
    outputs="ParamOut*",
    attrs={"decay": _DECAY},
    differentiable="",
    samples=[
        Sample({"Param": [(3, 5), (7,)], "Grad": [(3, 5), (7,)], "LearningRate": rate}, attrs, name, outputs={"ParamOut": 2})
        for name, attrs in (("two parameters", {}), ("with decay", {"decay": 0.25}))
    ],
)
def fused_sgd(
    params: list[TensorType], gradients: list[TensorType], rate: TensorType, *, decay: float
) -> list[TensorType]:
    """Step against many gradients: sgd for every parameter, after l2_decay where decay is not 0.

    Args:
        Param, Grad: lists of equal length and types.
        LearningRate: [1].
        decay: at least 0.

    Returns:
        ParamOut: the same variables as Param.

    Raises:
        PeError: lists of different lengths.

    Source:
        sgd; fluid's fuse_all_optimizer_ops.
    """
    del decay
    check_lists("fused_sgd", params, gradients)
    return params


@fused_sgd.lower("cpu")
def fused_sgd_cpu(o: Lowering) -> None:
    """Make one call for each share of the parameters."""
    run_shares(o, sgd_steps, ("Param", "Grad"), (), (float(o.attrs["decay"]),))


@op(
    "fused_momentum",
    inputs="Param* Grad* Velocity* LearningRate",
    outputs="ParamOut* VelocityOut*",
    attrs={**momentum.attrs, "decay": _DECAY},
    differentiable="",
    samples=[
        Sample(
            {"Param": [(3, 5), (7,)], "Grad": [(3, 5), (7,)], "Velocity": [(3, 5), (7,)], "LearningRate": rate},
            attrs,
            name,
            outputs={"ParamOut": 2, "VelocityOut": 2},
        )
        for name, attrs in (("two", {}), ("two with decay", {"decay": 0.25, "use_nesterov": True}))
    ],
)
def fused_momentum(
    params: list[TensorType],
    gradients: list[TensorType],
    velocities: list[TensorType],
    rate: TensorType,
    **attrs: object,
) -> tuple[list[TensorType], list[TensorType]]:
    """Step along many velocities: momentum for every parameter, after l2_decay where decay is not 0.

    Args:
        Param, Grad, Velocity: lists of equal length and types.
        LearningRate: [1].
        decay: at least 0.

    Returns:
        ParamOut, VelocityOut: the same variables as Param and Velocity.

    Raises:
        PeError: lists of different lengths.

    Source:
        momentum; fluid's fuse_all_optimizer_ops.
    """
    check_lists("fused_momentum", params, gradients, velocities)
    return params, velocities


@fused_momentum.lower("cpu")
def fused_momentum_cpu(o: Lowering) -> None:
    """Make one call for each share of the parameters."""
    settings = float(o.attrs["mu"]), int(o.attrs["use_nesterov"]), float(o.attrs["decay"])
    run_shares(o, momentum_steps, ("Param", "Grad", "Velocity"), (), settings)




@op(
    "fused_adam",
    inputs="Param* Grad* LearningRate Moment1* Moment2* Beta1Pow* Beta2Pow*",
    outputs="ParamOut* Moment1Out* Moment2Out* Beta1PowOut* Beta2PowOut*",
    attrs=adam.attrs,
    differentiable="",
    samples=[
        Sample(
            {
                "Param": [room_sample, room_sample],
                "Grad": [room_sample, room_sample],
                "LearningRate": rate,
                "Moment1": [room_sample, room_sample],
                "Moment2": [room_sample, room_sample],
                "Beta1Pow": [one_sample, one_sample],
                "Beta2Pow": [one_sample, one_sample],
            },
            name="two",
            outputs=dict.fromkeys(("ParamOut", *(f"{s}Out" for s in ADAM_STATE)), 2),
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
    check_lists("fused_adam", params, gradients, *states)
    return params, *states


@fused_adam.lower("cpu")
def fused_adam_cpu(o: Lowering) -> None:
    """Make one call for each share of the parameters; the powers move on when all calls are done."""
    settings = tuple(float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon"))
    run_shares(o, adam_steps, ("Param", "Grad", *ADAM_STATE[:2]), ADAM_STATE[2:], settings)
    powers = [Table(tuple(o.outputs(f"{s}Out"))) for s in ADAM_STATE[2:]]
    o.call(move_powers, *powers, len(o.inputs("Param")), *settings[:2], dtype=o.inputs("Param")[0].dtype)


fused_sgd.give(Spreads(), UpdatesMany("sgd"))
fused_momentum.give(Spreads(), UpdatesMany("momentum"))
fused_adam.give(Spreads(), UpdatesMany("adam"))


# --- CUDA -------------------------------------------------------------------------------------------------------------


def run_each(o: Lowering, step: object, slots: Sequence[str], order: Sequence[str], settings: Sequence[float | int]) -> None:
    """Call the kernel of the single op for every parameter, after that of the decay."""
    speed, held = o.input("LearningRate"), _held(o, slots)
    decay = float(o.attrs.get("decay", 0.0))
    for k, p in enumerate(held["Param"]):
        of: dict[str, Any] = {"Rate": speed, "Size": p.size, **{s: held[s][k] for s in slots}}
        if decay:
            of["Grad"] = o.scratch(p.size, p.dtype)
            o.call(add_l2, o.inputs("Grad")[k], p, of["Grad"], p.size, decay)
        o.call(step, *(of[name] for name in order), *settings)  # type: ignore[arg-type]


@fused_sgd.lower("cuda")
def fused_sgd_cuda(o: Lowering) -> None:
    """One launch per parameter: CUDA has no lists of buffers."""
    run_each(o, sgd_step, ("Param", "Grad"), ("Param", "Grad", "Rate", "Size"), ())


@fused_momentum.lower("cuda")
def fused_momentum_cuda(o: Lowering) -> None:
    """One launch per parameter."""
    slots = ("Param", "Grad", "Velocity")
    run_each(o, momentum_step, slots, (*slots, "Rate", "Size"), (float(o.attrs["mu"]), int(o.attrs["use_nesterov"])))


@fused_adam.lower("cuda")
def fused_adam_cuda(o: Lowering) -> None:
    """Two launches per parameter: the second moves the powers on."""
    slots = ("Param", "Grad", *ADAM_STATE)
    settings = tuple(float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon"))
    run_each(o, adam_step, slots, (*slots, "Rate", "Size"), settings)
