"""padded_proposals, padded_fpn_levels, padded_fpn_best and box_decoder_and_assign in ONNX."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.detection.generate_proposals import LARGEST
from pe_cli.ops.detection.nms_onnx import at_places, columns, count, every, first_true, kept_apart


def _or_zeros(o: Writer, there: str, x: str, to: str, like: str) -> None:
    """Write rows [images, rows, numbers] where they are there, zeros elsewhere."""
    o.node("Where", [o.node("Unsqueeze", [there, o.const([2])]), x, o.const(0, like)], to=to)


@in_onnx("padded_proposals")
def padded_proposals_onnx(o: Writer) -> None:
    """The best candidates, then a round for each of them."""
    a, (_, anchors, high, wide) = o.attrs, o.type("Scores").shape
    n, rows, threshold = anchors * high * wide, a["post_nms_topN"], a["nms_thresh"]
    most = min(n, a["pre_nms_topN"]) if a["pre_nms_topN"] > 0 else n
    scores = o.node("Reshape", [o.node("Transpose", [o.x("Scores")], perm=[0, 2, 3, 1]), o.const([-1, n])])
    best, places = o.fresh(), o.fresh()
    o.nodes("TopK", [scores, o.const([most])], [best, places], axis=1)
    # TopK takes the first of equal scores; turned round and sorted once more, they are in the op's order.
    if threshold > 0:  # of equal scores the last place first
        ends = [o.const([v]) for v in (-1, -(2**31), 1, -1)]
        turned = [o.node("Slice", [v, *ends]) for v in (best, places)]
        best, order = o.fresh(), o.fresh()
        o.nodes("TopK", [turned[0], o.const([most])], [best, order], axis=1)
        places = o.node("GatherElements", [turned[1], order], axis=1)
    boxes, fits = _moved(o, places, n)
    if threshold > 0:
        fits = kept_apart(o, boxes, fits, o.type("Scores"), most, rows, threshold=threshold, eta=a["eta"], one=1.0, nan=False)
    chosen, there = first_true(o, fits, most, rows)
    _or_zeros(o, there, at_places(o, boxes, chosen), "RpnRois", "Scores")
    _or_zeros(o, there, o.node("Unsqueeze", [at_places(o, best, chosen), o.const([2])]), "RpnRoiProbs", "Scores")
    count(o, there)


def _moved(o: Writer, places: str, n: int) -> tuple[str, str]:
    """Return where anchors are moved to, inside their images, and whether that is large enough.

    Args:
        o: gets the nodes.
        places: [images, candidates] of n anchors.
        n: see there.
    """
    one, two = o.const(1, "Scores"), o.const(2, "Scores")
    deltas = o.node("Reshape", [o.node("Transpose", [o.x("BboxDeltas")], perm=[0, 2, 3, 1]), o.const([-1, n, 4])])
    around, variances = (o.node("Gather", [o.node("Reshape", [o.x(s), o.const([n, 4])]), places]) for s in ("Anchors", "Variances"))
    by = o.node("Mul", [at_places(o, deltas, places), variances])
    low, end = columns(o, around, 0, 2), columns(o, around, 2, 4)
    side = o.node("Add", [o.node("Sub", [end, low]), one])
    middle = o.node("Add", [o.node("Add", [low, o.node("Div", [side, two])]), o.node("Mul", [columns(o, by, 0, 2), side])])
    # exp is cut off at the original's largest growth, beyond which boxes are nonsense and float32 overflows.
    grown = o.node("Exp", [o.node("Min", [columns(o, by, 2, 4), o.const(LARGEST, "Scores")])])
    half = o.node("Div", [o.node("Mul", [grown, side]), two])
    info = o.node("Unsqueeze", [o.x("ImInfo"), o.const([1])])
    # ImInfo is height, width; boxes are x, y.
    whole, scale = o.node("Gather", [info, o.const([1, 0])], axis=2), columns(o, info, 2, 3)
    last = o.node("Sub", [whole, one])
    ends = o.node("Sub", [middle, half]), o.node("Sub", [o.node("Add", [middle, half]), one])
    low, end = (o.node("Max", [o.node("Min", [v, last]), o.const(0, "Scores")]) for v in ends)
    side = o.node("Sub", [end, low])
    least = o.const(max(o.attrs["min_size"], 1.0), "Scores")
    large = o.node("GreaterOrEqual", [o.node("Add", [o.node("Div", [side, scale]), one]), least])
    centre = o.node("Add", [low, o.node("Div", [o.node("Add", [side, one]), two])])
    inside = o.node("LessOrEqual", [centre, whole])
    return o.node("Concat", [low, end], axis=2), every(o, o.node("And", [large, inside]))


@in_onnx("padded_fpn_levels")
def padded_fpn_levels_onnx(o: Writer) -> None:
    """A box goes one level up for each power of two that its side has.

    Raises:
        PeError: rows whose number is not known.
    """
    kind, a = o.type("FpnRois"), o.attrs
    n, low = kind.shape[1], a["min_level"]
    if n < 0:
        raise PeError(f"distribute_fpn_proposals in ONNX needs as many boxes for each image as are known, got {kind}")
    rois, one = o.x("FpnRois"), o.const(1, "FpnRois")
    sides = o.node("Sub", [columns(o, rois, 2, 4), columns(o, rois, 0, 2)])
    area = o.node("ReduceProd", [o.node("Add", [sides, one]), o.const([-1])], keepdims=0)
    there = every(o, o.node("GreaterOrEqual", [sides, o.const(0, "FpnRois")]))
    area = o.node("Where", [there, area, o.const(0, "FpnRois")])
    side = o.node("Unsqueeze", [o.node("Div", [o.node("Sqrt", [area]), o.const(a["refer_scale"], "FpnRois")]), o.const([2])])
    # floor(log2(side / scale)) + refer_level is how many of these powers the side has reached: comparisons with exact numbers round
    # nothing.
    powers = 2.0 ** (np.arange(low + 1, a["max_level"] + 1) - a["refer_level"])
    larger = o.node("Cast", [o.node("GreaterOrEqual", [side, o.const(powers, "FpnRois")])], to_=element_type("int64"))
    level = o.node("ReduceSum", [larger, o.const([2])], keepdims=0)
    images = o.node("Slice", [o.node("Shape", [rois]), o.const([0]), o.const([1])])
    image = o.node("Range", [o.const(0), o.node("Squeeze", [images]), o.const(1)])
    row, place = o.node("Mul", [o.node("Unsqueeze", [image, o.const([1])]), o.const(n)]), o.const(0)
    # Boxes of every level keep n rows per image, so that sizes are known; the index says where each went.
    for k, out in enumerate(o.op.outputs["MultiFpnRois"]):
        mine = o.node("Equal", [level, o.const(k)])
        places, valid = first_true(o, mine, n, n)
        taken = at_places(o, rois, places)
        o.nodes("Where", [o.node("Unsqueeze", [valid, o.const([2])]), taken, o.const(0, "FpnRois")], [out])
        # Place among the boxes of its level, in their order.
        rank = o.node("CumSum", [o.node("Cast", [mine], to_=element_type("int64")), o.const(1)], exclusive=1)
        before = o.node("Mul", [images, o.const(k * n)])
        place = o.node("Where", [mine, o.node("Add", [o.node("Add", [before, row]), rank]), place])
    o.node("Reshape", [o.node("Cast", [place], to_=element_type("int32")), o.const([-1, 1])], to="RestoreIndex")


@in_onnx("padded_fpn_best")
def padded_fpn_best_onnx(o: Writer) -> None:
    """The best of the batch, one level after the other and in each the images; then each image's own by their scores."""
    rois, sections = o.x("Rois"), o.attrs["sections"]
    n, rows = sum(sections), o.out_type("FpnRois").shape[1]
    never = o.const(-np.inf, "Rois")
    scores = o.node("Reshape", [o.x("Scores"), o.const([-1, n])])
    if o.has("Counts"):
        number = np.concatenate([np.arange(size) for size in sections]).reshape(1, -1)
        level = np.repeat(np.arange(len(sections)), sections)
        counts = o.node("Gather", [o.node("Cast", [o.x("Counts")], to_=element_type("int64")), o.const(level)], axis=1)
        # Rows that are not there must lose against every score.
        scores = o.node("Where", [o.node("Less", [o.const(number), counts]), scores, never])
    parts = [o.node("Slice", [scores, o.const([b]), o.const([e]), o.const([1])]) for b, e in pairwise((0, *accumulate(sections)))]
    flat = o.node("Concat", [o.node("Reshape", [part, o.const([-1])]) for part in parts], axis=0)
    # Where there are fewer boxes than wanted, all are chosen: TopK cannot take more than there are.
    most = o.node("Min", [o.const([o.attrs["post_nms_topN"]]), o.node("Shape", [flat])])
    best, places = o.fresh(), o.fresh()
    # The best are chosen over all images together, as in the original; what is not chosen becomes minus infinity.
    o.nodes("TopK", [flat, most], [best, places], axis=0)
    lowest = o.node("Expand", [never, o.node("Shape", [flat])])
    chosen, at, whole = o.node("ScatterElements", [lowest, places, best], axis=0), o.const([0]), []
    images = o.node("Slice", [o.node("Shape", [rois]), o.const([0]), o.const([1])])
    for size in sections:
        end = o.node("Add", [at, o.node("Mul", [images, o.const([size])])])
        whole.append(o.node("Reshape", [o.node("Slice", [chosen, at, end]), o.const([-1, size])]))
        at = end
    kept, order = o.fresh(), o.fresh()
    o.nodes("TopK", [o.node("Concat", whole, axis=1), o.const([rows])], [kept, order], axis=1)
    there = o.node("Greater", [kept, never])
    _or_zeros(o, there, at_places(o, rois, order), "FpnRois", "Rois")
    count(o, there)


