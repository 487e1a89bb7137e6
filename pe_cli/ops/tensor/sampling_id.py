"""sampling_id: a column for every row, by the row's probabilities."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, kernel
from pe_cli.kernels.math.random import uniform
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import STEP, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Random


@kernel
def draw_columns(x: Ptr, out: PtrI64, rows: Int, width: Int, low: Real, high: Real, first: Int, seed: Int, step: PtrI64, fixed: Int):
    """out[r] = the column where the sum of x[r] passes a number that is drawn; the last one where it does not."""
    at = 0 if fixed else step[0]
    for r in range(rows):
        left = low + (high - low) * uniform(seed, at, first + r)
        found = width - 1
        for j in range(width):
            left -= x[r * width + j]
            if left < 0:
                found = j
                break
        out[r] = found


def _probabilities(rng):
    return rng.dirichlet([1.0, 2.0, 3.0], 5)


@op(
    "sampling_id",
    inputs="X",
    traits=[Random()],
    attrs={
        "min": Attr(0.0, "lower end of the numbers that are drawn"),
        "max": Attr(1.0, "upper end of them"),
        "seed": Attr(0, "own seed, the same columns at every step; 0 takes the program's, with new ones at every step"),
    },
    differentiable="",
    samples=[
        Sample({"X": _probabilities}, name="five rows"),
        Sample({"X": (1, 1)}, {"seed": 3}, "one column"),
        Sample({"X": (0, 3)}, name="an empty batch"),
    ],
)
def sampling_id(x: TensorType, *, min: float, max: float, seed: int) -> TensorType:
    """Draw a column for every row, each with the probability that the row has there.

    Args:
        X: [batch, columns] float32 or float64 probabilities.
        min, max, seed: see the attributes.

    Returns:
        Out: [batch] int64.

    Raises:
        PeError: other types, or max < min.

    Source:
        fluid.layers.sampling_id.
    """
    del seed
    if len(x.shape) != 2 or x.dtype not in FLOATS or x.shape[1] == 0:
        raise PeError(f"sampling_id needs probabilities [batch, columns], got {x}")
    if max < min:
        raise PeError(f"sampling_id needs min <= max, got {min:g} and {max:g}", hint="swap them")
    return TensorType(x.shape[:1], "int64")


@sampling_id.lower("cpu")
def sampling_id_cpu(o: Lowering) -> None:
    """Row by row."""
    x, a = o.input("X"), o.attrs
    own = int(a["seed"])
    if x.size:
        o.call(draw_columns, x, o.output("Out"), *x.shape, a["min"], a["max"], o.sample_offset, own or o.seed, STEP, int(own != 0))


deal(draw_columns)
also_on_cuda(sampling_id)
