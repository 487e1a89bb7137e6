"""Learning-rate schedules: each op computes the rate, [1], from a counter of steps.

Counters are int64 [1] and are 0 in the first step. The rate is computed in float64 and then rounded.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, PtrU, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op

RATE = Attr(0.1, "rate of the first step, no unit")
DTYPE = Attr("float32", "element type of the rate", FLOATS)


def at_steps(*steps: int, **attrs: Any) -> list[Sample]:
    """Return a sample for each value of the counter."""

    def counter(step: int) -> Any:
        def make(rng):
            return rng.integers(step, step + 1, 1)

        return make

    return [
        Sample({"Step": counter(s)}, attrs, f"step {s} {' '.join(k for k, v in attrs.items() if v is True)}".strip())
        for s in steps
    ]


def rate_type(name: str, step: TensorType, dtype: str, **positive: float) -> TensorType:
    """Return the rate's type.

    Raises:
        PeError: the counter is none, or one of positive is not above 0.
    """
    if step != TensorType((1,), "int64"):
        raise PeError(f"{name} needs a counter int64[1], got {step}")
    for what, value in positive.items():
        if not value > 0:
            raise PeError(f"{name}: {what} must be > 0, got {value}")
    return TensorType((1,), dtype)


def reals(*values: float) -> Numbers:
    """Return float64 numbers for a PtrF64 parameter: unlike a Real, they don't round to float32."""
    # Call arguments are integers or numbers of the element type: float64 travels as the 64 bits of an integer.
    return Numbers(struct.unpack(f"{len(values)}q", struct.pack(f"{len(values)}d", *values)))


# --- piecewise --------------------------------------------------------------------------------------------------------


@kernel
def piecewise_rate(counter: PtrI64, out: Ptr, boundaries: PtrI64, values: PtrF64, count: Int):
    """The value of the first boundary that lies ahead, else the last."""
    piece = 0
    while piece < count and counter[0] >= boundaries[piece]:
        piece += 1
    out[0] = T(values[piece])


