"""moving_average: one step of an exponential moving average, one pass over memory."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import RowsApart
from pe_cli.ops.update.optimizer import in_place
from pe_cli.ops.update.update_kernels import blend


@kernel
def move_average(x: Ptr, average: Ptr, decay: PtrU, n: Int):
    """average = decay average + (1 - decay) x."""
    stays = T(decay[0])
    for i in range(n):
        average[i] = blend(average[i], x[i], stays)


def _decay(rng):
    return rng.uniform(0.5, 0.99, 1)


@op(
    "moving_average",
    inputs="X Average Decay",
    outputs="AverageOut",
    differentiable="",
    traits=[RowsApart()],
    samples=[
        Sample({"X": (3, 5), "Average": (3, 5), "Decay": _decay}, name="a matrix"),
        Sample({"X": (37,), "Average": (37,), "Decay": _decay}, name="an odd vector"),
        Sample({"X": (1,), "Average": (1,), "Decay": _decay}, name="one element"),
        Sample({"X": (0, 3), "Average": (0, 3), "Decay": _decay}, name="nothing"),
    ],
)
def moving_average(x: TensorType, average: TensorType, decay: TensorType) -> TensorType:
    """Let a value into an average that forgets.

    Average = Decay Average + (1 - Decay) X

    Args:
        X: any shape, float32 or float64.
        Average: type of X, 0 at first: it has then seen 1 - Decay^steps of all weight.
        Decay: [1], no unit.

    Returns:
        AverageOut: the same variable as Average.

    Raises:
        PeError: types do not fit.

    Source:
        fluid.optimizer.ExponentialMovingAverage; Polyak and Juditsky 1992 average without forgetting.
    """
    if x != average or x.dtype not in FLOATS:
        raise PeError(f"moving_average needs an Average of X's type, float32 or float64, got {average} and {x}")
    if decay.shape != (1,) or decay.dtype not in FLOATS:
        raise PeError(f"moving_average: Decay must be a float [1], it is {decay}")
    return average


@moving_average.lower("cpu")
def moving_average_cpu(o: Lowering) -> None:
    """One pass."""
    (average,) = in_place(o, "Average")
    if average.size:
        o.call(move_average, o.input("X"), average, o.input("Decay"), average.size)


deal(move_average)
also_on_cuda(moving_average)
