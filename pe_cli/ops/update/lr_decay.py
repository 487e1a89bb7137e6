"""Learning rates that decay with the steps: exponential_decay, natural_exp_decay, inverse_time_decay, polynomial_decay."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.update.lr_schedule import DTYPE, RATE, at_steps, rate_type, reals

#: What an exponent of a decay becomes: `how` of `decay_rate`.
EXPONENTIAL, NATURAL, INVERSE = 0, 1, 2

_STEPS = Attr(1, "length of one decay, steps")
_DECAY = Attr(0.5, "decay each decay_steps, no unit")
_STAIRS = Attr(False, "decay at multiples of decay_steps only")


# --- decays by a power of the steps -----------------------------------------------------------------------------------


@kernel
def decay_rate(counter: PtrI64, out: Ptr, rate: PtrF64, steps: Int, stairs: Int, how: Int):
    """rate[0] is the first rate, rate[1] the decay."""
    x = counter[0] / steps
    if stairs:
        x = math.floor(x)
    if how == EXPONENTIAL:
        out[0] = T(rate[0] * math.pow(rate[1], x))
    elif how == NATURAL:
        out[0] = T(rate[0] * math.exp(-rate[1] * x))
    else:
        out[0] = T(rate[0] / (1.0 + rate[1] * x))


def _decay(o: Lowering, how: int) -> None:
    a = o.attrs
    numbers = reals(a["learning_rate"], a["decay_rate"])
    o.call(decay_rate, o.input("Step"), o.output("Out"), numbers, a["decay_steps"], int(a["staircase"]), how)


_DECAYS = {"learning_rate": RATE, "decay_steps": _STEPS, "decay_rate": _DECAY, "staircase": _STAIRS, "dtype": DTYPE}
_DECAY_SAMPLES = [*at_steps(0, 3, 25, decay_steps=10), *at_steps(25, decay_steps=10, staircase=True)]


@op("exponential_decay", inputs="Step", attrs=_DECAYS, differentiable="", samples=_DECAY_SAMPLES)
def exponential_decay(
    step: TensorType, *, learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool, dtype: str
) -> TensorType:
    """Multiply the rate by decay_rate every decay_steps steps.

    Out = learning_rate * decay_rate^(Step / decay_steps), the exponent rounded down with staircase.

    Args:
        Step: int64 [1], steps.
        learning_rate: rate of step 0.
        decay_steps: steps.
        decay_rate: factor.
        staircase: round down.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or decay_steps is not above 0.

    Source:
        fluid.layers.exponential_decay.
    """
    del learning_rate, decay_rate, staircase
    return rate_type("exponential_decay", step, dtype, decay_steps=decay_steps)


@exponential_decay.lower("cpu")
def exponential_decay_cpu(o: Lowering) -> None:
    """One number."""
    _decay(o, EXPONENTIAL)


@op("natural_exp_decay", inputs="Step", attrs=_DECAYS, differentiable="", samples=_DECAY_SAMPLES)
def natural_exp_decay(
    step: TensorType, *, learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool, dtype: str
) -> TensorType:
    """Let the rate decay exponentially.

    Out = learning_rate * exp(-decay_rate * Step / decay_steps), the quotient rounded down with staircase.

    Args:
        Step: int64 [1], steps.
        learning_rate: rate of step 0.
        decay_steps: steps.
        decay_rate: of the exponent, per decay_steps.
        staircase: round down.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or decay_steps is not above 0.

    Source:
        fluid.layers.natural_exp_decay.
    """
    del learning_rate, decay_rate, staircase
    return rate_type("natural_exp_decay", step, dtype, decay_steps=decay_steps)


@natural_exp_decay.lower("cpu")
def natural_exp_decay_cpu(o: Lowering) -> None:
    """One number."""
    _decay(o, NATURAL)


@op("inverse_time_decay", inputs="Step", attrs=_DECAYS, differentiable="", samples=_DECAY_SAMPLES)
def inverse_time_decay(
    step: TensorType, *, learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool, dtype: str
) -> TensorType:
    """Let the rate decay with the inverse of time.

    Out = learning_rate / (1 + decay_rate * Step / decay_steps), the quotient rounded down with staircase.

    Args:
        Step: int64 [1], steps.
        learning_rate: rate of step 0.
        decay_steps: steps.
        decay_rate: growth of the divisor per decay_steps.
        staircase: round down.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or decay_steps is not above 0.

    Source:
        fluid.layers.inverse_time_decay.
    """
    del learning_rate, decay_rate, staircase
    return rate_type("inverse_time_decay", step, dtype, decay_steps=decay_steps)


@inverse_time_decay.lower("cpu")
def inverse_time_decay_cpu(o: Lowering) -> None:
    """One number."""
    _decay(o, INVERSE)


# --- polynomial -------------------------------------------------------------------------------------------------------


@kernel
def polynomial_rate(counter: PtrI64, out: Ptr, numbers: PtrF64, steps: Int, cycle: Int):
    """numbers are the first rate, the last rate and the power."""
    at = float(counter[0])
    length = float(steps)
    if cycle:
        # The end moves to the next multiple of decay_steps; step 0 belongs to the first one.
        length *= max(1.0, math.ceil(at / steps))
    else:
        at = min(at, length)
    out[0] = T((numbers[0] - numbers[1]) * math.pow(1.0 - at / length, numbers[2]) + numbers[1])


@op(
    "polynomial_decay",
    inputs="Step",
    attrs={
        "learning_rate": RATE,
        "decay_steps": _STEPS,
        "end_learning_rate": Attr(0.0001, "rate after decay_steps, no unit"),
        "power": Attr(1.0, "of the way that is left, no unit"),
        "cycle": Attr(False, "start anew, with decay_steps grown to the next multiple, instead of staying at the end"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=[*at_steps(0, 3, 25, decay_steps=10, power=2.0), *at_steps(0, 25, decay_steps=10, cycle=True)],
)
def polynomial_decay(
    step: TensorType,
    *,
    learning_rate: float,
    decay_steps: int,
    end_learning_rate: float,
    power: float,
    cycle: bool,
    dtype: str,
) -> TensorType:
    """Go from one rate to another along a power of the steps that are left.

    Out = (learning_rate - end_learning_rate) * (1 - s / n)^power + end_learning_rate, with s = min(Step, decay_steps)
    and n = decay_steps; with cycle s = Step and n = decay_steps * max(1, ceil(Step / decay_steps)).

    Args:
        Step: int64 [1], steps.
        learning_rate: rate of step 0.
        decay_steps: steps.
        end_learning_rate: rate at the end.
        power: exponent.
        cycle: start anew.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or decay_steps is not above 0.

    Source:
        fluid.layers.polynomial_decay.
    """
    del learning_rate, end_learning_rate, power, cycle
    return rate_type("polynomial_decay", step, dtype, decay_steps=decay_steps)


@polynomial_decay.lower("cpu")
def polynomial_decay_cpu(o: Lowering) -> None:
    """One number."""
    a = o.attrs
    numbers = reals(a["learning_rate"], a["end_learning_rate"], a["power"])
    o.call(polynomial_rate, o.input("Step"), o.output("Out"), numbers, a["decay_steps"], int(a["cycle"]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(exponential_decay, natural_exp_decay, inverse_time_decay, polynomial_decay)
