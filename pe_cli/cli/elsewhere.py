"""What PyTorch, Keras and ONNX call the layers, ops and optimizers of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

#: Name here -> names elsewhere, as they are written there. Names that differ in case and underscores alone need no entry.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "fc": ("Linear", "Dense", "LazyLinear", "Gemm", "InnerProduct"),
    "embedding": ("EmbeddingBag",),
    "conv2d": ("Conv", "Convolution2D", "Conv1d"),
    "conv2d_transpose": ("ConvTranspose2d", "Conv2DTranspose", "ConvTranspose", "Deconvolution"),
    "conv3d": ("Convolution3D",),
    "conv3d_transpose": ("ConvTranspose3d",),
    "pool2d": ("MaxPool2d", "AvgPool2d", "MaxPooling2D", "AveragePooling2D", "MaxPool", "AveragePool", "GlobalAveragePool",
               "GlobalMaxPool", "GlobalAveragePooling2D", "GlobalMaxPooling2D"),
    "pool3d": ("MaxPool3d", "AvgPool3d", "MaxPooling3D", "AveragePooling3D"),
    "adaptive_pool2d": ("AdaptiveAvgPool2d", "AdaptiveMaxPool2d"),
    "adaptive_pool3d": ("AdaptiveAvgPool3d", "AdaptiveMaxPool3d"),
    "batch_norm": ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormalization"),
    "layer_norm": ("LayerNormalization",),
    "group_norm": ("GroupNormalization",),
    "instance_norm": ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "InstanceNormalization"),
    "lrn": ("LocalResponseNorm",),
    "dropout": ("Dropout2d", "SpatialDropout2D", "AlphaDropout"),
    "lstm": ("LSTMCell",),
    "beam": ("BeamSearchDecoder", "dynamic_decode", "beam_search_decode", "BeamSearchScorer"),
    "multiclass_nms": ("NonMaxSuppression", "batched_nms", "nms", "combined_non_max_suppression"),
    "flatten": ("ravel",),
    "reshape": ("view", "Unflatten"),
    "transpose": ("permute", "swapaxes"),
    "concat": ("cat", "Concatenate", "hstack", "vstack"),
    "elementwise_add": ("add", "plus"),
    "elementwise_sub": ("sub", "subtract"),
    "elementwise_mul": ("mul", "multiply"),
    "elementwise_div": ("div", "divide", "true_divide"),
    "elementwise_max": ("maximum",),
    "elementwise_min": ("minimum",),
    "elementwise_pow": ("power",),
    "reduce_sum": ("ReduceSum", "sum_all"),
    "reduce_mean": ("GlobalMean",),
    "reduce_max": ("amax",),
    "reduce_min": ("amin",),
    "reduce_prod": ("prod",),
    "matmul": ("mm", "bmm", "dot", "einsum"),
    "softmax_with_cross_entropy": ("CrossEntropyLoss", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
                                   "SoftmaxCrossEntropyLoss"),
    "cross_entropy": ("NLLLoss", "nll_loss"),
    "sigmoid_cross_entropy_with_logits": ("BCEWithLogitsLoss", "BinaryCrossentropy", "BCELoss", "binary_cross_entropy_with_logits"),
    "mse_loss": ("MeanSquaredError",),
    "smooth_l1": ("SmoothL1Loss", "Huber"),
    "huber_loss": ("HuberLoss",),
    "kldiv_loss": ("KLDivLoss", "KLDivergence"),
    "relu": ("ThresholdedReLU",),
    "leaky_relu": ("LeakyReLU",),
    "prelu": ("PReLU",),
    "elu": ("ELU", "CELU"),
    "gelu": ("GELU",),
    "swish": ("SiLU",),
    "hard_sigmoid": ("Hardsigmoid",),
    "hard_swish": ("Hardswish",),
    "clip": ("clamp", "Hardtanh"),
    "lookup_table": ("Gather",),
    "one_hot": ("CategoryEncoding",),
    "pad2d": ("ZeroPad2d", "ZeroPadding2D", "ReflectionPad2d", "ReplicationPad2d"),
    "resize_bilinear": ("Upsample", "UpSampling2D", "interpolate", "UpsamplingBilinear2d", "Resize"),
    "resize_nearest": ("UpsamplingNearest2d",),
    "image_resize": ("Upsample", "interpolate", "Resize"),
    "pixel_shuffle": ("DepthToSpace",),
    "shuffle_channel": ("ChannelShuffle",),
    "bilinear_tensor_product": ("Bilinear",),
    "cos_sim": ("CosineSimilarity",),
    "margin_rank_loss": ("MarginRankingLoss",),
    "full": ("Fill", "ConstantOfShape"),
    "eye": ("EyeLike",),
    "range": ("arange",),
    "elementwise_mod": ("remainder",),
    "elementwise_floordiv": ("floor_divide",),
    "reduce_all": ("all",),
    "reduce_any": ("any",),
    "top_k": ("topk",),
    "expand": ("tile", "repeat", "broadcast_to"),
    "unsqueeze": ("expand_dims",),
    "multi_head_attention": ("MultiheadAttention", "scaled_dot_product_attention"),
    "SGD": ("GradientDescent",),
    "Momentum": ("SGDMomentum",),
}  # fmt: skip


def plain(name: str) -> str:
    """Return a name without what names of several libraries differ in: case, underscores and hyphens."""
    return "".join(name.lower().replace("_", " ").replace("-", " ").split())


def here(name: str, known: Iterable[str]) -> list[str]:
    """Return what a name of another library is called here, or the same name in another case; empty where nothing is known."""
    names = set(known)
    wanted = plain(name)
    same = sorted(n for n in names if plain(n) == wanted)
    told = [mine for mine, theirs in ELSEWHERE.items() if mine in names and any(plain(t) == wanted for t in theirs)]
    return [*dict.fromkeys([*same, *told])]
