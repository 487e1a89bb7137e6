"""mark_by_instag: filter_by_instag that leaves every sample at its place, so that it runs in the step."""

from __future__ import annotations

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrF32, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed, sequence_count
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def mark_samples(tags: PtrI64, offsets: PtrI64, wanted: PtrI64, weight: PtrF32, samples: Int, grouped: Int, count: Int):
    """weight = 1 for a sample that has one of the tags that are wanted, else 0."""
    for s in range(samples):
        found = 0
        for e in range(offsets[s] if grouped else s, offsets[s + 1] if grouped else s + 1):
            for k in range(count):
                if tags[e] == wanted[k]:
                    found = 1
        weight[s] = found


@kernel
def keep_samples(x: Ptr, weight: PtrF32, offsets: PtrI64, out: Ptr, samples: Int, grouped: Int, width: Int, other: Int):
    """out = x where the sample's weight is not 0, else `other`."""
    for s in range(samples):
        a = offsets[s] if grouped else s
        b = offsets[s + 1] if grouped else s + 1
        for e in range(a * width, b * width):
            out[e] = x[e] if weight[s] != 0 else T(other)


@op(
    "mark_by_instag",
    inputs="Ins Ins_tag Filter_tag Offsets? TagOffsets?",
    outputs="Out LossWeight",
    differentiable="Ins",
    attrs={
        "is_lod": Attr(True, "a sample is a sequence of Ins; else it is a row"),
        "out_val_if_empty": Attr(0, "what the rows of other samples become"),
    },
    samples=[
        Sample(
            {"Ins": (3, 2), "Ins_tag": fixed([[1], [2], [1]]), "Filter_tag": fixed([1])}, {"is_lod": False, "out_val_if_empty": 2},
            "a tag for each row", keep=("Ins_tag", "Filter_tag"),
        ),
        Sample(
            {"Ins": (5, 3), "Ins_tag": fixed([[1], [4], [2]]), "Filter_tag": fixed([4, 5]), "Offsets": fixed([0, 3, 3, 5]),
             "TagOffsets": fixed([0, 2, 2, 3])},
            name="sequences", keep=("Ins_tag", "Filter_tag", "Offsets", "TagOffsets"),
        ),
    ],
)  # fmt: skip
def mark_by_instag(
    ins: TensorType,
    ins_tag: TensorType,
    filter_tag: TensorType,
    offsets: TensorType | None,
    tag_offsets: TensorType | None,
    *,
    is_lod: bool,
    out_val_if_empty: int,
) -> tuple[TensorType, TensorType]:
    """Keep the samples that have at least one of the tags in Filter_tag, and let the others count nothing in a loss.

    Args:
        Ins: [rows, width] samples: sequences with is_lod, else rows.
        Ins_tag: int64 tags with a sequence for each sample; plain rows are one tag for each.
        Filter_tag: int64 tags that are kept, any shape.
        Offsets, TagOffsets: int64 [samples + 1]: where the rows and the tags of each sample begin.
        is_lod, out_val_if_empty: see the attributes.

    Returns:
        Out: type of Ins: samples that are kept; the rows of others become out_val_if_empty.
        LossWeight: [samples, 1] float32: 1 for each that is kept, else 0.

    Raises:
        PeError: types that do not fit; in a step, not as many sequences of tags as samples.

    Source:
        fluid.layers.filter_by_instag, which leaves the other samples out.
    """
    del out_val_if_empty
    if len(ins.shape) != 2 or {ins_tag.dtype, filter_tag.dtype} != {"int64"}:
        raise PeError(f"filter_by_instag needs ins [rows, width] and int64 tags, got {ins}, {ins_tag} and {filter_tag}")
    tags = sequence_count(tag_offsets) if tag_offsets else ins_tag.size if ins_tag.known else -1
    samples = sequence_count(offsets) if is_lod else ins.shape[0]
    if -1 not in (samples, tags) and samples != tags:
        text = f"filter_by_instag: {samples} samples, but tags of {tags}"
        raise PeError(text, hint="one sequence of tags for each sample", code=ExitCode.DATA)
    return ins, TensorType((samples, 1), "float32")


@mark_by_instag.sequences("Offsets TagOffsets")
def mark_by_instag_lod(s: LodRequest) -> None:
    """Sequences stay what they are.

    Raises:
        PeError: is_lod, and no sequences.
    """
    if s.attrs["is_lod"]:
        s.give("Offsets", s.offsets("Ins"))
    if s.lod("Ins_tag"):
        s.give("TagOffsets", s.lod("Ins_tag")[-1])
    s.out("Out", *s.lod("Ins"))


@mark_by_instag.lower("cpu")
def mark_by_instag_cpu(o: Lowering) -> None:
    """Sample by sample."""
    weight = o.output("LossWeight")
    tags, wanted, samples = o.input("Ins_tag"), o.input("Filter_tag"), weight.shape[0]
    # Without groups the kernel reads no offsets, but its pointer has to point somewhere.
    ends = o.input("TagOffsets") if o.inputs("TagOffsets") else o.scratch(1, "int64")
    if samples:
        o.call(mark_samples, tags, ends, wanted, weight, samples, int(bool(o.inputs("TagOffsets"))), wanted.size)
    _keep(o, "Ins", weight, "Out", o.attrs["out_val_if_empty"])


def _keep(o: Lowering, source: str, weight: object, target: str, other: int) -> None:
    out = o.output(target)
    if out.size:
        grouped = bool(o.inputs("Offsets"))
        ends = o.input("Offsets") if grouped else o.scratch(1, "int64")
        samples = ends.size - 1 if grouped else out.shape[0]
        o.call(keep_samples, o.input(source), weight, ends, out, samples, int(grouped), out.shape[1], other)


@mark_by_instag.grad(uses="LossWeight Offsets").lower("cpu")
def mark_by_instag_grad_cpu(o: Lowering) -> None:
    """The gradient of samples that are kept."""
    _keep(o, "Out@GRAD", o.input("LossWeight"), "Ins@GRAD", 0)


deal(mark_samples, keep_samples)
also_on_cuda(mark_by_instag)
not_in_onnx("it chooses samples for training", "mark_by_instag")
