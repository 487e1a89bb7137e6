"""chunk_eval: how many chunks two taggings have in common."""

# ruff: noqa: C901, PLR0912 - a chunk ends by many rules
from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrF32, PtrI64, Status, helper, kernel
from pe_cli.kernels.status_codes import TOO_LONG
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import report
from pe_cli.ops.define.lod import LodRequest, fixed
from pe_cli.ops.define.lowering import STATUS, Lowering, Numbers
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData
from pe_cli.ops.sequence.crf import begin_of, length_of

#: Scheme -> tags of a kind, and which of them begin a chunk, are inside, end one and are one: -1 for none.
SCHEMES = {"plain": (1, -1, -1, -1, -1), "IOB": (2, 0, 1, -1, -1), "IOE": (2, -1, 0, 1, -1), "IOBES": (4, 0, 1, 2, 3)}


@helper
def _ends(tag, kind, then, then_kind, scheme, other):
    """Return whether a chunk ends between two tags; scheme: tags that begin, are inside, end and are single."""
    if kind == other:
        return 0
    if then_kind == other or then_kind != kind:
        return 1
    # Within one kind, only a new beginning ends what stands at a begin or inside; an end or a single ends by itself.
    if tag == scheme[1] or tag == scheme[2]:
        return 1 if then == scheme[1] or then == scheme[4] else 0
    return 1 if tag == scheme[3] or tag == scheme[4] else 0


@helper
def _begins(tag, kind, then, then_kind, scheme, other):
    """Return whether a chunk begins at the second of two tags."""
    if kind == other:
        return 1 if then_kind != other else 0
    if then_kind == other:
        return 0
    if then_kind != kind:
        return 1
    if then == scheme[1] or then == scheme[4]:
        return 1
    if then == scheme[2] or then == scheme[3]:
        return 1 if tag == scheme[3] or tag == scheme[4] else 0
    return 0


@helper
def _counts_kind(kind, excluded, number):
    """Return whether chunks of a kind count."""
    for i in range(number):
        if excluded[i] == kind:
            return 0
    return 1


@kernel
def count_chunks(
    found: PtrI64, label: PtrI64, bounds: PtrI64, scheme: PtrI64, excluded: PtrI64, shares: PtrF32, counts: PtrI64, count: Int,
    high: Int, kinds: Int, number: Int, status: Status,
):  # fmt: skip
    """counts = chunks of found, of label, and of both alike; shares = precision, recall and F1."""
    tags = scheme[0]
    for i in range(3):
        counts[i] = 0
    for s in range(count):
        begin = begin_of(s, bounds, high)
        size = length_of(s, bounds, high)
        # Offsets (high is 0) are made by the runtime itself; lengths are data of the step, and may be wrong.
        if high > 0 and (size > high or size < 0):
            status[1] = s
            status[2] = size
            status[3] = high
            status[0] = TOO_LONG
            return
        a_tag, a_kind, b_tag, b_kind = -1, kinds, -1, kinds
        a_since, b_since = -1, -1
        # One step more than there are tags: what stands behind the last one is outside of all chunks, and ends one that is still open.
        for t in range(size + 1):
            x_tag, x_kind, y_tag, y_kind = -1, kinds, -1, kinds
            if t < size:
                x, y = found[begin + t], label[begin + t]
                if x < 0 or y < 0 or x > kinds * tags or y > kinds * tags:
                    report(status, begin + t, x if x < 0 or x > kinds * tags else y, kinds * tags + 1)
                    return
                x_tag, x_kind, y_tag, y_kind = x % tags, x // tags, y % tags, y // tags
            a_ends = a_since >= 0 and _ends(a_tag, a_kind, x_tag, x_kind, scheme, kinds)
            b_ends = b_since >= 0 and _ends(b_tag, b_kind, y_tag, y_kind, scheme, kinds)
            if a_ends and _counts_kind(a_kind, excluded, number):
                counts[0] += 1
                # Both chunks end here: they are the same if they also began together and are of one kind.
                if b_ends and a_since == b_since and a_kind == b_kind:
                    counts[2] += 1
            if b_ends and _counts_kind(b_kind, excluded, number):
                counts[1] += 1
            if a_ends:
                a_since = -1
            if b_ends:
                b_since = -1
            if _begins(a_tag, a_kind, x_tag, x_kind, scheme, kinds):
                a_since = t
            if _begins(b_tag, b_kind, y_tag, y_kind, scheme, kinds):
                b_since = t
            a_tag, a_kind, b_tag, b_kind = x_tag, x_kind, y_tag, y_kind
    precision = counts[2] / counts[0] if counts[0] > 0 else 0.0
    recall = counts[2] / counts[1] if counts[1] > 0 else 0.0
    shares[0] = precision
    shares[1] = recall
    # Without a common chunk precision and recall are 0, and their harmonic mean would divide 0 by 0.
    shares[2] = 2.0 * precision * recall / (precision + recall) if counts[2] > 0 else 0.0


_COUNTED = ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
_SHARES = ("Precision", "Recall", "F1-Score")
_TAGGED = {
    "Inference": fixed([[0], [1], [4], [2], [2], [3], [0]]), "Label": fixed([[0], [1], [4], [2], [3], [3], [1]]),
    "Offsets": fixed([0, 4, 4, 7]),
}  # fmt: skip


