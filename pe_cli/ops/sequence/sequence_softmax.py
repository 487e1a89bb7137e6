"""sequence_softmax: the numbers of every sequence become probabilities."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.kernels.math.vector_math import exp
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import LodRequest, fixed, offsets_of
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Sample, op


@kernel
def softmax_sequences(x: Ptr, offsets: PtrI64, out: Ptr, count: Int):
    """out = exp(x - m) / sum exp(x - m) over every sequence, m its largest number."""
    for s in range(count):
        begin = offsets[s]
        end = offsets[s + 1]
        most = x[begin] if begin < end else T(0)
        for r in range(begin + 1, end):
            most = max(most, x[r])
        for r in range(begin, end):
            out[r] = exp(x[r] - most)
        total = T(0)
        for r in range(begin, end):  # apart: one loop would sum in another order where out is x
            total += out[r]
        for r in range(begin, end):
            out[r] /= total


@kernel
def softmax_sequences_back(y: Ptr, g: Ptr, offsets: PtrI64, out: Ptr, count: Int):
    """out = y (g - sum y g) over every sequence."""
    for s in range(count):
        begin = offsets[s]
        end = offsets[s + 1]
        total = T(0)
        for r in range(begin, end):
            total += y[r] * g[r]
        for r in range(begin, end):
            out[r] = y[r] * (g[r] - total)


def _sample(name: str, *lengths: int, column: bool = True) -> Sample:
    shape = (sum(lengths), 1) if column else (sum(lengths),)
    return Sample({"X": shape, "Offsets": fixed(offsets_of(lengths))}, name=name)


@op(
    "sequence_softmax",
    faces=[Face("", "input name")],
    inputs="X Offsets?",
    floats="X",
    differentiable="X",
    samples=[
        _sample("three sequences", 3, 1, 4),
        _sample("without an axis of 1, one empty", 2, 0, 5, column=False),
        _sample("one element", 1),
        _sample("no sequences"),
    ],
)
def sequence_softmax(x: TensorType, offsets: TensorType | None) -> TensorType:
    """Turn the numbers of every sequence into probabilities.

    Out_i = exp(X_i - m) / sum_j exp(X_j - m), m = max_j X_j, over the rows j of i's sequence.

    Args:
        X: [rows] or [rows, 1] float32 or float64, with sequences; in nats.
        Offsets: of X's innermost sequences, int64 [sequences + 1].

    Returns:
        Out: type and sequences of X; every sequence sums to 1.

    Raises:
        PeError: X has no sequences, or more than one number per row.

    Source:
        fluid.layers.sequence_softmax.
    """
    del offsets
    if len(x.shape) not in (1, 2) or product(x.shape[1:]) != 1:
        raise PeError(f"sequence_softmax needs X [rows, 1] or [rows], got {x}", hint="fc with size: 1 gives one number")
    return x


@sequence_softmax.sequences("Offsets")
def sequence_softmax_lod(s: LodRequest) -> None:
    """Rows stay."""
    s.give("Offsets", s.offsets("X"))
    s.out("Out", *s.need("X"))


@sequence_softmax.lower("cpu")
def sequence_softmax_cpu(o: Lowering) -> None:
    """Sequence by sequence."""
    offsets = o.input("Offsets")
    o.call(softmax_sequences, o.input("X"), offsets, o.output("Out"), offsets.size - 1)


@sequence_softmax.grad(uses="Out Offsets").lower("cpu")
def sequence_softmax_grad_cpu(o: Lowering) -> None:
    """Sequence by sequence."""
    offsets = o.input("Offsets")
    o.call(softmax_sequences_back, o.input("Out"), o.input("Out@GRAD"), offsets, o.output("X@GRAD"), offsets.size - 1)


deal(softmax_sequences, softmax_sequences_back)
also_on_cuda(sequence_softmax)
