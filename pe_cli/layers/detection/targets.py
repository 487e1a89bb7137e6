"""Training of detectors: matching of true boxes to priors, and the losses of SSD and YOLOv3."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.program.ir import Variable


def _constant(*found: Variable) -> None:
    for v in found:
        v.stop_gradient = True


@layer
def bipartite_match(
    dist_matrix: Variable, match_type: str | None = None, dist_threshold: float | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Match columns with rows, greedily: the largest entry first, then the largest of the other rows and columns, and so on.

    Args:
        dist_matrix: [rows, columns]: the larger, the nearer; with a sequence of rows for each image, or of one image.
        match_type: bipartite, or per_prediction: a column that is left over takes its best row; bipartite by default.
        dist_threshold: least entry that per_prediction takes; 0.5 by default.
        name: prefix of the outputs' names.

    Returns:
        Rows of the image [images, columns] int32, -1 for none, and the entries, 0 for none.

    Raises:
        PeError: dist_matrix is no matrix, or an unknown match_type.

    Source:
        fluid.layers.bipartite_match.
    """
    helper = LayerHelper("bipartite_match", name)
    attrs = {"match_type": match_type or "bipartite", "dist_threshold": 0.5 if dist_threshold is None else float(dist_threshold)}
    where, far = helper.op("bipartite_match", {"DistMat": dist_matrix}, attrs, ("ColToRowMatchIndices", "ColToRowMatchDist"))
    _constant(where, far)
    return where, far