@op(
    "piecewise_decay",
    inputs="Step",
    attrs={
        "boundaries": Attr([], "first step of every piece but the first, steps, increasing"),
        "values": Attr([], "rate of each piece, no unit; one more than boundaries"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=at_steps(0, 9, 10, 25, boundaries=[10, 20], values=[0.5, 0.25, 0.125]),
)
def piecewise_decay(step: TensorType, *, boundaries: list[int], values: list[float], dtype: str) -> TensorType:
    """Keep the rate constant between boundaries.

    Out = values[k], where k boundaries are at or below Step.

    Args:
        Step: int64 [1], steps.
        boundaries: first steps of the later pieces.
        values: rates.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, the numbers of values and boundaries don't fit, or boundaries don't increase.

    Source:
        fluid.layers.piecewise_decay.
    """
    if len(values) != len(boundaries) + 1:
        raise PeError(f"piecewise_decay needs one value more than boundaries, got {len(values)} and {len(boundaries)}")
    if any(b <= a for a, b in itertools.pairwise(boundaries)):
        raise PeError(f"piecewise_decay needs increasing boundaries, got {boundaries}")
    return rate_type("piecewise_decay", step, dtype)


@piecewise_decay.lower("cpu")
def piecewise_decay_cpu(o: Lowering) -> None:
    """One number."""
    boundaries, values = o.attrs["boundaries"], o.attrs["values"]
    o.call(
        piecewise_rate, o.input("Step"), o.output("Out"), Numbers(tuple(boundaries)), reals(*values), len(boundaries)
    )


# --- cosine -----------------------------------------------------------------------------------------------------------


@kernel
def cosine_rate(counter: PtrI64, out: Ptr, rate: PtrF64, each: Int, epochs: Int):
    """Half a cosine over the epochs."""
    # Beyond `epochs` the cosine rises again, as in the original.
    epoch = counter[0] // each
    out[0] = T(rate[0] * 0.5 * (math.cos(epoch * math.pi / epochs) + 1.0))


@op(
    "cosine_decay",
    inputs="Step",
    attrs={
        "learning_rate": RATE,
        "step_each_epoch": Attr(1, "steps of an epoch"),
        "epochs": Attr(1, "epochs until the rate is 0"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=at_steps(0, 9, 10, 47, step_each_epoch=10, epochs=5),
)
def cosine_decay(
    step: TensorType, *, learning_rate: float, step_each_epoch: int, epochs: int, dtype: str
) -> TensorType:
    """Let the rate follow half a cosine, epoch by epoch.

    Out = learning_rate / 2 * (cos(pi * floor(Step / step_each_epoch) / epochs) + 1)

    Args:
        Step: int64 [1], steps.
        learning_rate: rate of epoch 0.
        step_each_epoch: steps.
        epochs: epochs.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or step_each_epoch or epochs is not above 0.

    Source:
        fluid.layers.cosine_decay; Loshchilov and Hutter 2016.
    """
    del learning_rate
    return rate_type("cosine_decay", step, dtype, step_each_epoch=step_each_epoch, epochs=epochs)


@cosine_decay.lower("cpu")
def cosine_decay_cpu(o: Lowering) -> None:
    """One number."""
    a = o.attrs
    o.call(cosine_rate, o.input("Step"), o.output("Out"), reals(a["learning_rate"]), a["step_each_epoch"], a["epochs"])


# --- noam -------------------------------------------------------------------------------------------------------------


@kernel
def noam_rate(counter: PtrI64, out: Ptr, numbers: PtrF64):
    """numbers are rate / sqrt(d_model) and warmup^-1.5; the first step is 1."""
    # The original counts from 1 here: at step 0 the inverse root would be infinite.
    at = float(counter[0] + 1)
    out[0] = T(numbers[0] * min(1.0 / math.sqrt(at), numbers[1] * at))


@op(
    "noam_decay",
    inputs="Step",
    attrs={
        "d_model": Attr(512, "width of the model"),
        "warmup_steps": Attr(4000, "steps of growth"),
        "learning_rate": Attr(1.0, "factor, no unit"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=at_steps(0, 3, 4, 25, d_model=64, warmup_steps=5),
)
def noam_decay(step: TensorType, *, d_model: int, warmup_steps: int, learning_rate: float, dtype: str) -> TensorType:
    """Let the rate grow linearly, then fall with the root of the steps.

    Out = learning_rate / sqrt(d_model) * min(t^-0.5, t * warmup_steps^-1.5), t = Step + 1: the first step is number 1.

    Args:
        Step: int64 [1], steps, 0 in the first.
        d_model: width of the model.
        warmup_steps: steps.
        learning_rate: factor.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, or d_model or warmup_steps is not above 0.

    Source:
        fluid.layers.noam_decay; Vaswani et al. 2017, eq. 3.
    """
    del learning_rate
    return rate_type("noam_decay", step, dtype, d_model=d_model, warmup_steps=warmup_steps)


@noam_decay.lower("cpu")
def noam_decay_cpu(o: Lowering) -> None:
    """One number."""
    a = o.attrs
    o.call(
        noam_rate,
        o.input("Step"),
        o.output("Out"),
        # What no step changes is taken to its power here, once.
        reals(a["learning_rate"] * a["d_model"] ** -0.5, a["warmup_steps"] ** -1.5),
    )


# --- warmup -----------------------------------------------------------------------------------------------------------


@kernel
def warmup_rate(counter: PtrI64, rate: PtrU, out: Ptr, ends: PtrF64, steps: Int):
    """A line from ends[0] to ends[1], then the other rate."""
    at = counter[0]
    if at < steps:
        out[0] = T(ends[0] + (ends[1] - ends[0]) * at / steps)
    else:
        out[0] = T(rate[0])


def _warmup_samples() -> Sequence[Sample]:
    return [
        Sample({**s.inputs, "LearningRate": (1,)}, s.attrs, s.name)
        for s in at_steps(0, 3, 5, 25, warmup_steps=5, end_lr=0.5)
    ]


@op(
    "linear_lr_warmup",
    inputs="Step LearningRate",
    attrs={
        "warmup_steps": Attr(1, "steps of growth"),
        "start_lr": Attr(0.0, "rate of step 0, no unit"),
        "end_lr": Attr(0.1, "rate that the line reaches after warmup_steps, no unit"),
        "dtype": DTYPE,
    },
    differentiable="",
    samples=_warmup_samples(),
)
def linear_lr_warmup(
    step: TensorType, rate: TensorType, *, warmup_steps: int, start_lr: float, end_lr: float, dtype: str
) -> TensorType:
    """Go along a line to a rate, then leave it to another schedule.

    Out = start_lr + (end_lr - start_lr) * Step / warmup_steps while Step < warmup_steps, then LearningRate.

    Args:
        Step: int64 [1], steps.
        LearningRate: float [1]; the rate afterwards.
        warmup_steps: steps.
        start_lr: rate of step 0.
        end_lr: end of the line.
        dtype: of the rate.

    Returns:
        Out: [1].

    Raises:
        PeError: Step is no counter, LearningRate is no float [1], or warmup_steps is not above 0.

    Source:
        fluid.layers.linear_lr_warmup.
    """
    del start_lr, end_lr
    if rate.shape != (1,) or rate.dtype not in FLOATS:
        raise PeError(f"linear_lr_warmup needs a LearningRate float [1], got {rate}")
    return rate_type("linear_lr_warmup", step, dtype, warmup_steps=warmup_steps)


@linear_lr_warmup.lower("cpu")
def linear_lr_warmup_cpu(o: Lowering) -> None:
    """One number."""
    a = o.attrs
    ends = reals(a["start_lr"], a["end_lr"])
    o.call(warmup_rate, o.input("Step"), o.input("LearningRate"), o.output("Out"), ends, a["warmup_steps"])


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(piecewise_decay, cosine_decay, noam_decay, linear_lr_warmup)
