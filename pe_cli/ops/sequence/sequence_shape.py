"""Ops that group rows anew or look at neighbours: sequence_reshape, lod_reset, sequence_enumerate, sequence_scatter."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, Status, T, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import Indices, LodRequest, constant, fixed, lengths_of, offsets_of
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Attr, GradRequest, OpDesc, Sample, op
from pe_cli.ops.define.traits import ReportsData, View

# --- sequence_reshape -------------------------------------------------------------------------------------------------


def _rescaled(offsets: Indices, *, width: int, new_dim: int) -> Indices:
    sizes = lengths_of(offsets) * width
    bad = np.flatnonzero(sizes % new_dim)
    if len(bad):
        k = int(bad[0])
        what = f"sequence {k} has {sizes[k] // width} rows of {width} numbers, which are no rows of {new_dim}"
        raise PeError(what, hint="every sequence's numbers must make whole rows")
    return offsets_of(sizes // new_dim)


@op(
    "sequence_reshape",
    faces=[Face("", "input new_dim!")],
    inputs="X",
    traits=[View({"Out": "X"})],
    attrs={"new_dim": Attr(1, "numbers of a row of Out")},
    samples=[
        Sample({"X": (4, 6)}, {"new_dim": 4}, "shorter rows"),
        Sample({"X": (4, 2)}, {"new_dim": 8}, "longer rows"),
    ],
)
def sequence_reshape(x: TensorType, *, new_dim: int) -> TensorType:
    """Cut the numbers of every sequence into rows of another size.

    Args:
        X: [rows, width] any element type, with sequences.
        new_dim: size of the new rows.

    Returns:
        Out: [rows width / new_dim, new_dim] element type of X, with as many sequences.

    Raises:
        PeError: X has no sequences or not two axes, new_dim is below 1; before a step, a sequence's numbers do not make
            whole rows.

    Source:
        fluid.layers.sequence_reshape.
    """
    if len(x.shape) != 2 or x.shape[1] < 1 or new_dim < 1:
        raise PeError(f"sequence_reshape needs X [rows, width] and new_dim of at least 1, got {x}, {new_dim}")
    size = x.size
    if size >= 0 and size % new_dim:
        raise PeError(f"sequence_reshape: {size} numbers of {x} make no rows of {new_dim}")
    return x.with_shape(-1 if size < 0 else size // new_dim, new_dim)


@sequence_reshape.sequences()
def sequence_reshape_lod(s: LodRequest) -> None:
    """Lengths change by one factor."""
    lod, width = s.need("X"), s.types(s.inputs["X"][0]).shape[1]
    # Outer levels count sequences, not rows, so only the innermost one is scaled.
    s.out("Out", *lod[:-1], s.derive(_rescaled, lod[-1], width=width, new_dim=s.attrs["new_dim"]))


@sequence_reshape.lower("cpu")
def sequence_reshape_cpu(o: Lowering) -> None:
    """The same bytes, or a copy of them."""
    out = o.output("Out")
    o.call(copy, o.input("X"), out, out.size)


@sequence_reshape.make_grad
def sequence_reshape_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient in X's shape."""
    (gradient,) = request.grads.values()
    # Only X's shape is read; `reshape_like` takes X so that a shape known in a step alone is at hand.
    (x,) = request.op.inputs["X"]
    return [OpDesc("reshape_like", {"X": [gradient], "Y": [x]}, {"Out": [n]}) for n in request.wanted.values()]


@op(
    "reshape_like",
    inputs="X Y",
    differentiable="",
    traits=[View({"Out": "X"})],
    samples=[Sample({"X": (4, 6), "Y": (8, 3)}, name="a matrix")],
)
def reshape_like(x: TensorType, y: TensorType) -> TensorType:
    """Give a tensor the shape of another.

    Args:
        X: any.
        Y: of as many elements; only its shape counts.

    Returns:
        Out: shape of Y, element type of X.

    Raises:
        PeError: another number of elements.

    Source:
        numpy.reshape.
    """
    if -1 not in (x.size, y.size) and x.size != y.size:
        raise PeError(f"reshape_like: {x} has not the elements of {y}")
    return x.with_shape(*y.shape)


reshape_like.lower("cpu")(sequence_reshape_cpu)


# --- lod_reset --------------------------------------------------------------------------------------------------------


def _as_offsets(offsets: Indices) -> Indices:
    flat = np.ravel(offsets)
    if not len(flat) or flat[0] != 0 or np.min(np.diff(flat), initial=0) < 0:
        raise PeError(f"offsets start at 0 and do not fall, got {flat.tolist()}")
    return flat


