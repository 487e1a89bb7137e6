"""mine_hard_examples: the priors with the largest losses are negative."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, PtrU8, Real, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.sorting import sort_places


@kernel
def mine(
    loss: Ptr, where: Ptr, hard: Int, match: PtrI32, far: Ptr, out: PtrI32, negative: PtrU8, total: Ptr, order: PtrI64, images: Int, P: Int,
    ratio: Real, farthest: Real, most: Int, both: Int,
):  # fmt: skip
    """negative = columns with the largest losses; with hard, matched ones that are not among those lose their match."""
    for i in range(images):
        n = 0
        positives = 0
        for p in range(i * P, (i + 1) * P):
            out[p] = match[p]
            negative[p] = 0
            positives += 1 if match[p] >= 0 else 0
            # Mining negatives looks at columns without a match that lie far enough from every true box; mining hard examples at all
            # columns.
            if hard or (match[p] < 0 and far[p] < farthest):
                total[p] = loss[p] + where[p] if both else loss[p]
                order[i * P + n] = p
                n += 1
        wanted = min(most if hard else int(positives * ratio), n)
        sort_places(total, 0, order, i * P, n)
        for k in range(wanted):
            negative[order[i * P + k]] = 1
        # A hard example that has a match is a positive that counts; only those without one are negative.
        if hard:
            for p in range(i * P, (i + 1) * P):
                if match[p] >= 0:
                    out[p] = match[p] if negative[p] else -1
                    negative[p] = 0


_LOSSES = {
    "ClsLoss": (2, 5),
    "MatchIndices": lambda rng: np.array([[0, -1, -1, 1, -1], [-1, -1, -1, 0, -1]], "int32"),
    "MatchDist": lambda rng: rng.uniform(0, 1, (2, 5)),
}


@op(
    "mine_hard_examples",
    inputs="ClsLoss LocLoss? MatchIndices MatchDist",
    outputs="UpdatedMatchIndices NegMask",
    attrs={
        "neg_pos_ratio": Attr(3.0, "max_negative: most negative columns to one that is matched"),
        "neg_dist_threshold": Attr(0.5, "max_negative: columns that are nearer are not negative"),
        "sample_size": Attr(0, "hard_example: most columns of an image that count"),
        "mining_type": Attr("max_negative", "what is mined", ("max_negative", "hard_example")),
    },
    differentiable="",
    samples=[
        Sample(_LOSSES, name="negatives"),
        Sample({**_LOSSES, "LocLoss": (2, 5)}, {"mining_type": "hard_example", "sample_size": 3}, "hard examples"),
    ],
)
def mine_hard_examples(
    loss: TensorType,
    where: TensorType | None,
    match: TensorType,
    far: TensorType,
    *,
    neg_pos_ratio: float,
    neg_dist_threshold: float,
    sample_size: int,
    mining_type: str,
) -> tuple[TensorType, TensorType]:
    """Choose the columns with the largest losses that are to be negative.

    max_negative takes them among the columns without a match that are farther than neg_dist_threshold, neg_pos_ratio for each matched one;
    hard_example takes sample_size of all columns, and a matched one that is not among them loses its match.

    Args:
        ClsLoss: [images, columns] float32 or float64.
        LocLoss: type of ClsLoss; hard_example adds it.
        MatchIndices: [images, columns] int32: -1 for no match.
        MatchDist: type of ClsLoss: how near a column is to what it is nearest to.

    Returns:
        UpdatedMatchIndices: type of MatchIndices.
        NegMask: [images, columns] bool.

    Raises:
        PeError: shapes or dtypes that do not fit, hard_example without a sample_size.

    Source:
        fluid.layers.ssd_loss; Liu et al. 2016, "SSD", section 2.2.
    """
    del neg_pos_ratio, neg_dist_threshold
    if len(loss.shape) != 2 or match.dtype != "int32" or far.dtype != loss.dtype or (where is not None and where.dtype != loss.dtype):
        raise PeError(f"mine_hard_examples needs losses and distances of one type and int32 matches, got {loss}, {far} and {match}")
    if mining_type == "hard_example" and sample_size < 1:
        raise PeError("mine_hard_examples: hard_example needs sample_size", hint="a number of columns of an image, at least 1")
    return match, TensorType(match.shape, "bool")


@mine_hard_examples.lower("cpu")
def mine_hard_examples_cpu(o: Lowering) -> None:
    """Image by image, the largest losses first."""
    loss, out = o.input("ClsLoss"), o.output("UpdatedMatchIndices")
    hard = o.attrs["mining_type"] == "hard_example"
    both = hard and bool(o.inputs("LocLoss"))
    if out.size:
        o.call(
            mine, loss, o.input("LocLoss") if both else loss, int(hard), o.input("MatchIndices"), o.input("MatchDist"), out,
            o.output("NegMask"), o.scratch(loss.size, loss.dtype), o.scratch(loss.size, "int64"), *out.shape,
            o.attrs["neg_pos_ratio"], o.attrs["neg_dist_threshold"], o.attrs["sample_size"], int(both),
        )  # fmt: skip


deal(mine)
also_on_cuda(mine_hard_examples)
not_in_onnx(TARGETS, "mine_hard_examples")
