"""Every layer: it has a doc, its call in this table builds fluid's ops and types, and it runs for a step."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.layers.define.helper import activations
from pe_cli.layers.define.registry import LAYERS, discover
from pe_cli.program.ir import Variable
from pe_cli.program.verify import verify
from tests.layers import composed_calls, detection_calls, pair_calls, sequence_calls
from tests.layers.support import layers as L
from tests.layers.support import programs, run

BATCH = 3
FEEDS = {
    "x": ([4], "float32"),
    "y": ([4], "float32"),
    "image": ([6, 8, 8], "float32"),
    "volume": ([2, 3], "float32"),
    "probability": ([4], "float32"),
    "yes": ([1], "float32"),
    "answer": ([1], "float32"),
    "label": ([1], "int64"),
    "cube": ([2, 4, 4, 4], "float32"),
    "offset": ([2, 8, 8], "float32"),
    "codes": ([3, 4], "float32"),
    "codes_of_classes": ([2, 3], "float32"),
    "info": ([3], "float32"),
    "size": ([2], "int64"),
    "counts": ([], "int64"),
    "numbers": ([], "float32"),
    "cells": ([8, 2, 3], "float32"),
}

#: Layer -> how it is called, ops it appends, and types of what it returns, with b for the batch axis.
CALLS = {
    "fc": (lambda f: L.fc(f.x, 5, act="relu"), "mul elementwise_add relu", ["float32[b, 5]"]),
    "mul": (lambda f: L.mul(f.volume, L.fill_constant([6, 2], "float32", 1.0)), "fill_constant mul", ["float32[b, 2]"]),
    "matmul": (lambda f: L.matmul(f.x, f.y, transpose_y=True), "matmul", ["float32[b, b]"]),
    "conv2d": (lambda f: L.conv2d(f.image, 5, 3, padding=1), "conv2d elementwise_add", ["float32[b, 5, 8, 8]"]),
    "pool2d": (lambda f: L.pool2d(f.image, 2, "avg", 2), "pool2d", ["float32[b, 6, 4, 4]"]),
    "batch_norm": (lambda f: L.batch_norm(f.image, act="relu"), "batch_norm relu", ["float32[b, 6, 8, 8]"]),
    "layer_norm": (lambda f: L.layer_norm(f.volume), "layer_norm", ["float32[b, 2, 3]"]),
    "l2_normalize": (lambda f: L.l2_normalize(f.x, 1), "square reduce_sum scale rsqrt elementwise_mul",
                     ["float32[b, 4]"]),
    "select": (lambda f: L.select(L.greater_than(f.x, f.y), f.x, f.y), "greater_than select", ["float32[b, 4]"]),
    "dropout": (lambda f: L.dropout(f.x, 0.5), "dropout", ["float32[b, 4]"]),
    "cross_entropy": (lambda f: L.cross_entropy(f.probability, f.label), "cross_entropy", ["float32[b, 1]"]),
    "softmax_with_cross_entropy": (
        lambda f: L.softmax_with_cross_entropy(f.x, f.label, return_softmax=True),
        "softmax_with_cross_entropy", ["float32[b, 1]", "float32[b, 4]"],
    ),
    "sigmoid_cross_entropy_with_logits": (
        lambda f: L.sigmoid_cross_entropy_with_logits(f.x, f.probability),
        "sigmoid_cross_entropy_with_logits", ["float32[b, 4]"],
    ),
    "square_error_cost": (lambda f: L.square_error_cost(f.x, f.y), "square_error_cost", ["float32[b, 4]"]),
    "mse_loss": (lambda f: L.mse_loss(f.x, f.y), "mse_loss", ["float32[1]"]),
    "smooth_l1": (lambda f: L.smooth_l1(f.x, f.y), "smooth_l1_loss", ["float32[b, 1]"]),
    "huber_loss": (lambda f: L.huber_loss(f.yes, f.answer, 1.0), "huber_loss", ["float32[b, 1]"]),
    "log_loss": (lambda f: L.log_loss(f.yes, f.answer), "log_loss", ["float32[b, 1]"]),
    "kldiv_loss": (lambda f: L.kldiv_loss(f.x, f.probability), "kldiv_loss", ["float32[1]"]),
    "mean": (lambda f: L.mean(f.x), "mean", ["float32[1]"]),
    "sums": (lambda f: L.sums([f.x, f.y]), "sum", ["float32[b, 4]"]),
    "sum": (lambda f: L.sum([f.x, f.y, f.x]), "sum", ["float32[b, 4]"]),
    "scale": (lambda f: L.scale(f.x, 2.0, 1.0), "scale", ["float32[b, 4]"]),
    "clip": (lambda f: L.clip(f.x, -0.5, 0.5), "clip", ["float32[b, 4]"]),
    "reshape": (lambda f: L.reshape(f.volume, [0, 3, 2]), "reshape", ["float32[b, 3, 2]"]),
    "transpose": (lambda f: L.transpose(f.volume, [0, 2, 1]), "transpose", ["float32[b, 3, 2]"]),
    "concat": (lambda f: L.concat([f.x, f.y], axis=1), "concat", ["float32[b, 8]"]),
    "split": (lambda f: L.split(f.x, [1, 3]), "split", ["float32[b, 1]", "float32[b, 3]"]),
    "squeeze": (lambda f: L.squeeze(f.yes, [1]), "squeeze", ["float32[b]"]),
    "unsqueeze": (lambda f: L.unsqueeze(f.x, [1]), "unsqueeze", ["float32[b, 1, 4]"]),
    "flatten": (lambda f: L.flatten(f.image), "flatten", ["float32[b, 384]"]),
    "slice": (lambda f: L.slice(f.x, [1], [1], [3]), "slice", ["float32[b, 2]"]),
    "stack": (lambda f: L.stack([f.x, f.y], axis=1), "stack", ["float32[b, 2, 4]"]),
    "unstack": (lambda f: L.unstack(f.volume, axis=1), "unstack", ["float32[b, 3]"] * 2),
    "tril": (lambda f: L.tril(f.volume), "tril_triu", ["float32[b, 2, 3]"]),
    "triu": (lambda f: L.triu(f.volume, 1), "tril_triu", ["float32[b, 2, 3]"]),
    "acos": (lambda f: L.acos(f.yes), "acos", ["float32[b, 1]"]),
    "asin": (lambda f: L.asin(f.yes), "asin", ["float32[b, 1]"]),
    "atan": (lambda f: L.atan(f.yes), "atan", ["float32[b, 1]"]),
    "reverse": (lambda f: L.reverse(f.x, 1), "reverse", ["float32[b, 4]"]),
    "expand": (lambda f: L.expand(f.x, [1, 2]), "expand", ["float32[b, 8]"]),
    "pad": (lambda f: L.pad(f.x, [0, 0, 1, 2], 0.5), "pad", ["float32[b, 7]"]),
    "gather": (lambda f: L.gather(L.fill_constant([4, 5], "float32", 1.0), f.label), "fill_constant gather",
               ["float32[b, 5]"]),
    "cast": (lambda f: L.cast(f.x, "int64"), "cast", ["int64[b, 4]"]),
    "one_hot": (lambda f: L.one_hot(f.label, 4), "one_hot", ["float32[b, 4]"]),
    "embedding": (lambda f: L.embedding(f.label, [4, 6]), "lookup_table", ["float32[b, 6]"]),
    "accuracy": (lambda f: L.accuracy(f.probability, f.label, k=2), "top_k accuracy", ["float32[1]"]),
    "topk": (lambda f: L.topk(f.x, 2), "top_k", ["float32[b, 2]", "int64[b, 2]"]),
    "argmax": (lambda f: L.argmax(f.x, axis=1), "arg_max", ["int64[b]"]),
    "fill_constant": (lambda f: L.fill_constant([2], "int64", 3), "fill_constant", ["int64[2]"]),
    "zeros": (lambda f: L.zeros([2], "float32"), "fill_constant", ["float32[2]"]),
    "ones": (lambda f: L.ones([2], "float64"), "fill_constant", ["float64[2]"]),
    "zeros_like": (lambda f: L.zeros_like(f.x), "fill_like", ["float32[b, 4]"]),
    "ones_like": (lambda f: L.ones_like(f.x), "fill_like", ["float32[b, 4]"]),
    "assign": (lambda f: L.assign(f.x), "assign", ["float32[b, 4]"]),
    "uniform_random": (lambda f: L.uniform_random([2, 3]), "uniform_random", ["float32[2, 3]"]),
    "gaussian_random": (lambda f: L.gaussian_random([2, 3], dtype="float64"), "gaussian_random", ["float64[2, 3]"]),
    "lstm": (lambda f: L.lstm(f.volume, 5), "padded_lstm stack stack",
             ["float32[b, 2, 5]", "float32[1, b, 5]", "float32[1, b, 5]"]),
    **{kind: (lambda f, kind=kind: getattr(L, kind)(f.volume, 5),
              "transpose matmul elementwise_add fill_constant_batch_size_like scan transpose stack",
              ["float32[b, 2, 5]", "float32[1, b, 5]"])
       for kind in ("gru", "simple_rnn")},
    "gather_tree": (lambda f: L.gather_tree(L.fill_constant([3, 2, 2], "int64", 1.0), L.fill_constant([3, 2, 2], "int64", 1.0)),
                    "fill_constant fill_constant gather_tree", ["int64[3, 2, 2]"]),
    "gru_unit": (
        lambda f: L.gru_unit(L.fc(f.x, 12), f.y, 12, bias_attr=False, activation="identity"),
        ("mul elementwise_add reshape slice reshape slice reshape slice mul elementwise_add sigmoid slice slice elementwise_mul slice mul "
         "elementwise_add elementwise_sub elementwise_mul elementwise_add concat"),
        ["float32[b, 4]", "float32[b, 4]", "float32[b, 12]"],
    ),
    "lstm_unit": (lambda f: L.lstm_unit(f.x, f.y, f.x), "concat mul elementwise_add lstm_unit", ["float32[b, 4]", "float32[b, 4]"]),
    "attention": (lambda f: L.attention(f.volume, f.volume, f.volume, num_heads=3), "attention", ["float32[b, 2, 3]"]),
    "multi_head_attention": (
        lambda f: L.multi_head_attention(f.volume, 3), "mul elementwise_add attention mul elementwise_add",
        ["float32[b, 2, 3]"],
    ),
    "create_parameter": (lambda f: L.create_parameter([2, 3], "float32"), "", ["float32[2, 3]"]),
    "data": (lambda f: L.data("more", [2]), "", ["float32[b, 2]"]),
}  # fmt: skip
for _name in activations():
    CALLS[_name] = (lambda f, n=_name: getattr(L, n)(f.probability), _name, ["float32[b, 4]"])
for _kind in ("add", "sub", "mul", "div", "max", "min", "pow"):
    _op = f"elementwise_{_kind}"
    CALLS[_op] = (lambda f, n=_op: getattr(L, n)(f.probability, f.y, act="tanh"), f"{_op} tanh", ["float32[b, 4]"])
_FOUR = "float32[8, 8, 1, 4]"
CALLS |= {
    "adaptive_pool2d": (
        lambda f: [L.adaptive_pool2d(f.image, 4), L.adaptive_pool2d(f.image, [3, 5], "avg")],
        "pool2d unsqueeze pool3d squeeze",
        ["float32[b, 6, 4, 4]", "float32[b, 6, 3, 5]"],
    ),
    "adaptive_pool3d": (lambda f: L.adaptive_pool3d(f.cube, [2, 3, 1], "avg"), "pool3d", ["float32[b, 2, 2, 3, 1]"]),
    "affine_grid": (lambda f: L.affine_grid(f.volume, [3, 1, 4, 5]), "affine_grid", ["float32[b, 4, 5, 2]"]),
    "anchor_generator": (lambda f: L.anchor_generator(f.image, [8.0], [1.0]), "anchor_generator", [_FOUR] * 2),
    "box_coder": (
        lambda f: L.box_coder(f.x, None, f.codes, "decode_center_size", axis=1), "box_coder", ["float32[b, 3, 4]"],
    ),
    "box_decoder_and_assign": (
        lambda f: L.box_decoder_and_assign(f.x, L.fill_constant([4], "float32", 0.1), f.y, f.answer, 4.0),
        "fill_constant box_decoder_and_assign",
        ["float32[b, 4]"] * 2,
    ),
    "deformable_conv": (
        lambda f: L.deformable_conv(f.image, f.offset, None, 4, 1, groups=2, modulated=False),
        "deformable_im2col reshape slice slice matmul slice slice matmul concat reshape elementwise_add",
        ["float32[b, 4, 8, 8]"],
    ),
    "density_prior_box": (
        lambda f: L.density_prior_box(f.image, f.image, [1], [2.0], [1.0], flatten_to_2d=True),
        "density_prior_box reshape reshape",
        ["float32[64, 4]"] * 2,
    ),
    "hsigmoid": (lambda f: L.hsigmoid(f.x, f.label, 4), "hierarchical_sigmoid", ["float32[b, 1]"]),
    "iou_similarity": (lambda f: L.iou_similarity(f.x, f.y), "iou_similarity", ["float32[b, b]"]),
    "conv3d": (
        lambda f: L.conv3d(f.cube, 4, [2, 3, 3], padding=[0, 1, 1, 1, 0, 1], groups=2, act="relu"),
        "depth_windows reshape pad reshape conv2d reshape transpose elementwise_add relu",
        ["float32[b, 4, 4, 4, 3]"],
    ),
    "conv3d_transpose": (
        lambda f: L.conv3d_transpose(f.cube, 3, filter_size=1, bias_attr=False),
        "transpose reshape reshape conv2d_transpose reshape depth_overlay",
        ["float32[b, 3, 4, 4, 4]"],
    ),
    "data_norm": (
        lambda f: L.data_norm(f.x, enable_scale_and_shift=True),
        "elementwise_div elementwise_div sqrt elementwise_sub elementwise_mul elementwise_mul elementwise_add",
        ["float32[b, 4]"],
    ),
    "resize_trilinear": (lambda f: L.resize_trilinear(f.cube, scale=2.0), "trilinear_interp", ["float32[b, 2, 8, 8, 8]"]),
    "similarity_focus": (lambda f: L.similarity_focus(f.image, 1, [0, 5]), "similarity_focus", ["float32[b, 6, 8, 8]"]),
    "spectral_norm": (
        lambda f: L.spectral_norm(L.fill_constant([3, 4], "float32", 2.0), power_iters=0),
        "fill_constant reshape reshape reshape matmul matmul reshape elementwise_div",
        ["float32[3, 4]"],
    ),
    "unfold": (lambda f: L.unfold(f.image, [2, 3], 2, [1, 0], [1, 2]), "unfold", ["float32[b, 36, 10]"]),
    "pool3d": (lambda f: L.pool3d(f.cube, 2, "avg", 2), "pool3d", ["float32[b, 2, 2, 2, 2]"]),
    "prior_box": (lambda f: L.prior_box(f.image, f.image, [2.0], [3.0]), "prior_box", ["float32[8, 8, 2, 4]"] * 2),
    "random_crop": (lambda f: L.random_crop(f.image, [5, 4]), "random_crop", ["float32[b, 6, 5, 4]"]),
    "randperm": (lambda f: L.randperm(5), "randperm", ["int64[5]"]),
    "argsort": (lambda f: L.argsort(f.x), "argsort", ["float32[b, 4]", "int64[b, 4]"]),
    "cumsum": (lambda f: L.cumsum(f.volume, 1), "cumsum", ["float32[b, 2, 3]"]),
    "gather_nd": (lambda f: L.gather_nd(f.x, f.size), "gather_nd", ["float32[b]"]),
    "grid_sampler": (
        lambda f: L.grid_sampler(f.image, L.affine_grid(f.volume, [3, 1, 4, 5])),
        "affine_grid grid_sampler",
        ["float32[b, 6, 4, 5]"],
    ),
    "pad2d": (lambda f: L.pad2d(f.image, [1, 2, 0, 3], "edge"), "pad2d", ["float32[b, 6, 11, 11]"]),
    "resize_bilinear": (lambda f: L.resize_bilinear(f.image, [4, 12]), "bilinear_interp", ["float32[b, 6, 4, 12]"]),
    "resize_nearest": (lambda f: L.resize_nearest(f.image, scale=0.5), "nearest_interp", ["float32[b, 6, 4, 4]"]),
    "scatter": (lambda f: L.scatter(f.x, f.counts, f.y), "scatter", ["float32[b, 4]"]),
    "scatter_nd_add": (lambda f: L.scatter_nd_add(f.x, f.size, f.numbers), "scatter_nd_add", ["float32[b, 4]"]),
    "multi_box_head": (
        lambda f: L.multi_box_head([f.image], f.image, 8.0, 3, [[2.0]], min_sizes=[[2.0]], max_sizes=[[4.0]]),
        "prior_box conv2d elementwise_add transpose reshape conv2d elementwise_add transpose reshape reshape reshape",
        ["float32[b, 256, 4]", "float32[b, 256, 3]", "float32[256, 4]", "float32[256, 4]"],
    ),
    "multiclass_nms": (
        lambda f: L.multiclass_nms(f.codes, f.codes_of_classes, 0.1, -1, 5), "padded_nms", ["float32[b, 5, 6]", "int32[b, 1]"],
    ),
    "matrix_nms": (
        lambda f: L.matrix_nms(f.codes, f.codes_of_classes, 0.1, 0.0, -1, 5), "padded_matrix_nms", ["float32[b, 5, 6]", "int32[b, 1]"],
    ),
    "locality_aware_nms": (
        lambda f: L.locality_aware_nms(f.codes, f.codes_of_classes, 0.1, -1, 5), "padded_locality_nms", ["float32[b, 5, 6]", "int32[b, 1]"],
    ),
    "generate_proposals": (
        lambda f: L.generate_proposals(
            f.offset, L.concat([f.offset] * 4, axis=1), f.info, *(L.fill_constant([8, 8, 2, 4], "float32", 0.5) for _ in range(2)),
            post_nms_top_n=5,
        ),
        "concat fill_constant fill_constant padded_proposals", ["float32[b, 5, 4]", "float32[b, 5, 1]", "int32[b, 1]"],
    ),
    "detection_output": (
        lambda f: L.detection_output(f.codes, f.codes, *(L.fill_constant([3, 4], "float32", 0.5) for _ in range(2)), keep_top_k=5),
        "fill_constant fill_constant box_coder softmax transpose padded_nms",
        ["float32[b, 5, 6]", "int32[b, 1]"],
    ),
    "box_clip": (lambda f: L.box_clip(f.codes, f.info), "box_clip", ["float32[b, 3, 4]"]),
    "yolo_box": (
        lambda f: L.yolo_box(f.image, f.size, [3, 4], 1, 0.01, 8), "yolo_box", ["float32[b, 64, 4]", "float32[b, 64, 1]"],
    ),
}  # fmt: skip
for _op in ("prroi_pool", "roi_align", "roi_pool"):
    CALLS[_op] = (
        lambda f, n=_op: getattr(L, n)(f.image, f.x, pooled_height=2, batch_roi_nums=f.counts), _op, ["float32[b, 6, 2, 1]"],
    )  # fmt: skip
CALLS |= {
    "psroi_pool": (
        lambda f: L.psroi_pool(f.image, f.x, 3, pooled_width=2, batch_roi_nums=f.counts), "psroi_pool", ["float32[b, 3, 1, 2]"],
    ),
    "deformable_roi_pooling": (
        lambda f: L.deformable_roi_pooling(f.image, f.x, None, True, pooled_width=2, batch_roi_nums=f.counts),
        "deformable_psroi_pooling",
        ["float32[b, 6, 1, 2]"],
    ),
    "roi_perspective_transform": (
        lambda f: L.roi_perspective_transform(f.image, L.concat([f.x, f.x], 1), 3, 4, batch_roi_nums=f.counts),
        "concat roi_perspective_transform",
        ["float32[b, 6, 3, 4]", "int32[b, 1, 3, 4]", "float32[b, 9]"],
    ),
}  # fmt: skip
for _kind in ("sum", "mean", "max", "min", "prod"):
    _op = f"reduce_{_kind}"
    CALLS[_op] = (lambda f, n=_op: getattr(L, n)(f.volume, dim=[1], keep_dim=True), _op, ["float32[b, 1, 3]"])


class Feeds:
    """Data variables, declared when they are first used."""

    def __init__(self):
        self.used = {}

    def __getattr__(self, name):
        if name in sequence_calls.FEEDS and name not in self.used:
            shape, dtype = sequence_calls.FEEDS[name]
            self.used[name] = L.data(name, shape, dtype=dtype, lod_level=1)
        elif name not in self.used:
            self.used[name] = L.data(name, *FEEDS[name][:1], dtype=FEEDS[name][1])
        return self.used[name]


for _op in ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"):
    CALLS[_op] = (lambda f, n=_op: getattr(L, n)(f.probability, f.probability), _op, ["bool[b, 4]"])
for _op in ("logical_and", "logical_or", "logical_xor"):
    CALLS[_op] = (lambda f, n=_op: getattr(L, n)(L.cast(f.x, "bool"), L.cast(f.x, "bool")), f"cast cast {_op}", ["bool[b, 4]"])
for _op in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
    CALLS[_op] = (lambda f, n=_op: getattr(L, n)(f.label, f.label), _op, ["int64[b, 1]"])
CALLS |= {
    "bitwise_not": (lambda f: L.bitwise_not(f.label), "bitwise_not", ["int64[b, 1]"]),
    "bitcast": (lambda f: L.bitcast(f.x, "int32"), "bitcast", ["int32[b, 4]"]),
    "cumprod": (lambda f: L.cumprod(f.x), "cumprod", ["float32[b, 4]"]),
    "take_along_axis": (lambda f: L.take_along_axis(f.x, f.label), "take_along_axis", ["float32[b, 1]"]),
    "put_along_axis": (lambda f: L.put_along_axis(f.x, f.label, f.yes), "put_along_axis", ["float32[b, 4]"]),
    "grid_sample": (
        lambda f: L.grid_sample(f.image, L.affine_grid(f.volume, [3, 1, 4, 5]), "bicubic"), "affine_grid grid_sample",
        ["float32[b, 6, 4, 5]"],
    ),
    "logical_not": (lambda f: L.logical_not(L.cast(f.x, "bool")), "cast logical_not", ["bool[b, 4]"]),
    "increment": (lambda f: L.increment(L.mean(f.x), 2.0), "mean increment", ["float32[1]"]),
    "fill_constant_batch_size_like": (
        lambda f: L.fill_constant_batch_size_like(f.x, [-1, 7], "int64", 3.0),
        "fill_constant_batch_size_like", ["int64[b, 7]"],
    ),
    "conv2d_transpose": (
        lambda f: L.conv2d_transpose(f.image, 6, filter_size=4, stride=2, padding=1, act="relu"),
        "conv2d_transpose elementwise_add relu", ["float32[b, 6, 16, 16]"],
    ),
    "uniform_random_batch_size_like": (
        lambda f: L.uniform_random_batch_size_like(f.x, [-1, 7]), "uniform_random_batch_size_like", ["float32[b, 7]"],
    ),
    "gaussian_random_batch_size_like": (
        lambda f: L.gaussian_random_batch_size_like(f.x, [-1, 7]), "gaussian_random_batch_size_like", ["float32[b, 7]"],
    ),
}
_SIGMOID, _UNIT = "sigmoid_cross_entropy_with_logits", "square reduce_sum scale rsqrt elementwise_mul"
_COSINE = "square reduce_sum scale square reduce_sum scale elementwise_mul sqrt elementwise_div"
_LOGSUMEXP = "reduce_max elementwise_sub exp reduce_sum log elementwise_add"
_TURNED = "slice slice concat"
_D = "elementwise_sub scale square reduce_sum sqrt"
CALLS |= {
    "label_smooth": (lambda f: L.label_smooth(f.probability), "scale", ["float32[b, 4]"]),
    "smoothed_cross_entropy": (
        lambda f: L.smoothed_cross_entropy(f.x, f.label),
        "softmax_with_cross_entropy log_softmax reduce_mean fill_like fill_like not_equal select scale scale elementwise_add",
        ["float32[b, 1]"],
    ),
    "focal_loss": (
        lambda f: L.focal_loss(f.x, f.label), "softmax_with_cross_entropy scale exp scale relu pow elementwise_mul", ["float32[b, 1]"],
    ),
    "binary_focal_loss": (
        lambda f: L.binary_focal_loss(f.x, f.y),
        f"{_SIGMOID} sigmoid elementwise_mul scale elementwise_add elementwise_sub relu pow elementwise_mul scale elementwise_mul",
        ["float32[b, 4]"],
    ),
    "dice_loss": (
        lambda f: L.dice_loss(f.probability, f.label),
        "one_hot elementwise_mul reduce_sum reduce_sum reduce_sum elementwise_add scale scale elementwise_div scale mean", ["float32[1]"],
    ),
    "contrastive_loss": (
        lambda f: L.contrastive_loss(f.x, f.y, f.label),
        f"cast {_D} square elementwise_mul scale relu scale square elementwise_mul elementwise_add", ["float32[b, 1]"],
    ),
    "triplet_margin_loss": (
        lambda f: L.triplet_margin_loss(f.x, f.y, f.probability), f"{_D} {_D} elementwise_sub scale relu", ["float32[b, 1]"],
    ),
    "info_nce": (
        lambda f: L.info_nce(f.x, f.y),
        f"{_UNIT} {_UNIT} elementwise_mul reduce_sum scale matmul {_LOGSUMEXP} elementwise_sub",
        ["float32[b, 1]"],
    ),
    "cosine_embedding_loss": (
        lambda f: L.cosine_embedding_loss(f.x, f.y, f.yes),
        f"elementwise_mul reduce_sum {_COSINE} scale scale scale elementwise_mul scale relu elementwise_mul elementwise_add",
        ["float32[b, 1]"],
    ),
    "quantile_loss": (lambda f: L.quantile_loss(f.x, f.y, 0.9), "elementwise_sub scale scale elementwise_max", ["float32[b, 4]"]),
    "weibull_nll_loss": (
        lambda f: L.weibull_nll_loss(f.x, f.y, f.probability, f.y),
        "exp elementwise_sub elementwise_mul scale elementwise_add elementwise_mul exp elementwise_sub", ["float32[b, 4]"],
    ),
    "poisson_nll_loss": (lambda f: L.poisson_nll_loss(f.x, f.y), "exp elementwise_mul elementwise_sub", ["float32[b, 4]"]),
}  # fmt: skip
for _op in ("cosh", "erf", "log10", "log1p", "log2", "sinh", "tan"):
    CALLS[_op] = (lambda f, n=_op: getattr(L, n)(f.probability), _op, ["float32[b, 4]"])
CALLS |= {
    "isnan": (lambda f: L.isnan(f.x), "not_equal", ["bool[b, 4]"]),
    "isinf": (lambda f: L.isinf(f.x), "fill_constant abs equal", ["bool[b, 4]"]),
    "isfinite": (lambda f: L.isfinite(f.label), "cast fill_constant abs less_than", ["bool[b, 1]"]),
    "bmm": (lambda f: L.bmm(f.volume, L.transpose(f.volume, [0, 2, 1])), "transpose matmul", ["float32[b, 2, 2]"]),
    "einsum": (lambda f: L.einsum("bi,bj->bij", [f.x, f.y]), "reshape reshape matmul", ["float32[b, 4, 4]"]),
    "mv": (lambda f: L.mv(f.x, L.fill_constant([4], "float32", 2.0)), "fill_constant unsqueeze matmul squeeze", ["float32[b]"]),
    "dot": (lambda f: L.dot(f.x, f.y), "elementwise_mul reduce_sum", ["float32[b, 1]"]),
    "addmm": (
        lambda f: L.addmm(f.x, f.y, L.fill_constant([4, 4], "float32", 2.0), 0.5, 2.0),
        "fill_constant matmul scale elementwise_add", ["float32[b, 4]"],
    ),
    "kron": (
        lambda f: L.kron(f.x, L.fill_constant([1, 3], "float32", 2.0)),
        "fill_constant reshape reshape elementwise_mul reshape", ["float32[b, 12]"],
    ),
    "cross": (
        lambda f: L.cross(f.volume, f.volume, axis=2),
        f"{_TURNED} {_TURNED} elementwise_mul {_TURNED} {_TURNED} elementwise_mul elementwise_sub", ["float32[b, 2, 3]"],
    ),
    "logsumexp": (
        lambda f: L.logsumexp(f.x, 1), "reduce_max elementwise_sub exp reduce_sum log reduce_max elementwise_add", ["float32[b]"],
    ),
    "var": (lambda f: L.var(f.x, 1), "reduce_mean elementwise_sub square reduce_mean scale", ["float32[b]"]),
    "std": (lambda f: L.std(f.x, 1, keepdim=True), "reduce_mean elementwise_sub square reduce_mean scale sqrt", ["float32[b, 1]"]),
    "norm": (lambda f: L.norm(f.x, 3.0, [1]), "abs pow reduce_sum pow", ["float32[b]"]),
    "dist": (lambda f: L.dist(f.x, f.y, 1.0), "elementwise_sub abs reduce_sum", ["float32[1]"]),
    "median": (lambda f: L.median(f.x, 1), "argsort slice reduce_mean", ["float32[b]"]),
    "tile": (lambda f: L.tile(f.x, [2, 1, 3]), "unsqueeze expand", ["float32[2, b, 12]"]),
    "broadcast_to": (lambda f: L.broadcast_to(f.yes, [2, -1, 3]), "unsqueeze expand", ["float32[2, b, 3]"]),
    "roll": (lambda f: L.roll(f.x, 1, 1), "slice slice concat", ["float32[b, 4]"]),
    "index_select": (lambda f: L.index_select(f.x, f.counts, 1), "transpose gather transpose", ["float32[b, b]"]),
    "index_sample": (lambda f: L.index_sample(f.x, f.label), "fill_like cumsum stack gather_nd", ["float32[b, 1]"]),
    "meshgrid": (
        lambda f: L.meshgrid([L.ones([2], "float32"), L.ones([3], "float32")]),
        "fill_constant fill_constant reshape expand reshape expand", ["float32[2, 3]"] * 2,
    ),
    "diag_embed": (lambda f: L.diag_embed(f.x, 1), "unsqueeze pad reshape pad slice reshape", ["float32[b, 5, 5]"]),
    "inverse": (lambda f: L.inverse(L.diag_embed(f.probability)), "unsqueeze pad reshape slice reshape inverse", ["float32[b, 4, 4]"]),
    "cholesky": (lambda f: L.cholesky(L.diag_embed(f.probability)), "unsqueeze pad reshape slice reshape cholesky", ["float32[b, 4, 4]"]),
    "histogram": (lambda f: L.histogram(f.x, 5), "histogram", ["int64[5]"]),
    "trace": (lambda f: L.trace(f.volume, 1, 1, 2), "slice reshape pad reshape slice reduce_sum", ["float32[b]"]),
}
CALLS |= {
    "auc": (lambda f:
        L.auc(L.softmax(L.fc(f.x, 2)), f.label, num_thresholds=9)[:2], "mul elementwise_add softmax auc auc", ["float64[1]"] * 2,
    ),
    "center_loss": (lambda f: L.center_loss(f.x, f.label, 4, 0.5), "fill_constant center_loss", ["float32[b, 1]"]),
    "mean_iou": (lambda f: L.mean_iou(f.label, f.label, 4), "mean_iou", ["float32[1]", "int32[4]", "int32[4]"]),
    "nce": (
        lambda f: L.nce(f.x, f.label, 4, num_neg_samples=2, bias_attr=False),
        "sample_classes lookup_table_v2 reshape expand elementwise_mul reduce_sum nce_cost scale", ["float32[b, 1]"],
    ),
    "sampled_softmax_with_cross_entropy": (
        lambda f: L.sampled_softmax_with_cross_entropy(f.probability, f.label, 2),
        "sample_logits log_softmax slice reduce_sum scale", ["float32[b, 1]"],
    ),
    "sampling_id": (lambda f: L.sampling_id(f.probability), "sampling_id", ["int64[b]"]),
    "continuous_value_model": (
        lambda f: L.continuous_value_model(f.probability, L.slice(f.probability, [1], [0], [2])), "slice cvm", ["float32[b, 4]"],
    ),
    "teacher_student_sigmoid_loss": (
        lambda f: L.teacher_student_sigmoid_loss(f.probability, f.probability), "teacher_student_sigmoid_loss", ["float32[b, 4]"],
    ),
    "ctc_greedy_decoder": (
        lambda f: L.ctc_greedy_decoder(L.expand(L.unsqueeze(f.probability, [1]), [1, 3, 1]), 0, f.counts),
        "unsqueeze expand top_k squeeze ctc_align", ["int64[b, 3]", "int64[b, 1]"],
    ),
    "hash": (lambda f: L.hash(f.label, 10, 2), "hash", ["int64[b, 2, 1]"]),
    "chunk_eval": (
        lambda f: L.chunk_eval(f.label, f.label, "plain", 4, seq_length=f.counts), "chunk_eval", ["float32[1]"] * 3 + ["int64[1]"] * 3,
    ),
}  # fmt: skip
CALLS |= sequence_calls.CALLS | composed_calls.CALLS | detection_calls.CALLS | pair_calls.CALLS
SHAPES = sequence_calls.SHAPES | composed_calls.SHAPES | detection_calls.SHAPES | pair_calls.SHAPES


def arrays(rng, names):
    """Return a batch for each feed; probabilities sum to 1, labels are below 4."""
    out = {}
    for name in names:
        if name in sequence_calls.FEEDS:
            out |= {name: sequence_calls.array(rng, name), f"{name}@LOD0": sequence_calls.OFFSETS}
            continue
        shape, dtype = FEEDS.get(name, ([2], "float32"))
        made = rng.uniform(0.1, 0.9, (BATCH, *shape)).astype(dtype)
        if name == "label":
            made = rng.integers(0, 4, (BATCH, *shape))
        if name == "counts":
            made = np.ones(BATCH, "int64")
        if name == "probability":
            made /= made.sum(1, keepdims=True)
        out[name] = made
    return out


def shown(v: Variable) -> str:
    return str(v.type).replace("batch", "b")


def run_example(name, folder, rng):
    """Run the model file of a layer that has no call in the table for a step."""
    (folder / "m.yaml").write_text(discover()[name].example)
    built = build(load_model(folder / "m.yaml"))
    block = built.eval.global_block()
    feed = {v.name: rng.uniform(0.1, 0.9, (BATCH, *v.shape[1:])).astype(v.dtype) for v in block.vars.values() if v.is_data}
    (last,) = block.ops[-1].output_names()[:1]
    (value,) = run(built.eval, built.startup, feed, [last])
    assert np.isfinite(value).all()


@pytest.mark.parametrize("name", sorted({*discover(), *CALLS}))
def test_the_call_builds_what_fluid_builds_and_runs(name, rng, tmp_path):
    if name not in CALLS:
        run_example(name, tmp_path, rng)
        return
    call, ops, types = CALLS[name]
    with programs() as (main, startup):
        feeds = Feeds()
        made = call(feeds)
        found = list(made) if isinstance(made, (list, tuple)) else [made]
        assert [op.type for op in main.global_block().ops] == ops.split()
        assert [shown(v) for v in found] == types
        verify(main)
        verify(startup)
        if ops:
            values = run(main, startup, arrays(rng, feeds.used), found)
            for i, (value, text) in enumerate(zip(values, types, strict=True)):
                assert str(value.dtype) == text.split("[")[0]
                sizes = [int(s) for s in text.split("[")[1][:-1].replace("b", str(BATCH)).split(",") if s]
                assert list(value.shape) == SHAPES.get(name, {i: sizes})[i]
                assert np.isfinite(value).all()


@pytest.mark.parametrize("name", sorted(discover()))
def test_every_layer_documents_its_arguments(name):
    doc = LAYERS[name].doc
    assert doc.split("\n")[0].rstrip().endswith("."), "the first line is a sentence"
    for section in ("Args:", "Returns:", "Source:"):
        assert f"\n{section}\n" in doc, f"no {section}"
    listed = doc.split("\nArgs:\n")[1].split("\nReturns:\n")[0]
    for argument in inspect.signature(LAYERS[name].fn).parameters:
        if argument != "name":
            assert f"    {argument}:" in listed, f"argument {argument} is not documented"


@pytest.mark.parametrize("name", sorted(discover()))
def test_the_input_of_a_layer_is_implied_by_its_first_argument(name):
    required = [a for a in LAYERS[name].args.values() if a.required and a.kind in ("variable", "variables")]
    assert LAYERS[name].implied == (required[0].name if required else None)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("fc", "input size num_flatten_dims=1 param_attr=None bias_attr=None act=None"),
        ("matmul", "x y transpose_x=False transpose_y=False alpha=1.0"),
        ("cross_entropy", "input label soft_label=False ignore_index=-100"),
        ("dropout", "x dropout_prob is_test=False seed=None dropout_implementation='downgrade_in_infer'"),
        (
            "layer_norm",
            "input scale=True shift=True begin_norm_axis=1 epsilon=1e-05 param_attr=None bias_attr=None act=None",
        ),
        ("leaky_relu", "x alpha=0.02"),
        ("softshrink", "x alpha=0.5"),
        ("relu6", "x threshold=6.0"),
        ("softmax", "input axis=-1"),
        ("accuracy", "input label k=1 correct=None total=None"),
        ("reduce_sum", "input dim=None keep_dim=False"),
        ("elementwise_add", "x y axis=-1 act=None"),
        ("fill_constant", "shape dtype value out=None"),
    ],
    ids=lambda v: v if " " not in v else "",
)
def test_arguments_and_defaults_are_fluids(name, signature):
    parameters = inspect.signature(discover()[name].fn).parameters.values()
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert " ".join(s for s in shown if s != "name=None") == signature
