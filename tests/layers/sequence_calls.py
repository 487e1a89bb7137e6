"""Calls of layers on sequences for the table of test_catalogue.py; three sequences of one, no and two rows, so that b is 3 everywhere."""

from __future__ import annotations

import numpy as np

from tests.layers.support import layers as L

OFFSETS = np.array([0, 1, 1, 3])
#: Feeds with sequences: shape of a row, dtype.
FEEDS = {
    "rows": ([4], "float32"),
    "gates": ([12], "float32"),
    "column": ([1], "float32"),
    "ids": ([1], "int64"),
    "more": ([1], "int64"),
}


def number(value, dtype="int64", count=3):
    return L.fill_constant([count], dtype, value)


CALLS = {
    "bipartite_match": (lambda f: L.bipartite_match(f.rows), "bipartite_match", ["int32[b, 4]", "float32[b, 4]"]),
    "target_assign": (
        lambda f: L.target_assign(L.reshape(f.rows, [-1, 1, 4]), L.bipartite_match(f.rows)[0]),
        "reshape bipartite_match target_assign", ["float32[b, 4, 4]", "float32[b, 4, 1]"],
    ),
    "ssd_loss": (
        lambda f: L.ssd_loss(
            f.codes, f.codes, f.rows, L.cast(L.scale(f.column, 0.0), "int64"), L.fill_constant([3, 4], "float32", 0.5), normalize=False
        ),
        (
            "scale cast fill_constant iou_similarity bipartite_match reshape box_coder reshape target_assign cast reshape "
            "softmax_with_cross_entropy reshape mine_hard_examples target_assign target_assign cast reshape softmax_with_cross_entropy "
            "reshape reshape smooth_l1_loss reshape elementwise_mul scale reshape elementwise_mul scale elementwise_add reshape reduce_sum"
        ),
        ["float32[b, 1]"],
    ),
    "polygon_box_transform": (lambda f: L.polygon_box_transform(f.image), "polygon_box_transform", ["float32[b, 6, 8, 8]"]),
    "yolov3_loss": (
        lambda f: L.yolov3_loss(f.image, f.codes, L.cast(L.reduce_sum(f.codes, 2), "int32"), [10, 13], [0], 1, 0.5, 32),
        "reduce_sum cast yolov3_loss", ["float32[b]"],
    ),
    "sequence_pool": (lambda f: L.sequence_pool(f.rows, "sqrt"), "sequence_pool", ["float32[b, 4]"]),
    "sequence_first_step": (lambda f: L.sequence_first_step(f.rows), "sequence_pool", ["float32[b, 4]"]),
    "sequence_last_step": (lambda f: L.sequence_last_step(f.rows), "sequence_pool", ["float32[b, 4]"]),
    "sequence_softmax": (lambda f: L.sequence_softmax(f.column), "sequence_softmax", ["float32[b, 1]"]),
    "sequence_expand": (lambda f: L.sequence_expand(f.x, f.rows), "sequence_expand", ["float32[b, 4]"]),
    "sequence_expand_as": (lambda f: L.sequence_expand_as(f.x, f.rows), "sequence_expand_as", ["float32[b, 4]"]),
    "sequence_concat": (lambda f: L.sequence_concat([f.rows, f.rows]), "sequence_concat", ["float32[b, 4]"]),
    "sequence_pad": (
        lambda f: L.sequence_pad(f.rows, number(0.0, "float32", 1), 3),
        "fill_constant sequence_pad", ["float32[b, 3, 4]", "int64[b]"],
    ),
    "sequence_unpad": (
        lambda f: L.sequence_unpad(*L.sequence_pad(f.rows, number(0.0, "float32", 1))),
        "fill_constant sequence_pad sequence_unpad", ["float32[b, 4]"],
    ),
    "sequence_mask": (lambda f: L.sequence_mask(f.label, 5, "float32"), "sequence_mask", ["float32[b, 1, 5]"]),
    "sequence_reverse": (lambda f: L.sequence_reverse(f.rows), "sequence_reverse", ["float32[b, 4]"]),
    "sequence_slice": (
        lambda f: L.sequence_slice(f.rows, number(0.0), number(0.0)),
        "fill_constant fill_constant sequence_slice", ["float32[b, 4]"],
    ),
    "sequence_reshape": (lambda f: L.sequence_reshape(f.rows, 2), "sequence_reshape", ["float32[b, 2]"]),
    "sequence_enumerate": (lambda f: L.sequence_enumerate(f.ids, 2), "sequence_enumerate", ["int64[b, 2]"]),
    "sequence_scatter": (lambda f: L.sequence_scatter(f.x, f.ids, f.column), "sequence_scatter", ["float32[b, 4]"]),
    "sequence_conv": (
        lambda f: L.sequence_conv(f.rows, 5, act="tanh"), "sequence_context mul elementwise_add tanh", ["float32[b, 5]"],
    ),
    "lod_reset": (lambda f: L.lod_reset(f.x, target_lod=[0, 3]), "lod_reset", ["float32[b, 4]"]),
    "lod_append": (lambda f: L.lod_append(f.rows, [0, 1, 2, 3]), "lod_reset", ["float32[b, 4]"]),
    "dynamic_lstm": (lambda f: L.dynamic_lstm(f.gates, 12), "lstm", ["float32[b, 3]", "float32[b, 3]"]),
    "dynamic_lstmp": (lambda f: L.dynamic_lstmp(f.gates, 12, 2), "lstm", ["float32[b, 2]", "float32[b, 3]"]),
    "dynamic_gru": (lambda f: L.dynamic_gru(f.gates, 4), "gru", ["float32[b, 4]"]),
    "linear_chain_crf": (lambda f: L.linear_chain_crf(f.rows, f.ids), "linear_chain_crf", ["float32[b, 1]"]),
    "crf_decoding": (
        lambda f: [L.linear_chain_crf(f.rows, f.ids, "w"), L.crf_decoding(f.rows, "w")],
        "linear_chain_crf crf_decoding", ["float32[b, 1]", "int64[b, 1]"],
    ),
    "warpctc": (lambda f: L.warpctc(f.rows, f.ids), "warpctc", ["float32[b, 1]"]),
    "edit_distance": (
        lambda f: L.edit_distance(f.ids, f.more, normalized=False), "edit_distance", ["float32[b, 1]", "int64[1]"],
    ),
    "row_conv": (
        lambda f: L.row_conv(f.rows, 2), "sequence_context reshape elementwise_mul reduce_sum", ["float32[b, 4]"],
    ),
}  # fmt: skip
#: What has another number of rows than b.
SHAPES = {
    "sequence_concat": [[6, 4]],
    "sequence_reshape": [[6, 2]],
    "sequence_slice": [[0, 4]],
}


def array(rng, name):
    """Return the rows of a feed, ids below 4."""
    shape, dtype = FEEDS[name]
    return rng.integers(0, 4, (3, *shape)) if dtype == "int64" else rng.uniform(0.1, 0.9, (3, *shape)).astype(dtype)
