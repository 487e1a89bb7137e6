"""Which true box belongs to which prior: bipartite_match, target_assign."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrF32, PtrI32, PtrI64, PtrU8, Real, Status, T, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, offsets_of, sequence_count
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData


def _all_rows() -> Indices:
    # -1 stands for the number of rows, which may be known in the step only: kernels put it in.
    return offsets_of([-1])


def give_offsets(s: LodRequest, slot: str, to: str) -> None:
    """Fill a slot with the offsets of an input's innermost sequences; plain rows are one sequence, which ends at -1."""
    levels = s.lod(slot)
    s.give(to, levels[-1] if levels else s.derive(_all_rows))


# --- bipartite_match --------------------------------------------------------------------------------------------------


@kernel
def match_boxes(  # noqa: C901, PLR0912 (loops over images, rounds, columns and rows)
    x: Ptr, offsets: PtrI64, where: PtrI32, far: Ptr, taken: PtrI64, images: Int, rows: Int, m: Int, each: Int, least: Real,
):  # fmt: skip
    """where[i, j] = row that column j of image i is matched with, far = its entry of x; with each, the others take their best row."""
    for i in range(images):
        a = offsets[i]
        b = offsets[i + 1] if offsets[i + 1] >= 0 else rows
        for j in range(m):
            where[i * m + j] = -1
            far[i * m + j] = T(0)
        # Globally greedy: the best pair of all that are left goes first, and its row and column leave.
        for r in range(a, b):
            taken[r] = 0
        # At most one match for every row; the loop ends before where no pair is left that overlaps.
        for _ in range(a, b):
            best = T(-1)
            row = -1
            column = -1
            for j in range(m):
                if where[i * m + j] >= 0:
                    continue
                for r in range(a, b):
                    v = x[r * m + j]
                    # 1e-6 is the original's limit below which boxes do not overlap.
                    if taken[r] == 0 and v >= 1e-6 and v > best:
                        best = v
                        row = r
                        column = j
            if row < 0:
                break
            taken[row] = 1
            where[i * m + column] = row - a
            far[i * m + column] = best
        # What is left over goes to its best row, which may then have several columns.
        if each:
            for j in range(m):
                if where[i * m + j] >= 0:
                    continue
                best = T(-1)
                for r in range(a, b):
                    v = x[r * m + j]
                    if v >= 1e-6 and v >= least and v > best:
                        best = v
                        where[i * m + j] = r - a
                        far[i * m + j] = best


def _parts(*shape: int):
    return lambda rng: rng.uniform(0, 1, shape)


@op(
    "bipartite_match",
    inputs="DistMat Offsets?",
    outputs="ColToRowMatchIndices ColToRowMatchDist",
    attrs={
        "match_type": Attr("bipartite", "what else columns are matched with", ("bipartite", "per_prediction")),
        "dist_threshold": Attr(0.5, "least entry that per_prediction takes"),
    },
    differentiable="",
    samples=[
        Sample({"DistMat": _parts(5, 4), "Offsets": fixed([0, 2, 5])}, name="two images"),
        Sample(
            {"DistMat": _parts(3, 7), "Offsets": fixed([0, 3])}, {"match_type": "per_prediction", "dist_threshold": 0.3}, "per prediction"
        ),
        Sample({"DistMat": _parts(2, 3), "Offsets": fixed([0, 0, 2])}, name="an image without rows"),
    ],
)
def bipartite_match(x: TensorType, offsets: TensorType | None, *, match_type: str, dist_threshold: float) -> tuple[TensorType, TensorType]:
    """Match columns with rows, greedily: the largest entry first, then the largest of the other rows and columns, and so on.

    With match_type per_prediction a column that is left over takes the row of its largest entry, if that is at least dist_threshold.
    Entries below 1e-6 match nothing.

    Args:
        DistMat: [rows, columns] float32 or float64: the larger, the nearer; one sequence of rows for each image.
        Offsets: int64 [images + 1]: where the rows of each image begin.

    Returns:
        ColToRowMatchIndices: int32 [images, columns]: row of the column's image, -1 for none.
        ColToRowMatchDist: [images, columns] element type of DistMat: the entry, 0 for none.

    Raises:
        PeError: DistMat is no matrix.

    Source:
        fluid.layers.bipartite_match.
    """
    del match_type, dist_threshold
    if len(x.shape) != 2:
        raise PeError(f"bipartite_match needs DistMat [rows, columns], got {x}", hint="reshape it")
    out = x.with_shape(sequence_count(offsets), x.shape[1])
    return TensorType(out.shape, "int32"), out


