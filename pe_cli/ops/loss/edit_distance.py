"""edit_distance: how many insertions, deletions and replacements turn one sequence into another."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, PtrF32, PtrI64, Status, helper, kernel
from pe_cli.kernels.status_codes import EMPTY_SEQUENCE, TOO_LONG
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed, sequence_count
from pe_cli.ops.define.lowering import STATUS, Lowering, Numbers
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData
from pe_cli.ops.sequence.crf import begin_of, length_of


@helper
def keep(ids, begin, size, ignored, tokens, out):
    """Copy the ids of a sequence that are not ignored, and return their number."""
    n = 0
    for i in range(size):
        kept = 1
        for k in range(tokens):
            if ignored[k] == ids[begin + i]:
                kept = 0
        if kept:
            out[n] = ids[begin + i]
            n += 1
    return n


@kernel
def distances(
    x: PtrI64, y: PtrI64, x_bounds: PtrI64, y_bounds: PtrI64, ignored: PtrI64, out: PtrF32, number: PtrI64, left: PtrI64,
    right: PtrI64, row: PtrI64, count: Int, x_high: Int, y_high: Int, tokens: Int, normalized: Int, status: Status,
):
    """out[s] = the distance of both sequences s, without ignored ids; left, right and row hold a sequence each and one more."""
    number[0] = count
    for s in range(count):
        # Both lengths are checked before either sequence is copied: a wrong one would be read beyond its row.
        for side in range(2):
            high = x_high if side == 0 else y_high
            size = length_of(s, x_bounds if side == 0 else y_bounds, high)
            if high > 0 and (size > high or size < 0):
                status[1] = s
                status[2] = size
                status[3] = high
                status[0] = TOO_LONG
                return
        m = keep(x, begin_of(s, x_bounds, x_high), length_of(s, x_bounds, x_high), ignored, tokens, left)
        n = keep(y, begin_of(s, y_bounds, y_high), length_of(s, y_bounds, y_high), ignored, tokens, right)
        # The original refuses an empty reference, too: there is nothing to divide by.
        if normalized and n == 0:
            status[1] = s
            status[0] = EMPTY_SEQUENCE
            return
        # One row of the table is enough: `corner` remembers the entry above to the left.
        for j in range(n + 1):
            row[j] = j
        for i in range(m):
            corner = row[0]
            row[0] = i + 1
            for j in range(n):
                change = corner + (0 if left[i] == right[j] else 1)
                corner = row[j + 1]
                row[j + 1] = min(change, min(corner, row[j]) + 1)
        out[s] = row[n] / n if normalized else row[n]


_X = {"Hyps": fixed([[1], [2], [3], [4]]), "HypsOffsets": fixed([0, 3, 4])}
_Y = {"Refs": fixed([[1], [3], [2]]), "RefsOffsets": fixed([0, 2, 3])}


@op(
    "edit_distance",
    traits=[ReportsData()],
    inputs="Hyps Refs HypsLength? RefsLength? HypsOffsets? RefsOffsets?",
    outputs="Out SequenceNum",
    differentiable="",
    attrs={
        "normalized": Attr(True, "divide by the length of the second sequence"),
        "ignored_tokens": Attr([], "ids that count in neither sequence"),
    },
    samples=[
        Sample({**_X, **_Y}, name="sequences"),
        Sample({**_X, **_Y}, {"normalized": False, "ignored_tokens": [1]}, "without an id, not divided"),
        Sample(
            {"Hyps": fixed([[1, 2]]), "Refs": fixed([[1, 2, 3]]), "HypsLength": fixed([1]), "RefsLength": fixed([3])},
            name="blocks",
        ),
    ],
)
def edit_distance(
    x: TensorType, y: TensorType, x_length: TensorType | None, y_length: TensorType | None,
    x_offsets: TensorType | None, y_offsets: TensorType | None, *, normalized: bool, ignored_tokens: list[int],
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Count the insertions, deletions and replacements that turn every sequence of Hyps into that of Refs.

    Args:
        Hyps, Refs: [rows, 1] int64, both with sequences, as many; or [sequences, time] with lengths.
        HypsLength, RefsLength: rows of each sequence, int64 [sequences].
        HypsOffsets, RefsOffsets: of the sequences, int64 [sequences + 1].

    Returns:
        Out: [sequences, 1] float32.
        SequenceNum: [1] int64; their number.

    Raises:
        PeError: other types, or other numbers of sequences; while running, a length above time, or an empty sequence
            to divide by.

    Source:
        fluid.layers.edit_distance; Levenshtein 1966.
    """
    del normalized, ignored_tokens
    if {x.dtype, y.dtype} != {"int64"}:
        raise PeError(f"edit_distance needs int64 ids, got {x} and {y}", hint="cast them to int64")
    counts = [sequence_count(x_offsets), sequence_count(y_offsets)]
    if x_length is not None and y_length is not None:
        if len(x.shape) < 2 or len(y.shape) < 2:
            raise PeError(f"edit_distance with lengths needs [sequences, time], got {x} and {y}")
        counts = [x.shape[0], y.shape[0]]
        for ids, length in ((x, x_length), (y, y_length)):
            if length.dtype != "int64" or (-1 not in (length.size, ids.shape[0]) and length.size != ids.shape[0]):
                raise PeError(f"edit_distance: lengths are {length}, but should be int64, one per sequence of {ids}")
    if -1 not in counts and counts[0] != counts[1]:
        raise PeError(f"edit_distance: there are {counts[0]} and {counts[1]} sequences", hint="one for each")
    return TensorType((max(counts), 1), "float32"), TensorType((1,), "int64")


@edit_distance.sequences("HypsOffsets RefsOffsets")
def edit_distance_lod(s: LodRequest) -> None:
    """One number per sequence."""
    if not s.inputs.get("HypsLength"):
        s.give("HypsOffsets", s.offsets("Hyps"))
        s.give("RefsOffsets", s.offsets("Refs"))
        s.out("Out", *s.need("Hyps")[:-1])


@edit_distance.lower("cpu")
def edit_distance_cpu(o: Lowering) -> None:
    """One row of the table at a time."""
    x, y, out = o.input("Hyps"), o.input("Refs"), o.output("Out")
    block = o.has("HypsLength")
    x_bounds, y_bounds = (o.input(f"{n}{'Length' if block else 'Offsets'}") for n in ("Hyps", "Refs"))
    highs = (x.shape[1], y.shape[1]) if block else (0, 0)
    number = o.output_or_scratch("SequenceNum", 1, "int64")
    ignored = tuple(int(v) for v in o.attrs["ignored_tokens"])
    # Lengths are known in the step alone, so the work rows have room for one sequence that holds everything.
    work = [o.scratch(n + 1, "int64") for n in (x.size, y.size, y.size)]
    o.call(
        distances, x, y, x_bounds, y_bounds, Numbers(ignored or (0,)), out, number, *work, out.shape[0], *highs,
        len(ignored), int(o.attrs["normalized"]), STATUS,
    )  # fmt: skip


# Not dealt: all sequences use the same rows of work, so that one thread takes them in turn.
also_on_cuda(edit_distance)
not_in_onnx(LOSS, "edit_distance")
