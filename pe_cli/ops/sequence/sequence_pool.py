"""sequence_pool: every sequence becomes one row."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed, offsets_of, sequence_count
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op

#: By number, as the kernels have them.
POOLS = ("SUM", "AVERAGE", "SQRT", "MAX", "MIN", "FIRST", "LAST")


@kernel
def pool_sums(x: Ptr, offsets: PtrI64, out: Ptr, count: Int, n: Int, which: Int, pad: Real):
    """out[s] = the sum of rows offsets[s] .. offsets[s + 1], by their number (1) or its root (2); pad where there are none."""
    for s in range(count):
        begin = offsets[s]
        end = offsets[s + 1]
        for k in range(n):
            out[s * n + k] = T(0) if begin < end else T(pad)
        # Rows outside, elements inside: memory is read in order, and every element is summed from the first row to the last whatever their
        # number.
        for r in range(begin, end):
            for k in range(n):
                out[s * n + k] += x[r * n + k]
        if which > 0 and end > begin:
            # The root is taken in the element type, as the original does.
            by = T(end - begin) if which == 1 else T(math.sqrt(T(end - begin)))
            for k in range(n):
                out[s * n + k] /= by


@kernel
def spread_sums(g: Ptr, offsets: PtrI64, out: Ptr, count: Int, n: Int, which: Int):
    """out[r] = g of r's sequence, divided as `pool_sums` did."""
    for s in range(count):
        begin = offsets[s]
        end = offsets[s + 1]
        by = T(1)
        if which == 1:
            by = T(end - begin)
        elif which == 2:
            by = T(math.sqrt(T(end - begin)))
        for r in range(begin, end):
            for k in range(n):
                # Divided again instead of multiplied by 1 / n: the gradient rounds as the forward pass does.
                out[r * n + k] = g[s * n + k] / by


@kernel
def pool_picks(x: Ptr, offsets: PtrI64, out: Ptr, index: PtrI64, count: Int, n: Int, which: Int, pad: Real):
    """out[s] = the largest (3), smallest (4), first (5) or last (6) of a sequence's rows, index its row; NaN goes before all."""
    for s in range(count):
        begin = offsets[s]
        # MAX and MIN begin with the first row, which the loop below compares with the others; FIRST and LAST are done after this.
        end = offsets[s + 1]
        start = end - 1 if which == 6 else begin
        for k in range(n):
            index[s * n + k] = start if begin < end else -1
            out[s * n + k] = x[start * n + k] if begin < end else T(pad)
        if which == 3 or which == 4:
            # The smallest is the largest of the negated numbers, so both share one comparison.
            sign = T(1) if which == 3 else T(-1)
            for r in range(begin + 1, end):
                for k in range(n):
                    v = x[r * n + k]
                    best = out[s * n + k]
                    # A NaN compares as false and is asked for by itself; the first one stays.
                    if sign * v > sign * best or (v != v and best == best):
                        out[s * n + k] = v
                        index[s * n + k] = r


@kernel
def spread_picks(g: Ptr, offsets: PtrI64, index: PtrI64, out: Ptr, count: Int, n: Int):
    """out[r] = g of r's sequence where r was picked, else 0."""
    for s in range(count):
        for r in range(offsets[s], offsets[s + 1]):
            for k in range(n):
                # Every element of every row is written, 0 or not, so the gradient needs no clearing before.
                out[r * n + k] = g[s * n + k] if index[s * n + k] == r else T(0)


def _sample(kind: str, *lengths: int, width: tuple[int, ...] = (3,), name: str = "") -> Sample:
    offsets = fixed(offsets_of(lengths))
    return Sample({"X": (sum(lengths), *width), "Offsets": offsets}, {"pooltype": kind}, name or kind.lower())


@op(
    "sequence_pool",
    inputs="X Offsets?",
    outputs="Out MaxIndex?",
    differentiable="X",
    attrs={
        "pooltype": Attr("AVERAGE", "what stands for a sequence", POOLS),
        "is_test": Attr(False, "of fluid's; changes nothing here"),
        "pad_value": Attr(0.0, "value of an empty sequence, unit of X"),
    },
    samples=[
        *(_sample(kind, 2, 1, 4) for kind in POOLS),
        _sample("SQRT", 3, 0, 1, width=(2, 3), name="an empty sequence, and rows of two axes"),
        _sample("MAX", 3, 0, 1, name="the largest, with an empty sequence"),
        _sample("SUM", 1, width=(1,), name="one element"),
        _sample("SUM", name="no sequences"),
    ],
)
def sequence_pool(
    x: TensorType, offsets: TensorType | None, *, pooltype: str, is_test: bool, pad_value: float
) -> tuple[TensorType, TensorType | None]:
    """Put one row in the place of every sequence.

    SUM: sum_i x_i; AVERAGE: sum_i x_i / n; SQRT: sum_i x_i / sqrt(n); MAX, MIN: element by element over i; FIRST, LAST: x_1, x_n;
    for a sequence x_1 .. x_n, and pad_value where n = 0. Sums go from the first row to the last.

    Args:
        X: [rows, ...] float32 or float64, with sequences.
        Offsets: of X's innermost sequences, int64 [sequences + 1].
        pooltype: what stands for a sequence.
        pad_value: unit of X.

    Returns:
        Out: [sequences, ...] element type of X; sequences of X's outer levels.
        MaxIndex: [sequences, ...] int64; the row that an element of Out is taken from, -1 for none. Not of sums.

    Raises:
        PeError: X has no sequences, or less than two axes.

    Source:
        fluid.layers.sequence_pool.
    """
    del is_test, pad_value
    if len(x.shape) < 2:
        raise PeError(f"sequence_pool needs X [rows, ...], got {x}", hint="reshape it to [rows, 1]")
    shape = (sequence_count(offsets), *x.shape[1:])
    return x.with_shape(*shape), TensorType(shape, "int64") if POOLS.index(pooltype) >= 3 else None