@bipartite_match.sequences("Offsets")
def bipartite_match_lod(s: LodRequest) -> None:
    """An image for each sequence."""
    give_offsets(s, "DistMat", "Offsets")


@bipartite_match.lower("cpu")
def bipartite_match_cpu(o: Lowering) -> None:
    """Image by image."""
    x, out = o.input("DistMat"), o.output("ColToRowMatchIndices")
    taken = o.scratch(max(x.shape[0], 1), "int64")
    each, least = int(o.attrs["match_type"] == "per_prediction"), o.attrs["dist_threshold"]
    if out.size:
        o.call(match_boxes, x, o.input("Offsets"), out, o.output("ColToRowMatchDist"), taken, out.shape[0], *x.shape, each, least)


# --- target_assign ----------------------------------------------------------------------------------------------------


@kernel
def assign_targets(
    x: Ptr, match: PtrI32, offsets: PtrI64, out: Ptr, weight: PtrF32, images: Int, P: Int, rows: Int, PX: Int, K: Int, other: Int,
    status: Status,
):  # fmt: skip
    """out = row of x that each column is matched with, weight = 1; else out = other, weight = 0."""
    for e in range(images * P):
        i = e // P
        # X may have one target for all columns (PX is 1) or one for each; the remainder by PX serves both.
        row = match[e]
        if row < 0:
            for k in range(K):
                out[e * K + k] = T(other)
            weight[e] = 0.0
            continue
        end = offsets[i + 1] if offsets[i + 1] >= 0 else rows
        at = offsets[i] + row
        if at >= end:
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, e, row, end - offsets[i]
            # Only this column is left out: the run stops at the status, and the other outputs are defined whatever the order of threads.
            continue
        for k in range(K):
            out[e * K + k] = x[(at * PX + (e % P) % PX) * K + k]
        weight[e] = 1.0


@kernel
def assign_negatives(
    negative: PtrI32, offsets: PtrI64, out: Ptr, weight: PtrF32, images: Int, P: Int, rows: Int, K: Int, other: Int, status: Status
):
    """out = other and weight = 1 at listed columns."""
    for i in range(images):
        end = offsets[i + 1] if offsets[i + 1] >= 0 else rows
        for n in range(offsets[i], end):
            column = negative[n]
            if column < 0 or column >= P:
                status[0], status[1], status[2], status[3] = OUT_OF_RANGE, n, column, P
                continue
            for k in range(K):
                out[(i * P + column) * K + k] = T(other)
            weight[i * P + column] = 1.0


@kernel
def assign_masked(mask: PtrU8, out: Ptr, weight: PtrF32, n: Int, K: Int, other: Int):
    """out = other and weight = 1 where a mask is set."""
    for e in range(n):
        if mask[e]:
            for k in range(K):
                out[e * K + k] = T(other)
            weight[e] = 1.0


_MATCH = {"MatchIndices": lambda rng: np.array([[0, -1, 1], [2, 0, -1]], "int32"), "Offsets": fixed([0, 2, 5])}


