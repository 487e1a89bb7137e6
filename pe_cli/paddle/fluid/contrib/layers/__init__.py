"""fluid.contrib.layers: layers that were on trial in the original."""

from __future__ import annotations

from pe_cli.paddle.fluid.contrib.layers import metric_op, nn, rnn_impl
from pe_cli.paddle.fluid.contrib.layers.metric_op import ctr_metric_bundle
from pe_cli.paddle.fluid.contrib.layers.nn import (
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    multiclass_nms2,
    partial_concat,
    partial_sum,
    shuffle_batch,
    tdm_child,
)
from pe_cli.paddle.fluid.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from pe_cli.paddle.names import missing

__all__ = [
    "BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm", "ctr_metric_bundle", "fused_elemwise_activation",
    "fused_embedding_seq_pool", "metric_op", "multiclass_nms2", "nn", "partial_concat", "partial_sum", "rnn_impl", "shuffle_batch",
    "tdm_child",
]  # fmt: skip
__getattr__ = missing("fluid.contrib.layers", lambda: globals())
