"""Calls of layers on pairs of sequences, trees and parts of rows for the table of test_catalogue.py."""

from __future__ import annotations

from tests.layers.support import layers as L

#: Sizes that are not the batch's: images of 1 x 1, 0 x 0 and 2 x 2 numbers.
SHAPES = {"match_matrix_tensor": {0: [10, 1], 1: [24, 1]}, "var_conv_2d": {0: [15, 1]}}


def images(f):
    return L.match_matrix_tensor(f.rows, f.rows, 2)[0]


CALLS = {
    "match_matrix_tensor": (
        lambda f: L.match_matrix_tensor(f.rows, f.rows, 2, act="relu"),
        "mul pair_products relu reshape", ["float32[b, 1]", "float32[b, 1]"],
    ),
    "sequence_topk_avg_pooling": (
        lambda f: L.sequence_topk_avg_pooling(images(f), f.rows, f.rows, [1, 3], 2),
        "mul pair_products reshape sequence_topk_avg_pooling", ["float32[b, 4]"],
    ),
    "var_conv_2d": (
        lambda f: L.var_conv_2d(images(f), f.rows, f.rows, 2, 3, [3, 2], act="relu"),
        "mul pair_products reshape varied_windows matmul varied_channels relu", ["float32[b, 1]"],
    ),
    "tree_conv": (
        lambda f: L.tree_conv(f.codes, L.cast(L.scale(L.reshape(f.x, [-1, 2, 2]), 0.0), "int32"), 5, 2),
        "reshape scale cast tree_patches mul elementwise_add tanh", ["float32[b, 3, 5, 2]"],
    ),
    "rank_attention": (
        lambda f: L.rank_attention(f.x, L.cast(f.info, "int32"), [4, 5], max_rank=1), "cast rank_attention", ["float32[b, 5]"],
    ),
    "batch_fc": (
        lambda f: L.batch_fc(L.expand(L.unsqueeze(f.x, [0]), [2, 1, 1]), [2, 4, 5], None, [2, 5], None, "relu"),
        "unsqueeze expand matmul unsqueeze elementwise_add relu", ["float32[2, b, 5]"],
    ),
    "correlation": (lambda f: L.correlation(f.image, f.image, 2, 1, 2, 1, 2), "correlation", ["float32[b, 9, 8, 8]"]),
    "bilateral_slice": (
        lambda f: L.bilateral_slice(f.offset, L.reduce_sum(f.offset, 1), L.reshape(f.cube, [-1, 4, 2, 4, 4]), False),
        "reduce_sum reshape bilateral_slice", ["float32[b, 2, 8, 8]"],
    ),
    "tdm_child": (
        lambda f: L.tdm_child(f.label, 7, 2),
        (
            "reshape slice gather cast cast elementwise_mul reshape slice cast gather reshape cast cast cast cast elementwise_mul "
            "reshape reshape"
        ),
        ["int32[b, 1, 2]", "int32[b, 1, 2]"],
    ),
    "tdm_sampler": (
        lambda f: L.tdm_sampler(f.label, [1, 1], [2, 4], 4, output_list=False),
        "tdm_sampler cast cast cast", ["int32[b, 4]"] * 3,
    ),
    "fused_embedding_seq_pool": (
        lambda f: L.fused_embedding_seq_pool(f.ids, [4, 3]), "lookup_table_v2 reshape sequence_pool", ["float32[b, 3]"],
    ),
    "fused_elemwise_activation": (
        lambda f: L.fused_elemwise_activation(f.x, f.y, ["relu", "elementwise_add"]), "elementwise_add relu", ["float32[b, 4]"],
    ),
    "partial_concat": (lambda f: L.partial_concat([f.x, f.y], 1, 2), "slice slice concat", ["float32[b, 4]"]),
    "partial_sum": (lambda f: L.partial_sum([f.x, f.y], -3), "slice slice sum", ["float32[b, 3]"]),
    "shuffle_batch": (lambda f: L.shuffle_batch(f.x), "uniform_random_batch_size_like argsort reshape gather", ["float32[b, 4]"]),
}  # fmt: skip