@op(
    "target_assign",
    traits=[ReportsData()],
    inputs="X MatchIndices NegIndices? NegMask? Offsets? NegOffsets?",
    outputs="Out OutWeight",
    attrs={"mismatch_value": Attr(0, "target of columns that are matched with nothing")},
    differentiable="",
    samples=[
        Sample({"X": (5, 3, 4), **_MATCH}, {"mismatch_value": 7}, "a target for each column"),
        Sample({"X": (5, 1, 2), **_MATCH, "NegMask": lambda rng: rng.integers(0, 2, (2, 3)).astype(bool)}, name="one for all columns"),
    ],
)
def target_assign(
    x: TensorType,
    match: TensorType,
    negative: TensorType | None,
    mask: TensorType | None,
    offsets: TensorType | None,
    negative_offsets: TensorType | None,
    *,
    mismatch_value: int,
) -> tuple[TensorType, TensorType]:
    """Give every column the target of the row that it is matched with; negative columns count, too, with mismatch_value.

    Args:
        X: [rows, columns or 1, size] any number type: targets, a sequence of rows for each image.
        MatchIndices: [images, columns] int32: row of the image, -1 for none.
        NegIndices: [negatives, 1] int32: columns, a sequence for each image.
        NegMask: [images, columns] bool: negative columns.
        Offsets: int64 [images + 1]: where the rows of each image begin.
        NegOffsets: int64 [images + 1]: where its negatives begin.

    Returns:
        Out: [images, columns, size] element type of X.
        OutWeight: [images, columns, 1] float32: 1 for matched and negative columns, else 0.

    Raises:
        PeError: shapes or dtypes that do not fit; while running, a row or a column that is not there.

    Source:
        fluid.layers.target_assign.
    """
    del mismatch_value, negative_offsets
    if len(x.shape) != 3 or len(match.shape) != 2 or match.dtype != "int32":
        raise PeError(f"target_assign needs X [rows, columns, size] and MatchIndices [images, columns] int32, got {x} and {match}")
    if x.shape[1] not in (1, -1, match.shape[1]) and match.shape[1] != -1:
        raise PeError(f"target_assign: X has {x.shape[1]} columns, but MatchIndices has {match.shape[1]}", hint="as many, or one")
    if negative is not None and negative.dtype != "int32":
        raise PeError(f"target_assign needs NegIndices int32, got {negative}", hint="cast them")
    if mask is not None and (mask.dtype != "bool" or len(mask.shape) != 2):
        raise PeError(f"target_assign needs NegMask [images, columns] bool, got {mask}")
    images = sequence_count(offsets)
    if -1 not in (images, match.shape[0]) and images != match.shape[0]:
        raise PeError(f"target_assign: X has {images} sequences for {match.shape[0]} images", hint="one for each")
    return x.with_shape(*match.shape, x.shape[2]), TensorType((*match.shape, 1), "float32")


@target_assign.sequences("Offsets NegOffsets")
def target_assign_lod(s: LodRequest) -> None:
    """An image for each sequence."""
    give_offsets(s, "X", "Offsets")
    if s.inputs.get("NegIndices"):
        give_offsets(s, "NegIndices", "NegOffsets")


@target_assign.lower("cpu")
def target_assign_cpu(o: Lowering) -> None:
    """Matches, then negatives."""
    x, match, out, weight = o.input("X"), o.input("MatchIndices"), o.output("Out"), o.output("OutWeight")
    images, columns, size = out.shape
    if not out.size:
        return
    # Negatives are written over what the matches left: they have no match, but count in the loss.
    other = o.attrs["mismatch_value"]
    o.call(assign_targets, x, match, o.input("Offsets"), out, weight, images, columns, *x.shape, other, STATUS, dtype=x.dtype)
    if o.inputs("NegIndices"):
        found = o.input("NegIndices")
        o.call(
            assign_negatives, found, o.input("NegOffsets"), out, weight, images, columns, found.size, size, other, STATUS, dtype=x.dtype
        )
    if o.inputs("NegMask"):
        o.call(assign_masked, o.input("NegMask"), out, weight, images * columns, size, other, dtype=x.dtype)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(match_boxes, assign_targets, assign_negatives, assign_masked)
also_on_cuda(bipartite_match, target_assign)
not_in_onnx(TARGETS, "bipartite_match", "target_assign")
