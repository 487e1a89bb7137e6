"""Calls of layers that are made of several ops, for the table of test_catalogue.py."""

from __future__ import annotations

from tests.layers.support import layers as L

_NPAIR = (
    "cast reshape fill_like matmul transpose equal cast reduce_sum elementwise_div square reduce_sum square reduce_sum mean mean "
    "elementwise_add scale matmul reduce_max elementwise_sub exp reduce_sum log elementwise_add elementwise_mul reduce_sum "
    "elementwise_sub elementwise_mul reduce_sum mean elementwise_add"
)
_FOCAL = "sigmoid_cross_entropy_with_logits sigmoid elementwise_sub abs scale cast elementwise_mul pow elementwise_mul"
#: How many rows come out where that is not the batch: name -> sizes of each output.
SHAPES = {"im2sequence": {0: [45, 36]}}
CALLS = {
    "group_norm": (
        lambda f: L.group_norm(f.image, 3, act="relu"),
        "group_norm relu", ["float32[b, 6, 8, 8]"],
    ),
    "instance_norm": (
        lambda f: L.instance_norm(f.image, bias_attr=False),
        "group_norm", ["float32[b, 6, 8, 8]"],
    ),
    "inplace_abn": (lambda f: L.inplace_abn(f.image, "leaky_relu", act_alpha=0.1), "batch_norm leaky_relu", ["float32[b, 6, 8, 8]"]),
    "lrn": (lambda f: L.lrn(f.image, 2), "square pad slice slice sum scale pow elementwise_mul", ["float32[b, 6, 8, 8]"]),
    "selu": (lambda f: L.selu(f.x), "elu scale", ["float32[b, 4]"]),
    "prelu": (lambda f: L.prelu(f.image, "channel"), "scale relu scale relu elementwise_mul elementwise_add", ["float32[b, 6, 8, 8]"]),
    "maxout": (lambda f: L.maxout(f.image, 2), "reshape reduce_max", ["float32[b, 3, 8, 8]"]),
    "affine_channel": (
        lambda f: L.affine_channel(f.image, L.ones([6], "float32"), L.zeros([6], "float32")),
        "fill_constant fill_constant elementwise_mul elementwise_add", ["float32[b, 6, 8, 8]"],
    ),
    "shuffle_channel": (lambda f: L.shuffle_channel(f.image, 2), "reshape transpose reshape", ["float32[b, 6, 8, 8]"]),
    "pixel_shuffle": (lambda f: L.pixel_shuffle(f.cells, 2), "reshape transpose reshape", ["float32[b, 2, 4, 6]"]),
    "space_to_depth": (lambda f: L.space_to_depth(f.image, 2), "reshape transpose reshape", ["float32[b, 24, 4, 4]"]),
    "temporal_shift": (
        lambda f: L.temporal_shift(f.image, 3, 0.2),
        "reshape slice pad slice slice pad slice slice concat reshape", ["float32[b, 6, 8, 8]"],
    ),
    "bilinear_tensor_product": (
        lambda f: L.bilinear_tensor_product(f.x, f.yes, 5),
        "transpose reshape matmul reshape unsqueeze elementwise_mul reduce_sum elementwise_add", ["float32[b, 5]"],
    ),
    "fsp_matrix": (lambda f: L.fsp_matrix(f.image, f.offset), "reshape reshape matmul", ["float32[b, 6, 2]"]),
    "add_position_encoding": (
        lambda f: L.add_position_encoding(f.codes, 1.0, 0.5),
        "assign_value scale scale elementwise_add", ["float32[b, 3, 4]"],
    ),
    "piecewise_linear_encoding": (
        lambda f: L.piecewise_linear_encoding(f.x, [[0, 1, 3], [], [-1, 1], [5]]),
        "assign_value transpose gather transpose assign_value elementwise_sub assign_value elementwise_mul clip", ["float32[b, 3]"],
    ),
    "im2sequence": (lambda f: L.im2sequence(f.image, [2, 3], 2, [1, 0]), "unfold transpose reshape", ["float32[b, 36]"]),
    "image_resize": (lambda f: L.image_resize(f.image, [4, 12], resample="NEAREST"), "nearest_interp", ["float32[b, 6, 4, 12]"]),
    "image_resize_short": (lambda f: L.image_resize_short(f.image, 4), "bilinear_interp", ["float32[b, 6, 4, 4]"]),
    "bpr_loss": (
        lambda f: L.bpr_loss(f.x, f.label),
        "one_hot elementwise_mul reduce_sum scale elementwise_add scale logsigmoid elementwise_mul reduce_sum scale", ["float32[b, 1]"],
    ),
    "rank_loss": (
        lambda f: L.rank_loss(f.yes, f.answer, f.yes),
        "elementwise_sub elementwise_mul softplus elementwise_sub", ["float32[b, 1]"],
    ),
    "margin_rank_loss": (
        lambda f: L.margin_rank_loss(f.yes, f.answer, f.yes),
        "elementwise_sub elementwise_mul scale relu", ["float32[b, 1]"],
    ),
    "npair_loss": (lambda f: L.npair_loss(f.x, f.y, f.label), _NPAIR, ["float32[1]"]),
    "sigmoid_focal_loss": (
        lambda f: L.sigmoid_focal_loss(f.x, f.label, L.ones([1], "int32")),
        (f"fill_constant fill_constant not_equal cast elementwise_mul one_hot slice {_FOCAL} fill_constant cast elementwise_max "
         "elementwise_mul elementwise_div"), ["float32[b, 4]"],
    ),
    "cos_sim": (
        lambda f: L.cos_sim(f.x, f.y),
        "elementwise_mul reduce_sum square reduce_sum sqrt square reduce_sum sqrt elementwise_mul elementwise_div", ["float32[b, 1]"],
    ),
    "strided_slice": (
        lambda f: L.strided_slice(f.image, [1, 2], [1, 7], [4, 0], [1, -3]),
        "strided_slice", ["float32[b, 3, 3, 8]"],
    ),
    "crop_tensor": (lambda f: L.crop_tensor(f.image, [-1, 6, 3, 4], [0, 0, 5, 1]), "slice", ["float32[b, 6, 3, 4]"]),
    "crop": (lambda f: L.crop(f.volume, [-1, 1, 3]), "slice", ["float32[b, 1, 3]"]),
    "unbind": (lambda f: L.unbind(f.volume, 1), "unstack", ["float32[b, 3]"] * 2),
    "flip": (lambda f: L.flip(f.x, 1), "reverse", ["float32[b, 4]"]),
    "pad_constant_like": (lambda f: L.pad_constant_like(f.codes, f.volume, 2.0), "pad", ["float32[b, 3, 4]"]),
    "expand_as": (
        lambda f: L.expand_as(L.ones([1, 2], "float32"), f.x),
        "fill_constant expand fill_like elementwise_add", ["float32[b, 4]"],
    ),
    "eye": (lambda f: L.eye(2, 3, [4]), "assign_value", ["float32[4, 2, 3]"]),
    "linspace": (lambda f: L.linspace(0.0, 1.0, 5), "assign_value", ["float32[5]"]),
    "range": (lambda f: L.range(0, 5, 2, "int64"), "assign_value", ["int64[3]"]),
    "full": (lambda f: L.full([2], 3.0), "fill_constant", ["float32[2]"]),
    "full_like": (lambda f: L.full_like(f.x, 3.0, "int64"), "cast fill_like", ["int64[b, 4]"]),
    "diag": (lambda f: L.diag(L.ones([3], "int64")), "fill_constant cast unsqueeze pad reshape slice reshape cast", ["int64[3, 3]"]),
    "shape": (lambda f: L.shape(f.x), "shape", ["int32[2]"]),
    "size": (lambda f: L.size(f.x), "shape cast reduce_prod cast", ["int64[1]"]),
    "rank": (lambda f: L.rank(f.x), "assign_value", ["int32[]"]),
    "multiplex": (lambda f: L.multiplex([f.x, f.y, f.x, f.y], f.label), "fill_like cumsum concat stack gather_nd", ["float32[b, 4]"]),
    "scatter_nd": (lambda f: L.scatter_nd(f.size, f.numbers, [3, 4]), "fill_constant scatter_nd_add", ["float32[3, 4]"]),
    "shard_index": (
        lambda f: L.shard_index(f.label, 4, 2, 1),
        "fill_constant elementwise_floordiv fill_constant equal scale fill_like select", ["int64[b, 1]"],
    ),
    "reduce_all": (lambda f: L.reduce_all(f.x, [1]), "cast cast reduce_min cast", ["bool[b]"]),
    "reduce_any": (lambda f: L.reduce_any(f.x), "cast cast reduce_max cast", ["bool[1]"]),
    "clip_by_norm": (lambda f: L.clip_by_norm(f.x, 1.0), "clip_by_norm", ["float32[b, 4]"]),
    "argmin": (lambda f: L.argmin(f.x, axis=1), "arg_min", ["int64[b]"]),
    "elementwise_mod": (lambda f: L.elementwise_mod(f.probability, f.y, act="tanh"), "elementwise_mod tanh", ["float32[b, 4]"]),
    "elementwise_floordiv": (
        lambda f: L.elementwise_floordiv(f.probability, f.y, act="tanh"),
        "elementwise_floordiv tanh", ["float32[b, 4]"],
    ),
}  # fmt: skip
