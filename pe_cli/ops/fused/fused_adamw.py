"""Updates of many parameters by adamw in one op: fused_adamw. It does what the single form does, in order."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.language import SIZE, Addr, Int, PtrI64, PtrU, Real, T, kernel, pointer
from pe_cli.kernels.math.tree_sum import BLOCK, add_rows
from pe_cli.ops.define.lowering import Lowering, Table
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import Spreads, UpdatesMany
from pe_cli.ops.fused.fused_optimizer import (
    check_lists,
    one_sample,
    room_sample,
    run_each,
    run_shares,
)
from pe_cli.ops.update.optimizer import rate
from pe_cli.ops.update.optimizer_adamw import adamw, adamw_step
from pe_cli.ops.update.update_kernels import adam_corrected, adamw_span, move_on, move_powers

_LISTS = ("Param", "Grad", "Moment1", "Moment2")
_POWERS = ("Beta1Pow", "Beta2Pow")


@kernel
def adamw_steps(
    params: PtrI64, gradients: PtrI64, firsts: PtrI64, seconds: PtrI64, powers1: PtrI64, powers2: PtrI64,
    order: PtrI64, devices: Int, sizes: PtrI64, count: Int, room: Addr, rate: PtrU, b1: Real, b2: Real, eps: Real, decay: Real,
):  # fmt: skip
    """Do `adamw_step` for every parameter, without the powers; `move_powers` comes after."""
    pull = T(rate[0]) * decay
    for k in range(count):
        pow1, pow2 = pointer(powers1[k]), pointer(powers2[k])
        # AdamW corrects the second moment before its root: sqrt(v / (1 - beta2^t)) + epsilon. Both sides are multiplied by sqrt(1 -
        # beta2^t), which the step has already: so epsilon gets the factor, and v stays as it is stored.
        step, far = T(adam_corrected(rate, pow1, pow2)), T(eps * math.sqrt(1.0 - pow2[0]))
        for low in range(0, sizes[k], BLOCK):
            n = min(BLOCK, sizes[k] - low)
            p, g = pointer(params[k] + SIZE * low), pointer(add_rows(gradients, k * devices, devices, order, low, n, room))
            m, v = pointer(firsts[k] + SIZE * low), pointer(seconds[k] + SIZE * low)
            adamw_span(p, g, m, v, 0, n, step, pull, b1, b2, far)


@op(
    "fused_adamw",
    inputs="Param* Grad* LearningRate Moment1* Moment2* Beta1Pow* Beta2Pow*",
    outputs="ParamOut* Moment1Out* Moment2Out* Beta1PowOut* Beta2PowOut*",
    attrs=adamw.attrs,
    differentiable="",
    traits=[Spreads(), UpdatesMany("adamw")],
    samples=[
        Sample(
            {"LearningRate": rate} | dict.fromkeys(_LISTS, [room_sample] * 2) | dict.fromkeys(_POWERS, [one_sample] * 2),
            name="two",
            outputs=dict.fromkeys([f"{s}Out" for s in (*_LISTS, *_POWERS) if s != "Grad"], 2),
        )
    ],
)
def fused_adamw(
    params: list[TensorType], gradients: list[TensorType], rate: TensorType, *states: list[TensorType], **attrs: object
) -> tuple[list[TensorType], ...]:
    """Step by corrected moments, and shrink parameters apart from their gradients: adamw for every parameter.

    Args:
        Param, Grad, Moment1, Moment2, Beta1Pow, Beta2Pow: lists of equal length.
        LearningRate: [1].

    Returns:
        ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut: the same variables as the inputs.

    Raises:
        PeError: lists of different lengths.

    Source:
        adamw; fluid's fuse_all_optimizer_ops.
    """
    check_lists("fused_adamw", params, gradients, *states)
    return params, *states


def _settings(o: Lowering) -> tuple[float, ...]:
    return tuple(float(o.attrs[name]) for name in ("beta1", "beta2", "epsilon", "weight_decay"))


@fused_adamw.lower("cpu")
def fused_adamw_cpu(o: Lowering) -> None:
    """One call per share; the powers move on when all of them are done."""
    run_shares(o, adamw_steps, _LISTS, _POWERS, _settings(o))
    powers = [Table(tuple(o.outputs(f"{s}Out"))) for s in _POWERS]
    o.call(move_powers, *powers, len(o.inputs("Param")), *_settings(o)[:2], dtype=o.inputs("Param")[0].dtype)


@fused_adamw.lower("cuda")
def fused_adamw_cuda(o: Lowering) -> None:
    """Two launches per parameter: the second moves the powers on."""
    run_each(o, adamw_step, (*_LISTS, *_POWERS), (*_LISTS, *_POWERS, "Rate", "Size"), _settings(o))
    # Unlike adam's, adamw's kernel leaves the powers to a launch after it, when every thread has read them.
    for pow1, pow2 in zip(*(o.outputs(f"{s}Out") for s in _POWERS), strict=True):
        o.call(move_on, pow1, pow2, *_settings(o)[:2])
