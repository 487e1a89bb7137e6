"""fluid.contrib: what was on trial in the original, as far as it makes sense here."""

from __future__ import annotations

from pe_cli.paddle.fluid.contrib import (
    decoder,
    extend_optimizer,
    layers,
    memory_usage_calc,
    model_stat,
    op_frequence,
    reader,
)
from pe_cli.paddle.fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from pe_cli.paddle.fluid.contrib.extend_optimizer import extend_with_decoupled_weight_decay
from pe_cli.paddle.fluid.contrib.layers import (
    BasicGRUUnit,
    BasicLSTMUnit,
    basic_gru,
    basic_lstm,
    batch_fc,
    bilateral_slice,
    correlation,
    ctr_metric_bundle,
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
from pe_cli.paddle.fluid.contrib.memory_usage_calc import memory_usage
from pe_cli.paddle.fluid.contrib.op_frequence import op_freq_statistic
from pe_cli.paddle.fluid.contrib.reader import distributed_batch_reader
from pe_cli.paddle.reference_names import missing

__all__ = [
    "BasicGRUUnit", "BasicLSTMUnit", "BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "basic_gru", "basic_lstm",
    "batch_fc", "bilateral_slice", "correlation", "ctr_metric_bundle", "decoder", "distributed_batch_reader", "extend_optimizer",
    "extend_with_decoupled_weight_decay", "fused_elemwise_activation", "fused_embedding_seq_pool", "layers", "match_matrix_tensor",
    "memory_usage", "memory_usage_calc", "model_stat", "multiclass_nms2", "op_freq_statistic", "op_frequence", "partial_concat",
    "partial_sum", "rank_attention", "reader", "search_pyramid_hash", "sequence_topk_avg_pooling", "shuffle_batch", "tdm_child",
    "tdm_sampler", "tree_conv", "var_conv_2d",
]  # fmt: skip
__getattr__ = missing("fluid.contrib", lambda: globals())
