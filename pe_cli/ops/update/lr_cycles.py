"""Learning rates that rise and fall: one_cycle, cosine_restarts; and delayed_step, the counter of a schedule that starts later.

Counters and rounding are those of `pe_cli.ops.update.lr_schedule`.
"""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.update.lr_schedule import DTYPE, RATE, at_steps, rate_type, reals

# --- one_cycle --------------------------------------------------------------------------------------------------------


@helper
def along(start, end, part, linear):
    """Return the number that lies a part of the way from start to end, along a line or half a cosine."""
    if linear:
        return (end - start) * part + start
    return end + (start - end) / 2.0 * (1.0 + math.cos(math.pi * part))


@kernel
def one_cycle_rate(counter: PtrI64, out: Ptr, numbers: PtrF64, linear: Int):
    """numbers are the first, largest and last rate, the step of the largest, and the last step."""
    at, top, last = min(float(counter[0]), numbers[4]), numbers[3], numbers[4]
    if at > top:
        out[0] = T(along(numbers[1], numbers[2], (at - top) / (last - top), linear))
    elif top > 0.0:
        out[0] = T(along(numbers[0], numbers[1], at / top, linear))
    else:
        out[0] = T(numbers[1])


@op(
    "one_cycle",
    inputs="Step",
    attrs={
        "max_lr": Attr(0.1, "largest rate, no unit"),
        "total_steps": Attr(100, "length of the cycle, steps"),
        "pct_start": Attr(0.3, "part of the steps in which the rate rises, no unit"),
        "anneal_strategy": Attr("cos", "half a cosine or a line, up and down", ("cos", "linear")),
        "div_factor": Attr(25.0, "max_lr over the rate of step 0, no unit"),
        "final_div_factor": Attr(1e4, "rate of step 0 over the last rate, no unit"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=[
        *at_steps(0, 2, 3, 9, 25, total_steps=10),
        *at_steps(1, 5, total_steps=10, anneal_strategy="linear"),
        *at_steps(0, 5, total_steps=10, pct_start=0.0),
    ],
)
def one_cycle(
    step: TensorType,
    *,
    max_lr: float,
    total_steps: int,
    pct_start: float,
    anneal_strategy: str,
    div_factor: float,
    final_div_factor: float,
    dtype: str,
) -> TensorType:
    """Let the rate rise to its largest value, then fall to almost nothing.

    first = max_lr / div_factor; last = first / final_div_factor; top = pct_start * total_steps - 1.
    Out goes from first at step 0 to max_lr at step top, then to last at step total_steps - 1, and stays there. A part p of a way
    from a to b is b + (a - b) / 2 * (1 + cos(pi p)) with cos, a + (b - a) p with linear.

    Args:
        Step: int64 [1], steps.
        max_lr: above 0, the largest rate.
        total_steps: steps of the cycle.
        pct_start: in [0, 1], part of the steps in which the rate rises.
        anneal_strategy: cos or linear.
        div_factor, final_div_factor: above 0.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, pct_start is outside [0, 1], or another number is not above 0.

    Source:
        Smith and Topin 2017, "Super-Convergence"; torch.optim.lr_scheduler.OneCycleLR with cycle_momentum=False.
    """
    del anneal_strategy
    if not 0 <= pct_start <= 1:
        raise PeError(f"one_cycle: pct_start must be in [0, 1], got {pct_start}")
    positive = {"max_lr": max_lr, "total_steps": total_steps, "div_factor": div_factor, "final_div_factor": final_div_factor}
    return rate_type("one_cycle", step, dtype, **positive)


@one_cycle.lower("cpu")
def one_cycle_cpu(o: Lowering) -> None:
    """One number."""
    a = o.attrs
    first = a["max_lr"] / a["div_factor"]
    # As in PyTorch, the largest rate is that of the last step of the rise.
    top = float(a["pct_start"] * a["total_steps"]) - 1.0
    numbers = reals(first, a["max_lr"], first / a["final_div_factor"], top, a["total_steps"] - 1.0)
    o.call(one_cycle_rate, o.input("Step"), o.output("Out"), numbers, int(a["anneal_strategy"] == "linear"))


# --- cosine_restarts --------------------------------------------------------------------------------------------------


@kernel
def restarts_rate(counter: PtrI64, out: Ptr, rates: PtrF64, first: Int, times: Int):
    """rates are the largest and the smallest; first is the length of the first fall, times how much longer the next one is."""
    at, length = counter[0], first
    # Falls of one length need no walk from one to the next, which would take longer the longer a training is.
    if times == 1:
        at = at % first
    else:
        while at >= length:
            at -= length
            length *= times
    out[0] = T(rates[1] + (rates[0] - rates[1]) * (1.0 + math.cos(math.pi * at / length)) / 2.0)


@op(
    "cosine_restarts",
    inputs="Step",
    attrs={
        "learning_rate": RATE,
        "T_0": Attr(1, "length of the first fall, steps"),
        "T_mult": Attr(1, "how many times as long each fall is as the one before, a whole number"),
        "eta_min": Attr(0.0, "rate that each fall approaches, no unit"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=[*at_steps(0, 9, 10, 25, T_0=10), *at_steps(0, 9, 10, 29, 30, 75, T_0=10, T_mult=2, eta_min=0.01)],
)
def cosine_restarts(step: TensorType, *, learning_rate: float, T_0: int, T_mult: int, eta_min: float, dtype: str) -> TensorType:
    """Let the rate fall along half a cosine, and start anew each time.

    Out = eta_min + (learning_rate - eta_min) / 2 * (1 + cos(pi * s / n)), with s steps since the last start, and n = T_0 * T_mult^k
    after k restarts, the step of the next one. The rate of a restart is learning_rate; eta_min itself is never reached.

    Args:
        Step: int64 [1], steps.
        learning_rate: rate of step 0 and of every restart.
        T_0: at least 1, steps.
        T_mult: at least 1.
        eta_min: lower end.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or T_0 or T_mult is not above 0.

    Source:
        Loshchilov and Hutter 2016, "SGDR", eq. 5; torch.optim.lr_scheduler.CosineAnnealingWarmRestarts, with steps for epochs.
    """
    del learning_rate, eta_min
    return rate_type("cosine_restarts", step, dtype, T_0=T_0, T_mult=T_mult)


@cosine_restarts.lower("cpu")
def cosine_restarts_cpu(o: Lowering) -> None:
    """One number."""
    a = o.attrs
    o.call(restarts_rate, o.input("Step"), o.output("Out"), reals(a["learning_rate"], a["eta_min"]), a["T_0"], a["T_mult"])


# --- delayed_step -----------------------------------------------------------------------------------------------------


@kernel
def step_since(counter: PtrI64, out: PtrI64, begin: Int):
    """out = max(counter - begin, 0)."""
    out[0] = max(counter[0] - begin, 0)


@op(
    "delayed_step",
    inputs="Step",
    attrs={"begin": Attr(0, "the step that is counted as 0")},
    differentiable="",
    samples=at_steps(0, 4, 5, 25, begin=5),
)
def delayed_step(step: TensorType, *, begin: int) -> TensorType:
    """Count steps from a later one on.

    Out = max(Step - begin, 0)

    Args:
        Step: int64 [1], steps.
        begin: at least 0, steps.

    Returns:
        Out: int64 [1].

    Raises:
        PeError: Step is no counter, or begin is negative.

    Source:
        Closed form; the counter of the later schedule in torch.optim.lr_scheduler.SequentialLR.
    """
    if begin < 0:
        raise PeError(f"delayed_step: begin must be >= 0, got {begin}")
    return rate_type("delayed_step", step, "int64")


@delayed_step.lower("cpu")
def delayed_step_cpu(o: Lowering) -> None:
    """One number."""
    o.call(step_since, o.input("Step"), o.output("Out"), o.attrs["begin"])


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(one_cycle, cosine_restarts, delayed_step)
