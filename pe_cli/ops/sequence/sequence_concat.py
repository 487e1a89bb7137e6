"""sequence_concat: the sequences at one place of several tensors become one sequence."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, lengths_of, offsets_of, ranges
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.tensor.gather import take_rows


@kernel
def put_rows(x: Ptr, to: PtrI64, out: Ptr, count: Int, n: Int):
    """out[to[i]] = x[i], rows of n elements; every row has its own place."""
    for i in range(count):
        for k in range(n):
            out[to[i] * n + k] = x[i * n + k]


def _lengths(offsets: tuple[Indices, ...]) -> list[Indices]:
    counts = [len(o) - 1 for o in offsets]
    if len(set(counts)) > 1:
        raise PeError(f"inputs have {', '.join(map(str, counts))} sequences", hint="every input needs as many")
    return [lengths_of(o) for o in offsets]


def _joined_offsets(*offsets: Indices) -> Indices:
    return offsets_of(np.sum(_lengths(offsets), axis=0))


def _places(*offsets: Indices, which: int) -> Indices:
    lengths = _lengths(offsets)
    # Where input number `which` puts its part of every sequence: behind the parts of the inputs before it.
    begins = _joined_offsets(*offsets)[:-1] + np.sum(lengths[:which], axis=0, dtype=np.int64)
    return ranges(begins, lengths[which])


@op(
    "sequence_concat",
    faces=[Face("", "input name", "Join sequence i of every input to sequence i of the output.")],
    inputs="X* To*",
    differentiable="X",
    samples=[
        Sample({"X": [(3, 2), (2, 2)], "To": [fixed([0, 1, 3]), fixed([2, 4])]}, name="two tensors"),
        Sample({"X": [(2, 3)], "To": [fixed([0, 1])]}, name="one tensor"),
        Sample({"X": [(0, 3), (1, 3)], "To": [fixed([]), fixed([0])]}, name="one has no rows"),
    ],
)
def sequence_concat(x: list[TensorType], to: list[TensorType]) -> TensorType:
    """Join sequence i of every input, in the order of the inputs, to sequence i of the output.

    Args:
        X: [rows, ...] each, any one element type, with sequences, as many in each.
        To: row of Out for every row, int64 [rows], for each input.

    Returns:
        Out: [all rows, ...] element type of X.

    Raises:
        PeError: no input, inputs of other element types or row sizes, or one without sequences; before a step, inputs
            with other numbers of sequences.

    Source:
        fluid.layers.sequence_concat.
    """
    del to
    if not x:
        raise PeError("sequence_concat needs at least one input")
    for other in x[1:]:
        if other.dtype != x[0].dtype or other.shape[1:] != x[0].shape[1:]:
            raise PeError(f"sequence_concat joins rows of one type, got {x[0]} and {other}")
    rows = [t.shape[0] for t in x]
    return x[0].with_shape(-1 if -1 in rows else sum(rows), *x[0].shape[1:])


@sequence_concat.sequences("To")
def sequence_concat_lod(s: LodRequest) -> None:
    """Lengths add up."""
    offsets = [lod[-1] for lod in s.each("X")]
    s.give("To", *(s.derive(_places, *offsets, which=i) for i in range(len(offsets))))
    s.out("Out", s.derive(_joined_offsets, *offsets))


@sequence_concat.lower("cpu")
def sequence_concat_cpu(o: Lowering) -> None:
    """Every input's rows go to their places."""
    out = o.output("Out")
    # Rows are moved and not computed with, so one kernel per size of an element serves all types.
    dtype, n = MOVED_AS[DTYPES[out.dtype]], product(out.shape[1:])
    for x, to in zip(o.inputs("X"), o.inputs("To"), strict=True):
        o.call(put_rows, x, to, out, to.size, n, dtype=dtype)


@sequence_concat.grad(uses="To").lower("cpu")
def sequence_concat_grad_cpu(o: Lowering) -> None:
    """Rows come back."""
    g = o.input("Out@GRAD")
    dtype, n = MOVED_AS[DTYPES[g.dtype]], product(g.shape[1:])
    for dx, to in zip(o.outputs("X@GRAD"), o.inputs("To"), strict=True):
        if dx is not None:
            # Every row has exactly one place in Out, so the gradient is gathered and never added up.
            o.call(take_rows, g, to, dx, g.shape[0], to.size, n, STATUS, dtype=dtype)


deal(put_rows)
also_on_cuda(sequence_concat)