@layer
def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Give every column the target of the row that it is matched with.

    Args:
        input: [rows, columns or 1, size]: targets, with a sequence of rows for each image.
        matched_indices: [images, columns] int32: row of the image, -1 for none.
        negative_indices: [negatives, 1] int32, with a sequence for each image: columns that count too, with mismatch_value.
        mismatch_value: whole number, the target of columns that are matched with nothing; 0 by default.
        name: prefix of the outputs' names.

    Returns:
        Targets [images, columns, size], and weights [images, columns, 1] float32: 1 for matched and negative columns, else 0.

    Raises:
        PeError: shapes or dtypes that do not fit, or mismatch_value has a fraction; while running, a row or a column that is not there.

    Source:
        fluid.layers.target_assign.
    """
    helper = LayerHelper("target_assign", name)
    # The op's attribute is a whole number: converting alone would drop a fraction without a word.
    if mismatch_value is not None and mismatch_value != int(mismatch_value):
        raise helper.error(f"target_assign: mismatch_value is {mismatch_value}", hint="a whole number")
    return _assign(helper, input, matched_indices, mismatch_value or 0, NegIndices=negative_indices)


def _assign(helper: LayerHelper, x: Variable, match: Variable, other: int, **negatives: Variable | None) -> tuple[Variable, Variable]:
    inputs = {"X": x, "MatchIndices": match, **negatives}
    out, weight = helper.op("target_assign", inputs, {"mismatch_value": int(other)}, ("Out", "OutWeight"))
    _constant(out, weight)
    return out, weight


def _flat(x: Variable) -> Variable:
    """Return [rows, size of the last axis]."""
    flat: Variable = find("reshape").fn(x, [-1, x.shape[-1]])
    return flat


@layer
def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """Measure the loss of SSD: classes and differences of matched priors, and the worst classes of the others.

    Args:
        location: [images, priors, 4]: differences, as box_coder has them.
        confidence: [images, priors, classes]: logits.
        gt_box: [boxes, 4], with a sequence for each image.
        gt_label: [boxes, 1] whole numbers, with a sequence for each image.
        prior_box: [priors, 4].
        prior_box_var: [priors, 4]: variances, or null.
        background_label: class of what is no object.
        overlap_threshold: least overlap that per_prediction takes.
        neg_pos_ratio: most negative priors to one that is matched.
        neg_overlap: a prior that overlaps a true box by this or more is not negative.
        loc_loss_weight: factor of the loss of differences.
        conf_loss_weight: factor of the loss of classes.
        match_type: per_prediction or bipartite, of bipartite_match.
        mining_type: max_negative; hard_example is an error, as in the original.
        normalize: divide by the number of matched priors of the batch.
        sample_size: of hard_example; has to be null with max_negative, which does not use it.

    Returns:
        [images, 1]: sum over the priors.

    Raises:
        PeError: shapes that do not fit, or another mining_type.

    Source:
        fluid.layers.ssd_loss; Liu et al. 2016, "SSD", section 2.2.
    """
    helper = LayerHelper("ssd_loss")
    if mining_type != "max_negative":
        raise helper.error(f"ssd_loss: mining_type is {mining_type!r}", hint="max_negative")
    if sample_size is not None:
        raise helper.error("ssd_loss: sample_size has no effect with max_negative", hint="leave it out")
    if len(confidence.shape) != 3 or len(location.shape) != 3 or location.shape[1:] != (confidence.shape[1], 4):
        shapes = f"{list(location.shape)} and {list(confidence.shape)}"
        raise helper.error(f"ssd_loss needs location [images, priors, 4] and confidence [images, priors, classes], got {shapes}")
    one = helper.one
    priors = confidence.shape[1]
    overlaps = find("iou_similarity").fn(gt_box, prior_box)
    match, far = bipartite_match(overlaps, match_type, overlap_threshold)
    # The axis of size 1 says that a box has one label, whichever prior it is matched with.
    labels = one("reshape", {"X": gt_label}, {"shape": [-1, 1, 1]})
    # All pairs of true boxes and priors: which of them count is known only when priors are matched.
    codes = find("box_coder").fn(prior_box, prior_box_var, gt_box)
    _constant(overlaps, labels, codes)
    logits = _flat(confidence)

    # Classes are measured twice: before mining, to find the worst negatives, and after it, weighed by which were chosen.
    def class_loss(target: Variable) -> Variable:
        wanted = _flat(one("cast", {"X": target}, {"out_dtype": "int64"}))
        wanted.stop_gradient = True
        loss: Variable = find("softmax_with_cross_entropy").fn(logits, wanted)
        return loss

    first, _ = _assign(helper, labels, match, background_label)
    # The loss before mining only says which negatives are worst; no gradient goes through the choice.
    before = one("reshape", {"X": class_loss(first)}, {"shape": [-1, priors]})
    before.stop_gradient = True
    mined: dict[str, Any] = {"neg_pos_ratio": float(neg_pos_ratio), "neg_dist_threshold": float(neg_overlap), "mining_type": mining_type}
    inputs = {"ClsLoss": before, "MatchIndices": match, "MatchDist": far}
    match, negative = helper.op("mine_hard_examples", inputs, mined, ("UpdatedMatchIndices", "NegMask"))
    _constant(match, negative)
    boxes, box_weight = _assign(helper, codes, match, background_label)
    # Negatives count for the classes alone: they have no box to be moved to.
    target, class_weight = _assign(helper, labels, match, background_label, NegMask=negative)
    parts = []
    weighed = (
        (class_loss(target), class_weight, conf_loss_weight),
        (find("smooth_l1").fn(_flat(location), _flat(boxes)), box_weight, loc_loss_weight),
    )
    for loss, weight, factor in weighed:
        share = weight if weight.dtype == loss.dtype else one("cast", {"X": weight}, {"out_dtype": loss.dtype})
        parts.append(find("scale").fn(one("elementwise_mul", {"X": loss, "Y": _flat(share)}), float(factor)))
    both = one("elementwise_add", {"X": parts[0], "Y": parts[1]})
    total: Variable = find("reduce_sum").fn(one("reshape", {"X": both}, {"shape": [-1, priors]}), 1, True)
    if not normalize:
        return total
    # By the boxes that are matched, over the whole batch, as in the paper: there are many more negatives, which must not dilute them.
    count = find("reduce_sum").fn(one("cast", {"X": box_weight}, {"out_dtype": total.dtype}))
    return one("elementwise_div", {"X": total, "Y": count})
