"""Ops that take rows of a tensor in another order or number: sequence_expand, sequence_expand_as, sequence_reverse, sequence_slice.

Which row goes where follows from offsets alone, so an index is made before the step, and the ops are copies of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType, product
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import (
    Indices,
    LodRequest,
    fixed,
    lengths_of,
    offsets_of,
    owners,
    ranges,
    row_count,
    sequence_count,
)
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.define.traits import ReportsData
from pe_cli.ops.tensor.gather import add_rows, take_rows


def copies_rows(*definitions: OpDef) -> None:
    """Lower ops as Out[i] = X[Index[i]], and their gradients."""
    for definition in definitions:

        @definition.lower("cpu")
        def forward(o: Lowering) -> None:
            x, index, out = o.input("X"), o.input("Index"), o.output("Out")
            dtype, n = MOVED_AS[DTYPES[x.dtype]], product(x.shape[1:])
            o.call(take_rows, x, index, out, x.shape[0], index.size, n, STATUS, dtype=dtype)

        @definition.grad(uses="Index").lower("cpu")
        def backward(o: Lowering) -> None:
            index, out = o.input("Index"), o.output("X@GRAD")
            # A row may be copied several times or never: gradients are added to zeros.
            o.call(fill, out, out.size, 0.0)
            o.call(add_rows, o.input("Out@GRAD"), index, out, out.shape[0], index.size, product(out.shape[1:]))

        also_on_cuda(definition)


def _rows(name: str, x: TensorType, index: TensorType | None) -> TensorType:
    if not x.shape:
        raise PeError(f"{name} needs X [rows, ...], got a scalar")
    return x.with_shape(row_count(index), *x.shape[1:])


def _check_count(name: str, x: TensorType, offsets: TensorType | None) -> None:
    count = sequence_count(offsets)
    if count >= 0 and x.shape[0] not in (-1, count):
        raise PeError(f"{name}: X has {x.shape[0]} rows, but Y has {count} sequences", hint="one row per sequence")


# --- sequence_expand --------------------------------------------------------------------------------------------------


def _checked(ref: Indices, offsets: Indices) -> Indices:
    if len(ref) != len(offsets):
        raise PeError(f"X has {len(offsets) - 1} sequences, but Y has {len(ref) - 1}", hint="one for each")
    return lengths_of(ref)


def _repeat_sequences(ref: Indices, offsets: Indices) -> Indices:
    times = _checked(ref, offsets)
    # `ranges` lists the rows of every repetition, one repetition after the other: [a b] twice becomes a b a b.
    return ranges(np.repeat(offsets[:-1], times), np.repeat(lengths_of(offsets), times))


def _repeat_offsets(ref: Indices, offsets: Indices) -> Indices:
    return offsets_of(np.repeat(lengths_of(offsets), _checked(ref, offsets)))


@op(
    "sequence_expand",
    faces=[Face("", "x y! ref_level name")],
    traits=[ReportsData()],
    inputs="X Y? Index? Offsets?",
    differentiable="X",
    attrs={"ref_level": Attr(-1, "level of Y's sequences, 0 the outermost, -1 the innermost")},
    samples=[
        Sample({"X": (3, 2), "Index": fixed([0, 0, 2, 2, 2])}, name="rows twice, not at all and three times"),
        Sample({"X": (4, 1), "Index": fixed([0, 1, 0, 1, 2, 3])}, name="sequences"),
        Sample({"X": (2, 3), "Index": fixed([])}, name="no rows"),
    ],
)
def sequence_expand(
    x: TensorType, y: TensorType | None, index: TensorType | None, offsets: TensorType | None, *, ref_level: int
) -> TensorType:
    """Repeat every sequence of X, or every row where X has plain rows, as often as Y's sequence at its place is long.

    Args:
        X: [rows, ...] any element type; plain, or with one level of sequences. With more levels, its rows count as plain.
        Y: only its sequences count.
        ref_level: which level of them.
        Index: row of X for every row of Out, int64 [rows of Out].
        Offsets: of Y's sequences, int64 [sequences + 1], where X has plain rows.

    Returns:
        Out: [rows of Out, ...] element type of X; with sequences where X has.

    Raises:
        PeError: Y has no sequences, no such level, or not as many as X has.

    Source:
        fluid.layers.sequence_expand.
    """
    del y, ref_level
    _check_count("sequence_expand", x, offsets)
    return _rows("sequence_expand", x, index)


@sequence_expand.sequences("Index Offsets")
def sequence_expand_lod(s: LodRequest) -> None:
    """The lengths of Y's sequences say how often.

    Raises:
        PeError: Y has no such level.
    """
    levels, own, wanted = s.need("Y"), s.lod("X"), s.attrs["ref_level"]
    if not -1 <= wanted < len(levels):
        raise PeError(
            f"sequence_expand: ref_level is {wanted}, but Y has {len(levels)} levels", hint="-1 is the innermost"
        )
    # -1 is Python's last index, and the innermost level is last.
    ref = levels[wanted]
    if len(own) == 1:
        s.give("Index", s.derive(_repeat_sequences, ref, own[0]))
        s.out("Out", s.derive(_repeat_offsets, ref, own[0]))
    else:
        # `owners` names for every row of Y its sequence, which is the number of the row of X to copy.
        s.give("Index", s.derive(owners, ref))
        s.give("Offsets", ref)
    s.leave_out("Y")


# --- sequence_expand_as -----------------------------------------------------------------------------------------------


@op(
    "sequence_expand_as",
    faces=[Face("", "x y! name")],
    traits=[ReportsData()],
    inputs="X Y? Index? Offsets?",
    differentiable="X",
    samples=[
        Sample({"X": (3, 2), "Index": fixed([0, 0, 2])}, name="rows twice, not at all and once"),
        Sample({"X": (1, 1), "Index": fixed([0])}, name="one element"),
    ],
)
def sequence_expand_as(
    x: TensorType, y: TensorType | None, index: TensorType | None, offsets: TensorType | None
) -> TensorType:
    """Repeat every row of X as often as the sequence of Y at its place is long.

    Args:
        X: [sequences of Y, ...] any element type.
        Y: only its innermost sequences count.
        Index: row of X for every row of Out, int64 [rows of Y].
        Offsets: of Y's innermost sequences, int64 [sequences + 1].

    Returns:
        Out: [rows of Y, ...] element type of X, sequences of Y.

    Raises:
        PeError: Y has no sequences, or X has not one row for each.

    Source:
        fluid.layers.sequence_expand_as.
    """
    del y
    _check_count("sequence_expand_as", x, offsets)
    return _rows("sequence_expand_as", x, index)


@sequence_expand_as.sequences("Index Offsets")
def sequence_expand_as_lod(s: LodRequest) -> None:
    """Rows of a sequence are copies of one row."""
    levels = s.need("Y")
    # The offsets serve the check that X has one row for each sequence; the index alone cannot tell.
    s.give("Index", s.derive(owners, levels[-1]))
    s.give("Offsets", levels[-1])
    s.out("Out", *levels)
    s.leave_out("Y")


# --- sequence_reverse -------------------------------------------------------------------------------------------------


def reversed_rows(offsets: Indices) -> Indices:
    """Return the row at the same distance from the other end of its sequence, for each row."""
    lengths = lengths_of(offsets)
    # A row and its mirror image add up to begin + end - 1.
    return np.repeat(offsets[1:] + offsets[:-1] - 1, lengths) - np.arange(offsets[-1])


@op(
    "sequence_reverse",
    faces=[Face("", "x name")],
    traits=[ReportsData()],
    inputs="X Index?",
    outputs="Y",
    differentiable="X",
    samples=[
        Sample({"X": (4, 3), "Index": fixed([2, 1, 0, 3])}, name="two sequences"),
        Sample({"X": (0, 3), "Index": fixed([])}, name="no rows"),
    ],
)
def sequence_reverse(x: TensorType, index: TensorType | None) -> TensorType:
    """Reverse the rows of every sequence.

    Args:
        X: [rows, ...] any element type, with sequences.
        Index: row of X for every row of Y, int64 [rows].

    Returns:
        Y: type and sequences of X.

    Raises:
        PeError: X has no sequences.

    Source:
        fluid.layers.sequence_reverse.
    """
    del index
    if not x.shape:
        raise PeError("sequence_reverse needs X [rows, ...], got a scalar")
    return x


@sequence_reverse.sequences("Index")
def sequence_reverse_lod(s: LodRequest) -> None:
    """Rows stay in their sequence."""
    s.give("Index", s.derive(reversed_rows, s.offsets("X")))
    s.out("Y", *s.need("X"))


@sequence_reverse.lower("cpu")
def sequence_reverse_cpu(o: Lowering) -> None:
    """Row by row."""
    x, index = o.input("X"), o.input("Index")
    dtype, n = MOVED_AS[DTYPES[x.dtype]], product(x.shape[1:])
    o.call(take_rows, x, index, o.output("Y"), x.shape[0], index.size, n, STATUS, dtype=dtype)


@sequence_reverse.grad(uses="Index").lower("cpu")
def sequence_reverse_grad_cpu(o: Lowering) -> None:
    """The same rows, taken back: an order that is reversed twice is the first one."""
    # A gather for a gather: no row is copied twice, so nothing has to be cleared or added.
    g, index = o.input("Y@GRAD"), o.input("Index")
    dtype, n = MOVED_AS[DTYPES[g.dtype]], product(g.shape[1:])
    o.call(take_rows, g, index, o.output("X@GRAD"), g.shape[0], index.size, n, STATUS, dtype=dtype)


# --- sequence_slice ---------------------------------------------------------------------------------------------------


def _slices(offsets: Indices, begins: Indices, lengths: Indices) -> tuple[Indices, Indices]:
    # Fed with an axis of 1 in fluid's examples, and without it elsewhere: both are one number per sequence.
    begin, length, whole = np.ravel(begins), np.ravel(lengths), lengths_of(offsets)
    if not len(begin) == len(length) == len(whole):
        raise PeError(f"X has {len(whole)} sequences, but Offset has {len(begin)} numbers and Length {len(length)}")
    bad = np.flatnonzero((begin < 0) | (length < 0) | (begin + length > whole))
    if len(bad):
        k = int(bad[0])
        what = f"sequence {k} has {whole[k]} rows, but the slice takes {length[k]} from {begin[k]} on"
        raise PeError(what, hint="a slice lies inside its sequence")
    return begin, length


def _slice_rows(offsets: Indices, begins: Indices, lengths: Indices) -> Indices:
    begin, length = _slices(offsets, begins, lengths)
    return ranges(offsets[:-1] + begin, length)


def _slice_offsets(offsets: Indices, begins: Indices, lengths: Indices) -> Indices:
    return offsets_of(_slices(offsets, begins, lengths)[1])


@op(
    "sequence_slice",
    faces=[Face("", "input offset! length! name")],
    traits=[ReportsData()],
    inputs="X Offset? Length? Index?",
    differentiable="X",
    samples=[
        Sample({"X": (5, 2), "Index": fixed([1, 2, 4])}, name="rows from two sequences"),
        Sample({"X": (2, 2), "Index": fixed([])}, name="no rows"),
    ],
)
def sequence_slice(
    x: TensorType, offset: TensorType | None, length: TensorType | None, index: TensorType | None
) -> TensorType:
    """Take some neighbouring rows of every sequence.

    Args:
        X: [rows, ...] any element type, with sequences.
        Offset: first row of each, from 0 in its sequence; int32 or int64, one number per sequence.
        Length: rows of each; int32 or int64, one number per sequence.
        Index: row of X for every row of Out, int64 [rows of Out].

    Returns:
        Out: [rows of Out, ...] element type of X; sequences of the lengths in Length.

    Raises:
        PeError: X has no sequences; Offset and Length are neither fed nor constant; before a step, a slice that leaves
            its sequence.

    Source:
        fluid.layers.sequence_slice.
    """
    del offset, length
    return _rows("sequence_slice", x, index)


@sequence_slice.sequences("Index", values="Offset Length")
def sequence_slice_lod(s: LodRequest) -> None:
    """New sequences, as many as before."""
    sources: Sequence[str] = (s.offsets("X"), s.host("Offset"), s.host("Length"))
    s.give("Index", s.derive(_slice_rows, *sources))
    s.out("Out", *s.need("X")[:-1], s.derive(_slice_offsets, *sources))
    s.leave_out("Offset", "Length")


copies_rows(sequence_expand, sequence_expand_as, sequence_slice)
also_on_cuda(sequence_reverse)
