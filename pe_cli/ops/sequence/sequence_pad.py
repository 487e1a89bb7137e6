"""sequence_pad, sequence_unpad and sequence_mask: sequences of any length as one block with gaps at the ends, and back."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType, check_dtype, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, kernel
from pe_cli.kernels.status_codes import TOO_LONG
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, lengths_of, offsets_of, row_count, sequence_count
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.define.traits import FedSizes, ReportsData


def longest(lengths: Indices) -> Indices:
    """Return an array as long as the longest: its size is the value."""
    # Sizes travel as sizes of arrays, because shapes are known before a step and values are not; zeros of numpy cost no memory until they
    # are read.
    return np.zeros(int(np.max(lengths, initial=0)), np.int64)


def _longest_sequence(offsets: Indices) -> Indices:
    return longest(lengths_of(offsets))


# --- sequence_pad -----------------------------------------------------------------------------------------------------


@kernel
def pad_sequences(
    x: Ptr,
    value: Ptr,
    offsets: PtrI64,
    out: Ptr,
    lengths: PtrI64,
    count: Int,
    high: Int,
    n: Int,
    single: Int,
    status: Status,
):
    """out[s, t] = x[offsets[s] + t], or the value behind the end; lengths[s] = rows of sequence s."""
    for s in range(count):
        begin = offsets[s]
        size = offsets[s + 1] - begin
        # Written even for a sequence that is too long: the message of the status says how long it is.
        lengths[s] = size
        if size > high:
            status[1] = s
            status[2] = size
            status[3] = high
            status[0] = TOO_LONG
            return
        for t in range(high):
            to = (s * high + t) * n
            for k in range(n):
                if t < size:
                    out[to + k] = x[(begin + t) * n + k]
                else:
                    out[to + k] = value[0 if single else k]


@kernel
def unpad_sequences(padded: Ptr, offsets: PtrI64, out: Ptr, count: Int, high: Int, n: Int, status: Status):
    """out[offsets[s] + t] = padded[s, t]."""
    for s in range(count):
        begin = offsets[s]
        size = offsets[s + 1] - begin
        if size > high:
            status[1] = s
            status[2] = size
            status[3] = high
            status[0] = TOO_LONG
            return
        for i in range(size * n):
            out[begin * n + i] = padded[s * high * n + i]


_X = {"X": (4, 2), "PadValue": (1,), "Offsets": fixed([0, 3, 3, 4])}


@op(
    "sequence_pad",
    traits=[ReportsData()],
    inputs="X PadValue Offsets? Longest?",
    outputs="Out Length",
    differentiable="X",
    attrs={"padded_length": Attr(-1, "rows of every sequence in the block; -1 for those of the longest")},
    samples=[
        Sample({**_X, "Longest": fixed([0, 0, 0])}, name="as long as the longest, one empty"),
        Sample(_X, {"padded_length": 5}, "longer than all"),
        Sample({**_X, "PadValue": (2,), "Longest": fixed([0, 0, 0])}, name="a row of values"),
        Sample({"X": (0, 2), "PadValue": (1,), "Offsets": fixed([0]), "Longest": fixed([])}, name="no sequences"),
    ],
)
def sequence_pad(
    x: TensorType, value: TensorType, offsets: TensorType | None, longest: TensorType | None, *, padded_length: int
) -> tuple[TensorType, TensorType]:
    """Write every sequence into its row of a block, and a value behind its end.

    Args:
        X: [rows, ...] any element type, with sequences.
        PadValue: one number, or one for every element of a row; element type of X.
        padded_length: rows of a sequence in the block; -1: of the longest, over all devices.
        Offsets: of X's innermost sequences, int64 [sequences + 1].
        Longest: its length is that of the longest, int64.

    Returns:
        Out: [sequences, padded_length, ...] element type of X.
        Length: int64 [sequences]; rows of each before padding.

    Raises:
        PeError: X has no sequences, PadValue does not fit; while running, a sequence is longer than padded_length.

    Source:
        fluid.layers.sequence_pad.
    """
    if not x.shape or padded_length == 0 or padded_length < -1:
        raise PeError(
            f"sequence_pad needs X [rows, ...] and a padded_length of -1 or at least 1, got {x}, {padded_length}"
        )
    if value.dtype != x.dtype or value.size not in (1, -1, product(x.shape[1:])):
        raise PeError(
            f"sequence_pad: PadValue is {value}, but X is {x}", hint="one number, or one for every element of a row"
        )
    high = padded_length if padded_length > 0 else row_count(longest)
    count = sequence_count(offsets)
    return x.with_shape(count, high, *x.shape[1:]), TensorType((count,), "int64")


@sequence_pad.sequences("Offsets Longest")
def sequence_pad_lod(s: LodRequest) -> None:
    """The innermost level becomes an axis."""
    lod = s.need("X")
    s.give("Offsets", lod[-1])
    if s.attrs["padded_length"] < 0:
        # `common`: all devices pad to the longest sequence of the whole batch, so that their blocks can be joined or compared.
        s.give("Longest", s.derive(_longest_sequence, lod[-1], common=True))
    s.out("Out", *lod[:-1])
    # Later ops that need the lengths before a step, as sequence_unpad does, get them without reading the tensor.
    s.know("Length", s.derive(lengths_of, lod[-1]))


@sequence_pad.lower("cpu")
def sequence_pad_cpu(o: Lowering) -> None:
    """Row by row."""
    x, value, out = o.input("X"), o.input("PadValue"), o.output("Out")
    lengths = o.output_or_scratch("Length", out.shape[0], "int64")
    o.call(
        # Rows are moved and not computed with: one kernel per size of element serves all types.
        pad_sequences, x, value, o.input("Offsets"), out, lengths, *out.shape[:2], product(x.shape[1:]),
        int(value.size == 1), STATUS, dtype=MOVED_AS[DTYPES[x.dtype]],
    )  # fmt: skip


@sequence_pad.grad(uses="Offsets").lower("cpu")
def sequence_pad_grad_cpu(o: Lowering) -> None:
    """Rows come back; what stands behind the ends is left out."""
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    o.call(unpad_sequences, g, o.input("Offsets"), dx, *g.shape[:2], product(g.shape[2:]), STATUS)


# --- sequence_unpad ---------------------------------------------------------------------------------------------------


@op(
    "sequence_unpad",
    faces=[Face("", "x length! name")],
    traits=[ReportsData()],
    inputs="X Length? Offsets? Rows?",
    differentiable="X",
    samples=[
        Sample({"X": (3, 4, 2), "Offsets": fixed([0, 3, 3, 7]), "Rows": fixed([0] * 7)}, name="one empty"),
        Sample({"X": (1, 1, 1), "Offsets": fixed([0, 1]), "Rows": fixed([0])}, name="one element"),
    ],
)
def sequence_unpad(
    x: TensorType, length: TensorType | None, offsets: TensorType | None, rows: TensorType | None
) -> TensorType:
    """Take the first rows of every sequence out of a block.

    Args:
        X: [sequences, time, ...] any element type.
        Length: rows of each, int64 [sequences]: fed, or of sequence_pad.
        Offsets: of the sequences, int64 [sequences + 1].
        Rows: its length is the number of rows, int64.

    Returns:
        Out: [rows, ...] element type of X, with sequences.

    Raises:
        PeError: X has less than two axes; Length is computed in the step; while running, a length above X's time.

    Source:
        fluid.layers.sequence_unpad.
    """
    del length
    if len(x.shape) < 2:
        raise PeError(f"sequence_unpad needs X [sequences, time, ...], got {x}")
    count = sequence_count(offsets)
    if count >= 0 and x.shape[0] not in (-1, count):
        raise PeError(f"sequence_unpad: X has {x.shape[0]} sequences, but Length has {count} numbers")
    return x.with_shape(row_count(rows), *x.shape[2:])


def checked_offsets(lengths: Indices) -> Indices:
    """Return the offsets of sequences, of their lengths.

    Raises:
        PeError: one is below 0.
    """
    if np.min(lengths, initial=0) < 0:
        raise PeError(f"Length has {np.min(lengths)}", hint="lengths are at least 0")
    return offsets_of(lengths)


def _row_numbers(offsets: Indices) -> Indices:
    return np.zeros(int(offsets[-1]), np.int64)


@sequence_unpad.sequences("Offsets Rows", values="Length")
def sequence_unpad_lod(s: LodRequest) -> None:
    """Lengths become sequences."""
    offsets = s.derive(checked_offsets, s.host("Length"))
    s.give("Offsets", offsets)
    s.give("Rows", s.derive(_row_numbers, offsets))
    s.out("Out", offsets)
    s.leave_out("Length")


@sequence_unpad.lower("cpu")
def sequence_unpad_cpu(o: Lowering) -> None:
    """Row by row."""
    x = o.input("X")
    o.call(
        unpad_sequences, x, o.input("Offsets"), o.output("Out"), *x.shape[:2], product(x.shape[2:]), STATUS,
        dtype=MOVED_AS[DTYPES[x.dtype]],
    )  # fmt: skip


@kernel
def zero(out: Ptr):
    """out[0] = 0."""
    out[0] = T(0)


@sequence_unpad.grad(uses="Offsets").lower("cpu")
def sequence_unpad_grad_cpu(o: Lowering) -> None:
    """Rows go back to their places; the gradient behind the ends is 0."""
    # Padding the gradient of the rows with 0 gives that of the block.
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    nothing, lengths = o.scratch(1, g.dtype), o.scratch(dx.shape[0], "int64")
    # The value behind the ends, 0, is read through a pointer, since forward can fill with any row of values.
    o.call(zero, nothing)
    n = product(dx.shape[2:])
    o.call(pad_sequences, g, nothing, o.input("Offsets"), dx, lengths, *dx.shape[:2], n, 1, STATUS)


# --- sequence_mask ----------------------------------------------------------------------------------------------------


@kernel
def mask_rows(x: PtrI64, out: Ptr, count: Int, high: Int):
    """out[i, t] = 1 where t < x[i], else 0."""
    for i in range(count):
        for t in range(high):
            # Lengths above maxlen mark all steps, and negative ones mark none: nothing has to be checked.
            out[i * high + t] = T(1) if t < x[i] else T(0)


@op(
    "sequence_mask",
    traits=[FedSizes({"Maxlen": "maxlen"})],
    inputs="X Longest? Maxlen?",
    outputs="Y",
    differentiable="",
    attrs={
        "maxlen": Attr(-1, "steps of the mask; -1 for the largest of X"),
        "out_dtype": Attr("int64", "element type of the mask"),
    },
    samples=[
        Sample({"X": fixed([3, 0, 5])}, {"maxlen": 4, "out_dtype": "float32"}, "lengths below and above"),
        Sample({"X": fixed([[2], [1]]), "Longest": fixed([0, 0])}, name="as long as the longest"),
        Sample({"X": fixed([])}, {"maxlen": 3, "out_dtype": "bool"}, "no lengths"),
    ],
)
def sequence_mask(
    x: TensorType, longest: TensorType | None, fed: TensorType | None = None, *, maxlen: int, out_dtype: str
) -> TensorType:
    """Mark the steps that sequences of given lengths have.

    Y[..., t] = 1 where t < X[...], else 0.

    Args:
        X: [...] int64; lengths.
        maxlen: steps of the mask; -1: the largest of X, over all devices, which is then fed or of sequence_pad.
        out_dtype: element type of the mask.
        Longest: its length is the largest of X, int64.
        Maxlen: [1] integer, instead of the attribute: only known in the step.

    Returns:
        Y: [..., maxlen] of out_dtype.

    Raises:
        PeError: X is not int64, or maxlen is 0 or below -1; without maxlen, X is computed in the step.

    Source:
        fluid.layers.sequence_mask.
    """
    if x.dtype != "int64" or maxlen == 0 or maxlen < -1:
        raise PeError(f"sequence_mask needs X of int64 and a maxlen of -1 or at least 1, got {x}, {maxlen}")
    steps = -1 if fed is not None else maxlen if maxlen > 0 else row_count(longest)
    return TensorType((*x.shape, steps), check_dtype(out_dtype))


@sequence_mask.sequences("Longest", values="X")
def sequence_mask_lod(s: LodRequest) -> None:
    """Lengths have no sequences."""
    if s.attrs["maxlen"] < 0 and not s.inputs.get("Maxlen"):
        s.give("Longest", s.derive(longest, s.host("X"), common=True))
    s.out("Y", *s.lod("X"))


@sequence_mask.lower("cpu")
def sequence_mask_cpu(o: Lowering) -> None:
    """One loop."""
    x, out = o.input("X"), o.output("Y")
    # A bool is a byte of 0 or 1 here, which kernels write as uint8.
    dtype = out.dtype if out.dtype != "bool" else "uint8"
    o.call(mask_rows, x, out, product(x.shape), out.shape[-1], dtype=dtype)


deal(pad_sequences, unpad_sequences, mask_rows)
also_on_cuda(sequence_pad, sequence_unpad, sequence_mask)
