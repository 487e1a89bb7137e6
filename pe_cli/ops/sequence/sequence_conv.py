"""sequence_context: every row with its neighbours in the sequence, side by side; a product with weights makes it sequence_conv."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.sequence.sequence_pool import row_numbers, sequence_bounds


@kernel
def context(x: Ptr, offsets: PtrI64, out: Ptr, count: Int, n: Int, start: Int, taps: Int):
    """out[r, t] = x[r + start + t], 0 outside r's sequence; rows of n elements."""
    for s in range(count):
        begin = offsets[s]
        end = offsets[s + 1]
        for r in range(begin, end):
            # Laid out as im2col lays out images, so that one product with the weights is the whole convolution.
            for t in range(taps):
                q = r + start + t
                to = (r * taps + t) * n
                if begin <= q < end:
                    for k in range(n):
                        out[to + k] = x[q * n + k]
                else:
                    for k in range(n):
                        out[to + k] = T(0)


@kernel
def context_back(g: Ptr, offsets: PtrI64, out: Ptr, count: Int, n: Int, start: Int, taps: Int):
    """out[q] = sum_t g[q - start - t, t] over the rows of q's sequence."""
    for s in range(count):
        begin = offsets[s]
        end = offsets[s + 1]
        # Each row asks which rows it was a neighbour of, instead of those adding to it: no two threads write to one row on CUDA.
        for q in range(begin, end):
            for k in range(n):
                out[q * n + k] = T(0)
            for t in range(taps):
                r = q - start - t
                if begin <= r < end:
                    at = (r * taps + t) * n
                    for k in range(n):
                        out[q * n + k] += g[at + k]


_OFFSETS = fixed([0, 4, 4, 5])


@op(
    "sequence_context",
    inputs="X Offsets?",
    differentiable="X",
    attrs={"start": Attr(0, "first neighbour: 0 the row itself, -1 the one before"), "length": Attr(1, "neighbours")},
    samples=[
        Sample({"X": (5, 2), "Offsets": _OFFSETS}, {"start": -1, "length": 3}, "one row on either side"),
        Sample({"X": (5, 3), "Offsets": _OFFSETS}, {"start": 1, "length": 2}, "rows behind"),
        Sample({"X": (1, 1), "Offsets": fixed([0, 1])}, {"start": -4, "length": 5}, "one element"),
    ],
)
def sequence_context(x: TensorType, offsets: TensorType | None, *, start: int, length: int) -> TensorType:
    """Put every row and its neighbours in the sequence side by side.

    Out[r] = X[r + start], ..., X[r + start + length - 1], with zeros for rows outside r's sequence.

    Args:
        X: [rows, width] float32 or float64, with sequences.
        Offsets: of X's innermost sequences, int64 [sequences + 1].
        start: first neighbour, in rows.
        length: neighbours, the row itself among them or not.

    Returns:
        Out: [rows, length width] element type and sequences of X.

    Raises:
        PeError: X has no sequences or not two axes, or length is below 1.

    Source:
        The context projection of fluid's operator sequence_conv.
    """
    del offsets, start
    if len(x.shape) != 2 or x.shape[1] < 1 or length < 1:
        raise PeError(f"sequence_conv needs X [rows, width] and a filter_size of at least 1, got {x}, {length}")
    return x.with_shape(x.shape[0], length * x.shape[1])


@sequence_context.sequences("Offsets")
def sequence_context_lod(s: LodRequest) -> None:
    """Rows stay."""
    s.give("Offsets", s.offsets("X"))
    s.out("Out", *s.need("X"))


@sequence_context.lower("cpu")
def sequence_context_cpu(o: Lowering) -> None:
    """Row by row."""
    x, offsets, a = o.input("X"), o.input("Offsets"), o.attrs
    o.call(context, x, offsets, o.output("Out"), offsets.size - 1, x.shape[1], a["start"], a["length"])


@sequence_context.grad(uses="Offsets").lower("cpu")
def sequence_context_grad_cpu(o: Lowering) -> None:
    """Every row gets the gradients of the places that it was put to."""
    dx, offsets, a = o.output("X@GRAD"), o.input("Offsets"), o.attrs
    o.call(context_back, o.input("Out@GRAD"), offsets, dx, offsets.size - 1, dx.shape[1], a["start"], a["length"])


deal(context, context_back)
also_on_cuda(sequence_context)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("sequence_context")
def sequence_context_onnx(o: Writer) -> None:
    """Neighbours by number, 0 where they belong to another sequence."""
    rows = row_numbers(o)
    begins, ends = sequence_bounds(o)
    # A row lies in the sequence whose number is that of the sequences that have ended at or before it. Empty sequences end where they
    # begin, and so are counted over.
    behind = o.node("GreaterOrEqual", [o.node("Unsqueeze", [rows, o.const([1])]), o.node("Unsqueeze", [ends, o.const([0])])])
    sequence = o.node("ReduceSum", [o.node("Cast", [behind], to_=element_type("int64")), o.const([1])], keepdims=0)
    low, high = (o.node("Gather", [bound, sequence]) for bound in (begins, ends))
    parts = []
    for step in range(o.attrs["start"], o.attrs["start"] + o.attrs["length"]):
        near = o.node("Add", [rows, o.const(step)])
        inside = o.node("And", [o.node("GreaterOrEqual", [near, low]), o.node("Less", [near, high])])
        # Gather needs an index that exists: a neighbour outside the sequence is replaced by the row itself, whose value the Where below
        # throws away.
        taken = o.node("Gather", [o.x(), o.node("Where", [inside, near, rows])])
        parts.append(o.node("Where", [o.node("Unsqueeze", [inside, o.const([1])]), taken, o.const(0.0, "X")]))
    o.node("Concat", parts, to="Out", axis=1)
