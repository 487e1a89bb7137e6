"""Calls of layers of two-stage detectors, and of those that find places and values, for the table of test_catalogue.py."""

from __future__ import annotations

from tests.layers.support import layers as L

_ANCHORS = "fill_constant reshape"


def _anchors(rows=3):
    return L.fill_constant([rows, 4], "float32", 0.5)


def _logits(f):
    return L.slice(f.codes, [2], [0], [1])


CALLS = {
    "rpn_target_assign": (
        lambda f: L.rpn_target_assign(f.codes, _logits(f), _anchors(), None, f.rows, None, f.info, 2),
        f"slice {_ANCHORS} padded_rpn_targets reshape gather reshape gather",
        ["float32[b, 1]", "float32[b, 4]", "int32[b, 1]", "float32[b, 4]", "float32[b, 4]"],
    ),
    "retinanet_target_assign": (
        lambda f: L.retinanet_target_assign(f.codes, f.codes, _anchors(), None, f.rows, L.cast(f.column, "int64"), None, f.info, 4),
        "fill_constant cast reshape cast padded_retinanet_targets reshape reshape",
        ["float32[b, 4]", "float32[b, 4]", "int32[b, 1]", "float32[b, 4]", "float32[b, 4]", "int32[b, 1]"],
    ),
    "generate_proposal_labels": (
        lambda f: L.generate_proposal_labels(f.codes, L.cast(f.column, "int32"), None, f.rows, f.info, 5, class_nums=2),
        "cast padded_proposal_labels", ["float32[b, 5, 4]", "int32[b, 1]"] + ["float32[b, 8]"] * 3,
    ),
    "generate_mask_labels": (
        lambda f: L.generate_mask_labels(
            f.info, L.cast(f.column, "int32"), None, L.reshape(f.rows, [-1, 1, 2, 2]), f.codes, L.fill_constant([9, 1], "int32", 1), 3, 2
        ),
        "cast reshape fill_constant padded_mask_labels", ["float32[b, 3, 4]", "int32[b, 1]", "int32[b, 12]"],
    ),
    "distribute_fpn_proposals": (
        lambda f: L.distribute_fpn_proposals(f.codes, 2, 3, 2, 1), "padded_fpn_levels", ["float32[b, 3, 4]"] * 2 + ["int32[b, 1]"],
    ),
    "collect_fpn_proposals": (
        lambda f: L.collect_fpn_proposals([f.codes, f.codes], [_logits(f)] * 2, 2, 3, 4),
        "slice concat concat padded_fpn_best", ["float32[b, 4, 4]", "int32[b, 1]"],
    ),
    "retinanet_detection_output": (
        lambda f: L.retinanet_detection_output([f.codes], [f.codes], [_anchors()], f.info, keep_top_k=5),
        "fill_constant reshape padded_retinanet_output", ["float32[b, 5, 6]", "int32[b, 1]"],
    ),
    "filter_by_instag": (
        lambda f: L.filter_by_instag(f.rows, f.label, L.fill_constant([1], "int64", 2), True),
        "fill_constant mark_by_instag", ["float32[b, 4]", "float32[b, 1]"],
    ),
    "where": (lambda f: L.where(L.cast(f.x, "bool")), "cast padded_where", ["int64[b, 2]", "int64[1]"]),
    "nonzero": (lambda f: L.nonzero(f.label), "fill_constant not_equal padded_where", ["int64[b, 2]", "int64[1]"]),
    "unique": (lambda f: L.unique(L.squeeze(f.label, [1])), "squeeze padded_unique", ["int64[b]", "int32[b]", "int64[1]"]),
    "unique_with_counts": (
        lambda f: L.unique_with_counts(f.counts, "int64"), "padded_unique", ["int64[b]", "int64[b]", "int64[b]", "int64[1]"],
    ),
    "allclose": (
        lambda f: L.allclose(f.x, f.y, equal_nan=True),
        ("elementwise_sub abs abs scale less_equal fill_constant abs less_than logical_and equal logical_or not_equal not_equal "
         "logical_and logical_or cast reduce_min cast"), ["bool[1]"],
    ),
    "has_nan": (lambda f: L.has_nan(f.x), "not_equal cast reduce_max cast", ["bool[1]"]),
    "has_inf": (lambda f: L.has_inf(f.x), "fill_constant abs equal cast reduce_max cast", ["bool[1]"]),
    "is_empty": (lambda f: L.is_empty(f.x), "shape cast fill_constant reduce_prod equal", ["bool[1]"]),
    "elementwise_equal": (lambda f: L.elementwise_equal(f.x, f.y), "equal", ["bool[b, 4]"]),
    "clamp": (lambda f: L.clamp(f.x, max=0.5), "clip", ["float32[b, 4]"]),
    "addcmul": (lambda f: L.addcmul(f.x, f.y, f.yes, 2.0), "elementwise_mul scale elementwise_add", ["float32[b, 4]"]),
    "t": (lambda f: L.t(f.x), "transpose", ["float32[4, b]"]),
    "arange": (lambda f: L.arange(5, dtype="int64"), "assign_value", ["int64[5]"]),
    "randint": (lambda f: L.randint(3, 9, [2]), "uniform_random floor clip cast", ["int64[2]"]),
    "randn": (lambda f: L.randn([2, 3]), "gaussian_random", ["float32[2, 3]"]),
    "interpolate": (lambda f: L.interpolate(f.image, [4, 12], resample="NEAREST"), "nearest_interp", ["float32[b, 6, 4, 12]"]),
}  # fmt: skip
#: How many rows come out where that is not the batch: name -> sizes of each output.
SHAPES = {
    "rpn_target_assign": [[6, 1], [3, 4], [6, 1], [3, 4], [3, 4]],
    "retinanet_target_assign": [[9, 4], [9, 4], [9, 1], [9, 4], [9, 4], [3, 1]],
    "generate_proposal_labels": [[3, 5, 4], [15, 1], *[[15, 8]] * 3],
    "generate_mask_labels": [[3, 3, 4], [9, 1], [9, 12]],
    "distribute_fpn_proposals": [[3, 3, 4], [3, 3, 4], [9, 1]],
    "where": [[12, 2], [1]],
}
