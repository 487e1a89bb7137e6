"""fluid.contrib.layers: layers that were on trial in the original."""

from __future__ import annotations

from pe_cli.paddle.fluid.contrib.layers import metric_op, nn, rnn_impl
from pe_cli.paddle.fluid.contrib.layers.metric_op import ctr_metric_bundle
from pe_cli.paddle.fluid.contrib.layers.nn import (
    batch_fc,
    bilateral_slice,
    correlation,
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    multiclass_nms2,
    partial_concat,
    partial_sum,
    rank_attention,
    search_pyramid_hash,
    sequence_topk_avg_pooling,
    shuffle_batch,
    tdm_child,
    tdm_sampler,
    tree_conv,
    var_conv_2d,
)
from pe_cli.paddle.fluid.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from pe_cli.paddle.reference_names import missing

__all__ = [
    "BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm", "batch_fc", "bilateral_slice", "correlation", "ctr_metric_bundle",
    "fused_elemwise_activation", "fused_embedding_seq_pool", "match_matrix_tensor", "metric_op", "multiclass_nms2", "nn", "partial_concat",
    "partial_sum", "rank_attention", "rnn_impl", "search_pyramid_hash", "sequence_topk_avg_pooling", "shuffle_batch", "tdm_child",
    "tdm_sampler", "tree_conv", "var_conv_2d",
]  # fmt: skip
__getattr__ = missing("fluid.contrib.layers", lambda: globals())
