"""filter_by_instag: the samples that have one of some tags. It runs on the host, as only values tell how many they are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, fixed, offsets_of
from pe_cli.ops.define.onnx import ON_HOST, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@op(
    "filter_by_instag",
    inputs="Ins Ins_tag Filter_tag",
    outputs="Out LossWeight IndexMap",
    differentiable="Ins",
    attrs={
        "is_lod": Attr(True, "a sample is a sequence of Ins; else it is a row"),
        "out_val_if_empty": Attr(0, "value of the only row of Out where no sample is kept"),
    },
    samples=[
        Sample(
            {"Ins": (3, 2), "Ins_tag": fixed([[1], [2], [1]]), "Filter_tag": fixed([1])},
            {"is_lod": False}, "a tag for each row", keep=("Ins_tag", "Filter_tag"), grad=False,
        ),
    ],
)  # fmt: skip
def filter_by_instag(
    ins: TensorType, ins_tag: TensorType, filter_tag: TensorType, *, is_lod: bool, out_val_if_empty: int
) -> tuple[TensorType, TensorType, TensorType]:
    """Keep the samples that have at least one of the tags in Filter_tag, and tell how much each counts in a loss.

    Args:
        Ins: [rows, width] samples: sequences with is_lod, else rows.
        Ins_tag: int64 tags with a sequence for each sample; plain rows are one tag for each.
        Filter_tag: int64 tags that are kept, any shape.
        is_lod, out_val_if_empty: see the attributes.

    Returns:
        Out: [rows kept, width] type of Ins, with a sequence for each sample that is kept; one row of out_val_if_empty where none is.
        LossWeight: [samples kept, 1] float32: 1 for each; one 0 where none is kept.
        IndexMap: [samples kept, 3] int64: first row in Out, first row in Ins, and how many.

    Raises:
        PeError: types that do not fit; in a step, not a sequence of tags for each sample.

    Source:
        fluid.layers.filter_by_instag.
    """
    del is_lod, out_val_if_empty
    if len(ins.shape) != 2 or {ins_tag.dtype, filter_tag.dtype} != {"int64"}:
        raise PeError(f"filter_by_instag needs Ins [rows, width] and int64 tags, got {ins}, {ins_tag} and {filter_tag}")
    return ins.with_shape(-1, ins.shape[1]), TensorType((-1, 1), "float32"), TensorType((-1, 3), "int64")


def _only_level(run: HostRun, slot: str, *, rows: bool = False) -> Any:
    """Return the offsets of an input's sequences; `rows` says that each row is one.

    Raises:
        PeError: it has several levels, or none where it needs one (exit code 3).
    """
    (given,) = run.values[slot]
    if rows:
        return range(len(given.array) + 1)
    if len(given.lod) != 1:
        hint = "feed one level of sequences, a sequence for each sample"
        raise PeError(f"{run.op}: {slot} has {len(given.lod)} levels of sequences", hint=hint, code=ExitCode.DATA)
    return [int(n) for n in given.lod[0]]


@filter_by_instag.host_run
def filter_by_instag_host(run: HostRun) -> dict[str, list[Leveled]]:
    """Sample by sample.

    Raises:
        PeError: not a sequence of tags for each sample (exit code 3).
    """
    ins, tags = run.one("Ins"), run.one("Ins_tag").ravel()
    samples = _only_level(run, "Ins", rows=not run.attrs["is_lod"])
    owners = _only_level(run, "Ins_tag", rows=not run.values["Ins_tag"][0].lod)
    if len(samples) != len(owners):
        message = f"{run.op}: {len(samples) - 1} samples, but tags of {len(owners) - 1}"
        raise PeError(message, hint="one sequence of tags for each sample", code=ExitCode.DATA)
    wanted = np.isin(tags, run.one("Filter_tag"))
    kept = [pair for pair, (a, b) in zip(pairwise(samples), pairwise(owners), strict=True) if wanted[a:b].any()]
    if not kept:
        # The original never hands on an empty tensor: a row that counts 0 in the loss stands for "nothing was kept".
        out = np.full((1, ins.shape[1]), run.attrs["out_val_if_empty"], ins.dtype)
        weight, places, ends = np.zeros((1, 1), "float32"), np.array([[0, 0, 1]], "int64"), [0, 1]
    else:
        out = np.concatenate([ins[a:b] for a, b in kept])
        ends = offsets_of([b - a for a, b in kept]).tolist()
        weight = np.ones((len(kept), 1), "float32")
        # `ends` has one number more than there are samples, the end of the last; zip leaves it out.
        places = np.array([[at, a, b - a] for at, (a, b) in zip(ends, kept, strict=False)], "int64")
    each = (list(range(len(places) + 1)),)
    return {"Out": [Leveled(out, (ends,))], "LossWeight": [Leveled(weight, each)], "IndexMap": [Leveled(places, each)]}


@filter_by_instag.grad(uses="Ins LossWeight IndexMap").host_run
def filter_by_instag_grad_host(run: HostRun) -> dict[str, list[Leveled]]:
    """Gradients go back to where the rows came from; rows that were left out have none."""
    ins = run.one("Ins")
    made = np.zeros_like(ins)
    if run.values.get("Out@GRAD") and run.one("LossWeight")[0, 0] != 0 and ins.dtype.name in FLOATS:
        gradient = run.one("Out@GRAD")
        for at, begin, count in run.one("IndexMap"):
            made[begin : begin + count] += gradient[at : at + count]
    return {"Ins@GRAD": [Leveled(made, run.values["Ins"][0].lod)]}
not_in_onnx(ON_HOST, "filter_by_instag")
