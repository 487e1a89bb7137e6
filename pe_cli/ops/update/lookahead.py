"""lookahead: parameters run ahead for some steps and then go a part of the way; lookahead_start keeps where they started."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, kernel
from pe_cli.kernels.math.vector_math import fma
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import RowsApart
from pe_cli.ops.update.optimizer import check_update, in_place

_K = Attr(5, "steps of a round")


@kernel
def keep_start(counter: PtrI64, p: Ptr, slow: Ptr, n: Int, k: Int):
    """slow = p in the first step of a round."""
    # Step 0 of each round: where the optimizer starts from.
    if counter[0] % k == 0:
        for i in range(n):
            slow[i] = p[i]


@kernel
def go_part(counter: PtrI64, p: Ptr, slow: Ptr, n: Int, k: Int, alpha: Real):
    """p = slow + alpha (p - slow) in the last step of a round."""
    if counter[0] % k == k - 1:
        for i in range(n):
            p[i] = fma(alpha, p[i] - slow[i], slow[i])


def _samples(**attrs: float) -> list[Sample]:
    def counter(step: int) -> Any:
        return lambda rng: rng.integers(step, step + 1, 1)

    shapes = {"a matrix": (3, 5), "an odd vector": (37,), "one element": (1,), "nothing": (0, 3)}
    made = [Sample({"Param": s, "Slow": s, "Step": counter(14 if attrs else 15)}, attrs, name) for name, s in shapes.items()]
    return [*made, Sample({"Param": (3, 5), "Slow": (3, 5), "Step": counter(12)}, attrs, "between")]


def _check(name: str, param: TensorType, slow: TensorType, step: TensorType, k: int) -> None:
    check_update(name, param, slow, None)
    if step != TensorType((1,), "int64"):
        raise PeError(f"{name} needs a counter int64[1], got {step}")
    if k < 1:
        raise PeError(f"{name}: k must be >= 1, got {k}")


@op(
    "lookahead_start",
    inputs="Param Slow Step",
    outputs="SlowOut",
    attrs={"k": _K},
    differentiable="",
    traits=[RowsApart()],
    samples=_samples(),
)
def lookahead_start(param: TensorType, slow: TensorType, step: TensorType, *, k: int) -> TensorType:
    """Keep the parameter as it is before the first update of a round.

    Slow = Param where Step mod k is 0, else as it was.

    Args:
        Param: any shape, float32 or float64.
        Slow: type of Param.
        Step: int64 [1], steps, 0 in the first.
        k: at least 1, steps.

    Returns:
        SlowOut: the same variable as Slow.

    Raises:
        PeError: types do not fit, or k is below 1.

    Source:
        Zhang et al. 2019, "Lookahead Optimizer: k steps forward, 1 step back", algorithm 1: a round starts from the slow weights.
    """
    _check("lookahead_start", param, slow, step, k)
    return slow


@lookahead_start.lower("cpu")
def lookahead_start_cpu(o: Lowering) -> None:
    """A copy, or nothing."""
    (slow,) = in_place(o, "Slow")
    o.call(keep_start, o.input("Step"), o.input("Param"), slow, slow.size, o.attrs["k"])


@op(
    "lookahead",
    inputs="Param Slow Step",
    outputs="ParamOut",
    attrs={"k": _K, "alpha": Attr(0.5, "part of the way that is gone, no unit")},
    differentiable="",
    traits=[RowsApart()],
    samples=_samples(alpha=0.25),
)
def lookahead(param: TensorType, slow: TensorType, step: TensorType, *, k: int, alpha: float) -> TensorType:
    """Go back to a part of the way that the parameter went in a round.

    Param = Slow + alpha (Param - Slow) where Step mod k is k - 1, after the last update of a round; else as it was.

    Args:
        Param: any shape, float32 or float64.
        Slow: type of Param; its value before the round.
        Step: int64 [1], steps, 0 in the first.
        k: at least 1, steps.
        alpha: part of the way.

    Returns:
        ParamOut: the same variable as Param.

    Raises:
        PeError: types do not fit, or k is below 1.

    Source:
        Zhang et al. 2019, algorithm 1.
    """
    del alpha
    _check("lookahead", param, slow, step, k)
    return param


@lookahead.lower("cpu")
def lookahead_cpu(o: Lowering) -> None:
    """One pass, or nothing."""
    (p,) = in_place(o, "Param")
    o.call(go_part, o.input("Step"), p, o.input("Slow"), p.size, o.attrs["k"], o.attrs["alpha"])


deal(keep_start, go_part)
also_on_cuda(lookahead_start, lookahead)