@op(
    "lod_reset",
    inputs="X Y?",
    traits=[View({"Out": "X"})],
    differentiable="X",
    attrs={
        "target_lod": Attr([], "offsets of the new level, where there is no Y"),
        "append": Attr(False, "keep X's levels and put the new one inside them"),
    },
    samples=[Sample({"X": (4, 2)}, {"target_lod": [0, 1, 4]}, "a matrix"), Sample({"X": (1,)}, {"target_lod": [0, 1]}, "one element")],
)
def lod_reset(x: TensorType, y: TensorType | None, *, target_lod: list[int], append: bool) -> TensorType:
    """Group the rows of a tensor into other sequences.

    Args:
        X: [rows, ...] any.
        Y: its sequences are taken; where it has none, its values are the offsets of one level, int32 or int64.
        target_lod: offsets of one level, where there is no Y.
        append: put the new level inside X's levels, whose innermost must count its sequences.

    Returns:
        Out: type and values of X, with the new sequences.

    Raises:
        PeError: neither Y nor target_lod, or Y has neither sequences nor values that are known before a step; before a
            step, offsets that do not fit the rows.

    Source:
        fluid.layers.lod_reset, fluid.layers.lod_append.
    """
    del y, target_lod, append
    if not x.shape:
        raise PeError("lod_reset needs X [rows, ...], got a scalar")
    return x


@lod_reset.sequences(begins=True, values="Y")
def lod_reset_lod(s: LodRequest) -> None:
    """The levels of Y, or the one given.

    Raises:
        PeError: neither Y nor target_lod is given.
    """
    if s.inputs.get("Y"):
        # With `append` only Y's innermost level is new; X's own levels go around it.
        found = s.lod("Y")[-1:] if s.attrs["append"] else s.lod("Y")
        levels = found or (s.derive(_as_offsets, s.host("Y")),)
    elif s.attrs["target_lod"]:
        levels = (s.derive(_as_offsets, s.derive(constant, values=s.attrs["target_lod"])),)
    else:
        raise PeError("lod_reset needs Y or target_lod")
    s.out("Out", *(s.lod("X") if s.attrs["append"] else ()), *levels)
    s.leave_out("Y")


@lod_reset.lower("cpu")
def lod_reset_cpu(o: Lowering) -> None:
    """A copy."""
    x, out = o.input("X"), o.output("Out")
    o.call(copy, x, out, out.size)


@lod_reset.make_grad
def lod_reset_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient passes."""
    (gradient,) = request.grads.values()
    return [OpDesc("assign", {"X": [gradient]}, {"Out": [name]}) for name in request.wanted.values()]


# --- sequence_enumerate -----------------------------------------------------------------------------------------------


@kernel
def windows(x: Ptr, offsets: PtrI64, out: Ptr, count: Int, size: Int, pad: Int):
    """out[r, k] = x[r + k], or pad behind the end of r's sequence."""
    for s in range(count):
        end = offsets[s + 1]
        for r in range(offsets[s], end):
            for k in range(size):
                out[r * size + k] = x[r + k] if r + k < end else T(pad)


@op(
    "sequence_enumerate",
    faces=[Face("", "input win_size! pad_value name")],
    inputs="X Offsets?",
    differentiable="",
    attrs={"win_size": Attr(1, "rows of a window"), "pad_value": Attr(0, "stands behind the end of a sequence")},
    samples=[
        Sample({"X": fixed([[1], [2], [3], [4]]), "Offsets": fixed([0, 3, 4])}, {"win_size": 2, "pad_value": 9}),
        Sample({"X": fixed([5, 6]), "Offsets": fixed([0, 0, 2])}, {"win_size": 3}, "one empty, no axis of 1"),
    ],
)
def sequence_enumerate(x: TensorType, offsets: TensorType | None, *, win_size: int, pad_value: int) -> TensorType:
    """List for every row the ids from it on: windows that end with their sequence.

    Out[r, k] = X[r + k] where that is in the same sequence, else pad_value.

    Args:
        X: [rows, 1] or [rows] int32 or int64, with sequences.
        Offsets: of X's innermost sequences, int64 [sequences + 1].
        win_size: ids of a window.
        pad_value: stands for ids behind the end.

    Returns:
        Out: [rows, win_size] element type and sequences of X.

    Raises:
        PeError: X has no sequences or is of another type, or win_size is below 1.

    Source:
        fluid.layers.sequence_enumerate.
    """
    del offsets, pad_value
    if x.dtype not in ("int32", "int64") or len(x.shape) not in (1, 2) or product(x.shape[1:]) != 1 or win_size < 1:
        raise PeError(f"sequence_enumerate needs X [rows, 1] of int32 or int64 and win_size >= 1, got {x}, {win_size}")
    return x.with_shape(x.shape[0], win_size)


@sequence_enumerate.sequences("Offsets")
def sequence_enumerate_lod(s: LodRequest) -> None:
    """Rows stay."""
    s.give("Offsets", s.offsets("X"))
    s.out("Out", *s.need("X"))