@sequence_pool.sequences("Offsets")
def sequence_pool_lod(s: LodRequest) -> None:
    """The innermost level goes."""
    lod = s.need("X")
    s.give("Offsets", lod[-1])
    s.out("Out", *lod[:-1])


@sequence_pool.lower("cpu")
def sequence_pool_cpu(o: Lowering) -> None:
    """Sequence by sequence."""
    x, offsets, out = o.input("X"), o.input("Offsets"), o.output("Out")
    count, n, which, pad = out.shape[0], product(out.shape[1:]), POOLS.index(o.attrs["pooltype"]), o.attrs["pad_value"]
    if which < 3:
        o.call(pool_sums, x, offsets, out, count, n, which, pad)
        return
    index = o.output_or_scratch("MaxIndex", out.size, "int64")
    o.call(pool_picks, x, offsets, out, index, count, n, which, pad)


@sequence_pool.grad(uses="Offsets MaxIndex").lower("cpu")
def sequence_pool_grad_cpu(o: Lowering) -> None:
    """Every row of a sequence gets its share; of extremes only the picked element."""
    g, offsets, dx = o.input("Out@GRAD"), o.input("Offsets"), o.output("X@GRAD")
    count, n, which = g.shape[0], product(g.shape[1:]), POOLS.index(o.attrs["pooltype"])
    if which < 3:
        o.call(spread_sums, g, offsets, dx, count, n, which)
    else:
        o.call(spread_picks, g, offsets, o.input("MaxIndex"), dx, count, n)


deal(pool_sums, spread_sums, pool_picks, spread_picks)
also_on_cuda(sequence_pool)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def row_numbers(o: Writer) -> str:
    """Return the numbers of X's rows, int64 [rows]."""
    count = o.node("Squeeze", [o.node("Shape", [o.x()], end=1), o.const([0])])
    return o.node("Range", [o.const(0), count, o.const(1)])


def sequence_bounds(o: Writer) -> tuple[str, str]:
    """Return the first row of every sequence and the one behind its last, int64 [sequences] each."""
    limit = o.const([np.iinfo(np.int64).max])
    begins = o.node("Slice", [o.x("Offsets"), o.const([0]), o.const([-1])])
    return begins, o.node("Slice", [o.x("Offsets"), o.const([1]), limit])


@in_onnx("sequence_pool")
def sequence_pool_onnx(o: Writer) -> None:
    """Each sequence picks its rows by comparing their numbers with its bounds: [sequences, rows, ...]."""
    begins, ends = (o.node("Unsqueeze", [bound, o.const([1])]) for bound in sequence_bounds(o))
    rows = o.node("Unsqueeze", [row_numbers(o), o.const([0])])
    mine = o.node("And", [o.node("GreaterOrEqual", [rows, begins]), o.node("Less", [rows, ends])])
    count = o.node("Sub", [ends, begins])
    inner = len(o.type().shape) - 1
    kind, wide = o.attrs["pooltype"], o.const(list(range(2, 2 + inner)))
    if kind in ("FIRST", "LAST"):
        # An empty sequence at the end begins behind the last row: the index is held inside the tensor, and the Where at the end puts
        # pad_value there.
        last = o.node("Sub", [o.node("Shape", [o.x()], end=1), o.const([1])])
        at = begins if kind == "FIRST" else o.node("Sub", [ends, o.const(1)])
        found = o.node("Gather", [o.x(), o.node("Squeeze", [o.node("Min", [o.node("Max", [at, o.const([0])]), last]), o.const([1])])])
    else:
        extreme = kind in ("MAX", "MIN")
        # Rows of other sequences become the neutral element of the reduction, so that one reduction over all rows serves every sequence.
        outside = {"MAX": -np.inf, "MIN": np.inf}.get(kind, 0.0)
        every = o.node("Where", [o.node("Unsqueeze", [mine, wide]), o.node("Unsqueeze", [o.x(), o.const([0])]), o.const(outside, "X")])
        reducer = {"MAX": "ReduceMax", "MIN": "ReduceMin"}.get(kind, "ReduceSum")
        found = o.node(reducer, [every, o.const([1])], keepdims=0)
        if not extreme and kind != "SUM":
            n = o.node("Cast", [count], to_=element_type(o.type().dtype))
            n = o.node("Sqrt", [n]) if kind == "SQRT" else n
            shaped = n if inner == 1 else o.node("Unsqueeze", [n, o.const(list(range(2, 1 + inner)))])
            found = o.node("Div", [found, shaped])
    empty = o.node("Equal", [count, o.const(0)])
    empty = empty if inner == 1 else o.node("Unsqueeze", [empty, o.const(list(range(2, 1 + inner)))])
    o.node("Where", [empty, o.const(o.attrs["pad_value"], "X"), found], to="Out")