@in_onnx("box_decoder_and_assign")
def box_decoder_and_assign_onnx(o: Writer) -> None:
    """Centres and sides of all classes; the box of the first best class, but class 0."""
    classes, prior = o.type("BoxScore").shape[1], o.x("PriorBox")
    one, half = o.const(1, "PriorBox"), o.const(0.5, "PriorBox")
    var = o.node("Reshape", [o.x("PriorBoxVar"), o.const([4])])
    low, end = columns(o, prior, 0, 2), columns(o, prior, 2, 4)
    sides = o.node("Add", [o.node("Sub", [end, low]), one])
    centres = o.node("Add", [low, o.node("Mul", [sides, half])])
    sides, centres = (o.node("Unsqueeze", [v, o.const([1])]) for v in (sides, centres))
    moves = o.node("Reshape", [o.x("TargetBox"), o.const([-1, classes, 4])])
    by, larger = (o.node("Mul", [columns(o, var, *ends), columns(o, moves, *ends)]) for ends in ((0, 2), (2, 4)))
    middle = o.node("Add", [o.node("Mul", [by, sides]), centres])
    grown = o.node("Exp", [o.node("Min", [larger, o.const(o.attrs["box_clip"], "PriorBox")])])
    reach = o.node("Mul", [o.node("Mul", [grown, sides]), half])
    ends = o.node("Sub", [middle, reach]), o.node("Sub", [o.node("Add", [middle, reach]), one])
    found = o.node("Concat", ends, axis=2)
    o.node("Reshape", [found, o.const([-1, 4 * classes])], to="DecodeBox")
    if classes == 1:
        o.node("Identity", [prior], to="OutputAssignBox")
        return
    # ArgMax takes the first of equal scores, as the kernel does; the background, class 0, is not looked at.
    scores = columns(o, o.x("BoxScore"), 1, classes)
    best = o.node("Add", [o.node("ArgMax", [scores], axis=1, keepdims=1), o.const(1)])
    o.node("Squeeze", [at_places(o, found, best), o.const([1])], to="OutputAssignBox")