@sequence_enumerate.lower("cpu")
def sequence_enumerate_cpu(o: Lowering) -> None:
    """Sequence by sequence."""
    offsets, attrs = o.input("Offsets"), o.attrs
    o.call(windows, o.input("X"), offsets, o.output("Out"), offsets.size - 1, attrs["win_size"], attrs["pad_value"])


# --- sequence_scatter -------------------------------------------------------------------------------------------------


@kernel
def add_at(ids: PtrU, updates: Ptr, offsets: PtrI64, out: Ptr, count: Int, n: Int, status: Status):
    """out[s, ids[r]] += updates[r] for the rows r of sequence s, in their order."""
    for s in range(count):
        for r in range(offsets[s], offsets[s + 1]):
            at = ids[r]
            if at < 0 or at >= n:
                status[1] = r
                status[2] = at
                status[3] = n
                status[0] = OUT_OF_RANGE
                return
            out[s * n + at] += updates[r]


@kernel
def take_at(g: Ptr, ids: PtrU, offsets: PtrI64, out: Ptr, count: Int, n: Int):
    """out[r] = g[s, ids[r]]; the forward op has checked the ids."""
    for s in range(count):
        for r in range(offsets[s], offsets[s + 1]):
            out[r] = g[s * n + ids[r]]


@op(
    "sequence_scatter",
    faces=[Face("", "input index updates name")],
    traits=[ReportsData()],
    inputs="X Ids Updates Offsets?",
    differentiable="X Updates",
    samples=[
        Sample(
            {"X": (2, 4), "Ids": fixed([[0], [1], [1], [3]]), "Updates": (4, 1), "Offsets": fixed([0, 3, 4])},
            name="an id twice",
        ),
    ],
)
def sequence_scatter(x: TensorType, ids: TensorType, updates: TensorType, offsets: TensorType | None) -> TensorType:
    """Add the numbers of sequence i to row i at places that another sequence names.

    Out = X; Out[i, Ids[r]] += Updates[r] for the rows r of sequence i.

    Args:
        X: [sequences, width] float32 or float64.
        Ids: [rows, 1] int32 or int64, 0 to width - 1, with sequences.
        Updates: [rows, 1] element type of X, sequences of Ids.
        Offsets: of Ids' innermost sequences, int64 [sequences + 1].

    Returns:
        Out: type of X.

    Raises:
        PeError: types that do not fit, or Ids without sequences; while running, an id that is out of range.

    Source:
        fluid.layers.sequence_scatter.
    """
    if len(x.shape) < 2 or ids.dtype not in ("int32", "int64") or updates.dtype != x.dtype:
        raise PeError(
            f"sequence_scatter needs X [sequences, width], int64 Ids and Updates of X's type, got {x}, {ids}, {updates}"
        )
    count = offsets.shape[0] - 1 if offsets is not None else -1
    if count >= 0 and x.shape[0] not in (-1, count):
        raise PeError(f"sequence_scatter: X has {x.shape[0]} rows, but Ids has {count} sequences")
    if -1 not in (ids.shape[0], updates.shape[0]) and ids.size != updates.size:
        raise PeError(f"sequence_scatter: Ids is {ids}, but Updates is {updates}", hint="one update for each id")
    return x


@sequence_scatter.sequences("Offsets")
def sequence_scatter_lod(s: LodRequest) -> None:
    """Rows of X stay."""
    s.give("Offsets", s.offsets("Ids"))
    s.out("Out", *s.lod("X"))


@sequence_scatter.lower("cpu")
def sequence_scatter_cpu(o: Lowering) -> None:
    """A copy, to which is added."""
    x, ids, offsets, out = o.input("X"), o.input("Ids"), o.input("Offsets"), o.output("Out")
    # Added to a copy in the order of the rows: an id that comes twice in a sequence gets both, in the same order on every run.
    o.call(copy, x, out, out.size)
    n = product(out.shape[1:])
    o.call(add_at, ids, o.input("Updates"), offsets, out, offsets.size - 1, n, STATUS)


@sequence_scatter.grad(uses="Ids Offsets").lower("cpu")
def sequence_scatter_grad_cpu(o: Lowering) -> None:
    """X' = Out'; an update's gradient is taken where it was added."""
    g, ids, offsets = o.input("Out@GRAD"), o.input("Ids"), o.input("Offsets")
    if o.has("X@GRAD"):
        o.call(copy, g, o.output("X@GRAD"), g.size)
    if o.has("Updates@GRAD"):
        o.call(take_at, g, ids, offsets, o.output("Updates@GRAD"), offsets.size - 1, product(g.shape[1:]))


deal(windows, add_at, take_at)
also_on_cuda(sequence_reshape, reshape_like, lod_reset, sequence_enumerate, sequence_scatter)