@op(
    "chunk_eval",
    traits=[ReportsData()],
    inputs="Inference Label SeqLength? Offsets?",
    outputs=" ".join((*_SHARES, *_COUNTED)),
    attrs={
        "num_chunk_types": Attr(1, "kinds of chunks"),
        "chunk_scheme": Attr("IOB", "what tags say", tuple(SCHEMES)),
        "excluded_chunk_types": Attr([], "kinds that do not count"),
    },
    differentiable="",
    samples=[
        Sample(_TAGGED, {"num_chunk_types": 2}, "sequences, one empty"),
        Sample(
            {"Inference": fixed([[0, 1, 2], [2, 3, 0]]), "Label": fixed([[0, 1, 2], [2, 2, 0]]), "SeqLength": fixed([3, 2])},
            {"num_chunk_types": 2, "chunk_scheme": "IOE", "excluded_chunk_types": [0]}, "a block, without one kind",
        ),
    ],
)  # fmt: skip
def chunk_eval(
    found: TensorType, label: TensorType, length: TensorType | None, offsets: TensorType | None, *, num_chunk_types: int,
    chunk_scheme: str, excluded_chunk_types: list[int],
) -> tuple[TensorType, ...]:  # fmt: skip
    """Count the chunks that tags make, and those that two taggings have in common: the same rows, the same kind.

    Tag t is of kind t // n and says t % n, where n is 1 for plain, 2 for IOB (begin, inside) and IOE (inside, end), 4 for IOBES (begin,
    inside, end, single); the tag num_chunk_types n is outside of all chunks.

    Args:
        Inference, Label: int64, [rows, 1] with sequences, or [sequences, time] with SeqLength.
        SeqLength: rows of each sequence, int64.
        Offsets: of the sequences, int64 [sequences + 1].
        num_chunk_types, chunk_scheme, excluded_chunk_types: see the attributes.

    Returns:
        Precision, Recall, F1-Score: [1] float32, from 0 to 1.
        NumInferChunks, NumLabelChunks, NumCorrectChunks: [1] int64.

    Raises:
        PeError: types that do not fit; while running, a tag out of range or a length above time.

    Source:
        fluid.layers.chunk_eval; Ramshaw and Marcus 1995.
    """
    del offsets, chunk_scheme
    same = len(found.shape) == len(label.shape) and all(-1 in p or p[0] == p[1] for p in zip(found.shape, label.shape, strict=True))
    if {found.dtype, label.dtype} != {"int64"} or not same:
        raise PeError(f"chunk_eval needs int64 Inference and Label of one shape, got {found} and {label}", hint="cast them")
    each = length is None or -1 in (length.size, found.shape[0]) or length.size == found.shape[0]
    if length is not None and (length.dtype != "int64" or len(found.shape) < 2 or not each):
        raise PeError(f"chunk_eval needs Inference [sequences, time] and int64 SeqLength of each, got {found} and {length}")
    if num_chunk_types < 1 or not all(0 <= k < num_chunk_types for k in excluded_chunk_types):
        raise PeError(f"chunk_eval: there are {num_chunk_types} kinds, and {excluded_chunk_types} do not count", hint="kinds from 0 on")
    return (*(TensorType((1,), "float32"),) * 3, *(TensorType((1,), "int64"),) * 3)


@chunk_eval.sequences("Offsets")
def chunk_eval_lod(s: LodRequest) -> None:
    """Numbers of all sequences together."""
    if not s.inputs.get("SeqLength"):
        s.give("Offsets", s.offsets("Inference"))


@chunk_eval.lower("cpu")
def chunk_eval_cpu(o: Lowering) -> None:
    """Sequence by sequence."""
    found, a = o.input("Inference"), o.attrs
    block = o.has("SeqLength")
    bounds = o.input("SeqLength" if block else "Offsets")
    count, high = (found.shape[0], found.size // max(1, found.shape[0])) if block else (bounds.size - 1, 0)
    excluded = tuple(a["excluded_chunk_types"])
    # The kernel writes three numbers side by side, but each output is a variable of its own, and any may be missing.
    shares, counts = o.scratch(3), o.scratch(3, "int64")
    o.call(
        count_chunks, found, o.input("Label"), bounds, Numbers(SCHEMES[a["chunk_scheme"]]), Numbers(excluded or (0,)), shares, counts,
        count, high, a["num_chunk_types"], len(excluded), STATUS, dtype="float32",
    )  # fmt: skip
    for slots, source, dtype in ((_SHARES, shares, "float32"), (_COUNTED, counts, "int64")):
        for i, slot in enumerate(slots):
            if o.has(slot):
                o.call(one_of, source, o.output(slot), i, dtype=dtype)


@kernel
def one_of(x: Ptr, out: Ptr, place: Int):
    """out = x[place]."""
    for _ in range(1):
        out[0] = x[place]


# Not dealt: all sequences add to the same three counts.
also_on_cuda(chunk_eval)
not_in_onnx(LOSS, "chunk_eval")
