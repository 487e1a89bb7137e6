"""similarity_focus: a mask over the strongest responses of chosen channels, one in each row and column."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def focus(x: Ptr, out: Ptr, taken: PtrI64, g: PtrI64, indexes: PtrI64, count: Int, batch: Int):
    """out = 1 along the axis at the largest of every chosen slice whose row and column have none yet, else 0; until none is left."""
    for b in range(batch):
        R, C, channels, whole = g[0], g[1], g[2], g[3]
        for i in range(b * whole, (b + 1) * whole):
            out[i] = T(0)
        for q in range(count):
            # Rows and columns that an element was taken from, for one slice of one sample.
            for r in range(R + C):
                taken[b * (R + C) + r] = 0
            # As many elements as the smaller side has: every one uses up a row and a column.
            for _ in range(min(R, C)):
                found = -1
                best = T(0)
                for p in range(R * C):
                    value = x[b * whole + indexes[q] * g[4] + p // C * g[5] + p % C * g[6]]
                    free = taken[b * (R + C) + p // C] + taken[b * (R + C) + R + p % C] == 0
                    if free and (found < 0 or value > best):
                        found = p
                        best = value
                taken[b * (R + C) + found // C] = 1
                taken[b * (R + C) + R + found % C] = 1
                at = b * whole + found // C * g[5] + found % C * g[6]
                for c in range(channels):
                    out[at + c * g[4]] = T(1)


@op(
    "similarity_focus",
    faces=[Face("", "input axis! indexes! name", "Mark the largest elements of chosen slices, one in each row and column of a slice.")],
    inputs="X",
    differentiable="",
    attrs={
        "axis": Attr(1, "axis of the slices: 1, 2 or 3", (1, 2, 3)),
        "indexes": Attr([0], "slices along it"),
    },
    samples=[
        Sample({"X": (2, 3, 2, 2)}, {"axis": 1, "indexes": [0, 2]}, "two channels"),
        Sample({"X": (2, 3, 4, 2)}, {"axis": 2, "indexes": [3]}, "a row"),
        Sample({"X": (1, 3, 1, 5)}, {"axis": 3, "indexes": [4, 0, 4]}, "columns"),
        Sample({"X": (0, 2, 3, 3)}, {}, "an empty batch"),
    ],
)
def similarity_focus(x: TensorType, *, axis: int, indexes: list[int]) -> TensorType:
    """Mark the strongest responses of slices of a tensor.

    From each slice X[b, ..., index, ...] along the axis the largest elements are taken, in falling order, each the only one of its
    row and column, as long as there are rows and columns. Out is 1 at their places for all positions along the axis, else 0. Of equal
    elements the first is taken.

    Args:
        X: [batch, a, b, c] float32 or float64, sizes known but for the batch.

    Returns:
        Out: shape and dtype of X.

    Raises:
        PeError: X of another rank, or an index outside of the axis.

    Source:
        fluid.layers.similarity_focus.
    """
    if len(x.shape) != 4 or min(x.shape[1:]) < 1:
        raise PeError(f"similarity_focus needs X [batch, a, b, c] of known sizes, got {x}")
    if not indexes or not all(0 <= i < x.shape[axis] for i in indexes):
        raise PeError(f"similarity_focus: indexes must be from 0 to {x.shape[axis] - 1}, at least one, got {indexes}")
    return x


@similarity_focus.lower("cpu")
def similarity_focus_cpu(o: Lowering) -> None:
    """Sample by sample."""
    x, axis, indexes = o.input("X"), o.attrs["axis"], o.attrs["indexes"]
    if not x.size:
        return
    # The slice's two axes may be any two of three, so the kernel gets sizes and steps and knows no axis.
    steps = [product(x.shape[i + 1 :]) for i in range(4)]
    rows, columns = (i for i in (1, 2, 3) if i != axis)
    sizes = x.shape[rows], x.shape[columns], x.shape[axis], steps[0]
    taken = o.scratch(x.shape[0] * (sizes[0] + sizes[1]), "int64")
    numbers = Numbers((*sizes, steps[axis], steps[rows], steps[columns]))
    o.call(focus, x, o.output("Out"), taken, numbers, Numbers(indexes), len(indexes), x.shape[0])


deal(focus)
also_on_cuda(similarity_focus)
