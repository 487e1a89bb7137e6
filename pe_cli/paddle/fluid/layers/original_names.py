"""How the original names the outputs of its layers, where that does not follow from the ops that a layer is made of here.

Recorded from PaddlePaddle 1.8.5 by tests/paddle/recordings/programs.py, and compared in tests/paddle/test_original_names.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.paddle.fluid.framework import as_dtype
from pe_cli.paddle.fluid.naming import PREFIX, Naming
from pe_cli.program.ir import Variable

Given = Mapping[str, Any]
#: Layers whose prefix begins with their own name, and whose only output is the first variable.
_FIRST = (
    "round", "selu", "maxout", "prelu", "clamp", "l2_normalize", "elementwise_equal", "allclose", "multiplex", "reduce_all",
    "reduce_any", "dist", "trace", "isfinite", "is_empty", "dot", "addmm", "cross", "kron", "bilinear_tensor_product", "cos_sim",
    "fsp_matrix", "row_conv", "add_position_encoding", "pad2d", "im2sequence", "pixel_shuffle",
    "shuffle_channel", "space_to_depth", "temporal_shift", "t", "diag_embed", "index_select", "index_sample", "meshgrid",
    "shard_index", "conv3d", "conv3d_transpose", "deformable_conv", "pool2d", "pool3d", "rank_loss",
    "margin_rank_loss", "bpr_loss", "label_smooth", "sigmoid_focal_loss", "warpctc", "sequence_conv", "density_prior_box",
    "mean_iou", "auc", "unique_with_counts", "unique", "assign", "randn", "reorder_lod_tensor_by_rank", "merge_selected_rows",
    "array_read", "array_write", "array_length", "read_file", "stack", "sequence_mask",
    "one_hot", "generate_mask_labels", "randperm", "get_tensor_from_selected_rows",
)  # fmt: skip
#: Layers with another prefix, or another output.
_OTHERS = {
    "log_softmax": Naming("log_softmax", (1,)),
    "sums": Naming("sum"),
    "hsigmoid": Naming("hierarchical_sigmoid"),
    "logsumexp": Naming("log", before={"exp": 1, "reduce_sum": 1}),
    "argmax": Naming("arg_max"),
    "argmin": Naming("arg_min"),
    "topk": Naming("top_k"),
    "has_inf": Naming("isinf"),
    "has_nan": Naming("isnan"),
    "unsqueeze": Naming("unsqueeze2", temporaries=2),
    "scatter_nd": Naming("scatter_nd_add", before={"fill_constant": 1}),
    "tensor_array_to_tensor": Naming("tensor_array_to_tensor", (0, 1)),
    "autoincreased_step_counter": Naming("global_step_counter"),
    "random_crop": Naming("random_crop", before={"random_crop_seed": 1}),
    "py_reader": Naming("create_py_reader", before={"lod_tensor_blocking_queue": 1, "double_buffer": 1}),
    "create_py_reader_by_data": Naming("create_py_reader", before={"lod_tensor_blocking_queue": 1, "double_buffer": 1}),
    "tril": Naming("tril", (PREFIX,)),
    "triu": Naming("triu", (PREFIX,)),
    "nonzero": Naming("where_index"),
    "rank": Naming("assign"),
    "batch_norm": Naming("batch_norm", (2,)),
    "layer_norm": Naming("layer_norm", (2,)),
    "instance_norm": Naming("instance_norm", (2,)),
    "group_norm": Naming("group_norm", ("_generated_var",), made=3),
    "data_norm": Naming("data_norm", ("_generated_var",), made=3),
    "spectral_norm": Naming("spectral_norm", ("_generated_var",)),
    "lrn": Naming("lrn", (1,)),
    "resize_bilinear": Naming("bilinear_interp"),
    "resize_nearest": Naming("nearest_interp"),
    "resize_trilinear": Naming("trilinear_interp"),
    "image_resize_short": Naming("bilinear_interp"),
    "square_error_cost": Naming("square_error_cost", (1,)),
    "huber_loss": Naming("huber_loss", (1,)),
    "beam_search": Naming("beam_search", (1, 0, 2)),
    "mse_loss": Naming("reduce_mean", before={"square_error_cost": 1}),
    "smooth_l1": Naming("smooth_l1_loss", (1,)),
    "dice_loss": Naming("reduce_mean", before={"one_hot": 1, "tmp": 6, "reduce_sum": 3}),
    "npair_loss": Naming(
        "softmax_with_cross_entropy",
        ("tmp",),
        {"reshape2": 1, "expand": 1, "transpose": 1, "equal": 1, "reduce_sum": 4, "square": 2, "reduce_mean": 3, "matmul": 1},
        made=7,
    ),
    "teacher_student_sigmoid_loss": Naming("teacher_student_sigmoid_loss", ("_generated_var",)),
    "linear_chain_crf": Naming("linear_chain_crf", (3,)),
    "nce": Naming("nce", ("tmp",)),
    "sampled_softmax_with_cross_entropy": Naming("sample_logits", ("tmp",)),
    "continuous_value_model": Naming("cvm", ("_generated_var",)),
    "dynamic_gru": Naming("gru"),
    "gru_unit": Naming("gru_unit", (2, 1, 0), exact=True),
    "detection_output": Naming("detection_output", before={"box_coder": 1, "softmax": 1, "transpose": 1}),
    "center_loss": Naming("center_loss", (1,), exact=True),
    "deformable_roi_pooling": Naming("deformable_psroi_pooling"),
    "accuracy": Naming("accuracy", before={"top_k": 1}),
}
_INTERPOLATIONS = {"BILINEAR": "bilinear_interp", "NEAREST": "nearest_interp", "TRILINEAR": "trilinear_interp"}


def _adaptive(axes: int) -> Callable[[Given], Naming]:
    def naming(given: Given) -> Naming:
        return Naming(f"max_pool{axes}d_with_index" if given.get("pool_type", "max") == "max" else f"pool{axes}d")

    return naming


def _numbers(key: str, *names: str) -> Callable[[Given], Naming]:
    """Return the naming of a layer that makes a constant of every number that it is given."""
    # The original makes constants of these numbers, and their names are used up.

    def naming(given: Given) -> Naming:
        count = sum(name in given and not isinstance(given[name], Variable) for name in names)
        # Variables of another element type are cast to that of the range.
        others = [given[name] for name in names if isinstance(given.get(name), Variable)] if key == "range" else []
        return Naming(key, before={"fill_constant": count, "cast": sum(v.dtype != as_dtype(given["dtype"]) for v in others)})

    return naming


def _depthwise(key: str, *, whole: bool) -> Callable[[Given], Naming]:
    """Return the naming of a convolution, which has another prefix where every channel has filters of its own and cuDNN is refused.

    Args:
        key: of others.
        whole: filters may be several for each channel.
    """

    def naming(given: Given) -> Naming:
        x, groups, filters = given.get("input"), given.get("groups"), given.get("num_filters")
        axis = 1 if given.get("data_format", "NCHW") == "NCHW" else -1
        channels = x.shape[axis] if isinstance(x, Variable) and len(x.shape) == 4 else None
        # The original divides the filters by the groups in one case and asks for equality in the other.
        fits = channels == groups and isinstance(filters, int) and groups and (filters % groups == 0 if whole else filters == groups)
        return Naming(f"depthwise_{key}" if fits and not given.get("use_cudnn", True) else key)

    return naming


def _resized(given: Given) -> Naming | None:
    key = _INTERPOLATIONS.get(str(given.get("resample", "BILINEAR")).upper())
    return None if key is None else _by_size(key, "out_shape")(given)


def _where(given: Given) -> Naming | None:
    return Naming("where_index") if given.get("x") is None and given.get("y") is None else None


def _eye(given: Given) -> Naming:
    batch = given.get("batch_shape")
    # Each axis in front is a layer that stacks.
    return Naming("eye", ("stack.tmp_0",), made=len(batch)) if batch else Naming("eye")


def _nonzero(given: Given) -> Naming:
    x = given.get("input", given.get("x"))
    return Naming("where_index", ("slice.tmp_0",) * len(x.shape) if given.get("as_tuple") and x is not None else (0,))


def _ssd_loss(given: Given) -> Naming:
    used = {
        "shape": 1, "iou_similarity": 1, "bipartite_match": 1, "reshape2": 3, "target_assign": 3, "flatten": 7, "cast": 2,
        "softmax_with_cross_entropy": 2, "slice": 1, "box_coder": 1, "smooth_l1_loss": 1,
    }  # fmt: skip
    if given.get("normalize", True):
        return Naming("ssd_loss", ("tmp",), {**used, "reduce_sum": 2}, made=6)
    return Naming("ssd_loss", ("reduce_sum.tmp_0",), {**used, "tmp": 5})


def _decay(numbers: int, **used: int) -> Callable[[Given], Naming]:
    """Return the naming of a schedule whose rate is the last of so many results of Python's operators; staircases use `floor`."""

    def naming(given: Given) -> Naming:
        steps = {"floor": 1} if given.get("staircase") else {}
        return Naming("cast", ("tmp",), {"global_step_counter": 1, **used, **steps}, made=numbers)

    return naming


def _polynomial_decay(given: Given) -> Naming:
    if not given.get("cycle"):
        return _decay(6, fill_constant=1, elementwise_min=1)(given)
    return _decay(9, ceil=1, fill_constant=2, switch=1, conditional_block=1, logical_not=1, assign=1, _generated_var=1)(given)


def _piecewise_decay(given: Given) -> Naming:
    cases = len(given.get("boundaries", ()))
    used = {
        "global_step_counter": 1, "cast": 1, "fill_constant": 2 * cases + 1, "tmp": cases, "conditional_block": cases + 1,
        "logical_not": cases, "assign": cases + 1, "_generated_var": cases + 1, "logical_and": 2 * (cases - 1),
    }  # fmt: skip
    return Naming("switch", before=used)


def _warmup(given: Given) -> Naming:
    used = {"global_step_counter": 1, "cast": 1, "tmp": 5, "conditional_block": 2, "logical_not": 1, "assign": 2, "_generated_var": 2}
    return Naming("switch", before={**used, "fill_constant": int(not isinstance(given.get("learning_rate"), Variable))})


def _by_size(key: str, *names: str) -> Callable[[Given], Naming]:
    """Return the naming of a layer that makes a constant of every number beside variables in lists of sizes.

    Args:
        key: of others.
        names: arguments that are such lists.
    """
    # These constants have the first numbers of the layer's own.

    def naming(given: Given) -> Naming:
        count = _constants(given, *names)
        further = int(key == "reshape2")
        return Naming(key, (count,), before={"fill_constant": count}, temporaries=count + 1 + further)

    return naming


def _constants(given: Given, *names: str) -> int:
    """Return how many numbers stand beside variables in lists of sizes."""
    lists = [v for v in map(given.get, names) if isinstance(v, (list, tuple)) and any(isinstance(n, Variable) for n in v)]
    return sum(not isinstance(n, Variable) for v in lists for n in v)


def _beside(key: str, *names: str, further: int = 0) -> Callable[[Given], Naming | None]:
    """Return the naming of a layer whose constants beside variables have no numbers of the layer's own; others name themselves.

    Args:
        key, names: as `_by_size`.
        further: constants that there are anyway.
    """

    def naming(given: Given) -> Naming | None:
        sizes = [v for v in map(given.get, names) if v is not None]
        listed = [n for v in sizes if isinstance(v, (list, tuple)) for n in v if isinstance(n, Variable)]
        # Sizes of int64 are cast to int32 by this layer alone.
        cast = sum(n.dtype == "int64" for n in listed) if key == "fill_constant" else 0
        numbers = _constants(given, *names) + further
        filled = key == "fill_constant"
        how = Naming(key, before={"cast": cast, "fill_constant": 0 if filled else numbers}, behind=numbers if filled else 0)
        return how if listed or further or any(isinstance(v, Variable) for v in sizes) else None

    return naming


_BY_ARGUMENTS: dict[str, Callable[[Given], Naming | None]] = {
    "adaptive_pool2d": _adaptive(2),
    "adaptive_pool3d": _adaptive(3),
    "range": _numbers("range", "start", "end", "step"),
    "linspace": _numbers("linspace", "start", "stop", "num"),
    "conv2d": _depthwise("conv2d", whole=True),
    "conv2d_transpose": _depthwise("conv2d_transpose", whole=False),
    "image_resize": _resized,
    "interpolate": _resized,
    "where": _where,
    "affine_channel": lambda given: Naming("affine_channel", (int(given.get("act") is not None),), exact=True),
    "diag": lambda given: Naming("diag", before={"assign": int(not isinstance(given.get("diagonal"), Variable))}),
    "fill_constant": _beside("fill_constant", "shape"),
    "zeros": _beside("fill_constant", "shape"),
    "ones": _beside("fill_constant", "shape"),
    "full": _beside("full", "shape", further=1),
    "gaussian_random": _beside("gaussian_random", "shape"),
    "crop_tensor": _beside("crop_tensor", "shape", "offsets"),
    "expand": _by_size("expand", "expand_times"),
    "uniform_random": _by_size("uniform_random", "shape"),
    "randint": _by_size("randint", "shape"),
    "split": _by_size("split", "num_or_sections"),
    "scale": lambda given: Naming("scale") if isinstance(given.get("scale"), Variable) else None,
    "slice_": _by_size("slice", "starts", "ends"),
    "range_": _numbers("range", "start", "end", "step"),
    "eye": _eye,
    "nonzero": _nonzero,
    "ssd_loss": _ssd_loss,
    "roll": lambda given: Naming("roll", before={"reshape2": 1 if given.get("axis") is not None else 2}),
    "reshape": _by_size("reshape2", "shape"),
    "slice": _by_size("slice", "starts", "ends"),
    "strided_slice": _by_size("strided_slice", "starts", "ends", "strides"),
    "exponential_decay": _decay(4),
    "natural_exp_decay": _decay(3, exp=1),
    "inverse_time_decay": _decay(5),
    "cosine_decay": _decay(5, floor=1, cos=1),
    "noam_decay": _decay(4, elementwise_min=1),
    "polynomial_decay": _polynomial_decay,
    "piecewise_decay": _piecewise_decay,
    "linear_lr_warmup": _warmup,
    "cross_entropy": lambda given: Naming("cross_entropy" if given.get("soft_label") else "cross_entropy2"),
    "ctc_greedy_decoder": lambda given: Naming(
        "ctc_greedy_decoder", before={"top_k": 1, "squeeze": int(given.get("input_length") is not None)}
    ),
    "edit_distance": lambda given: Naming("edit_distance", (2, 3) if given.get("ignored_tokens") else (0, 1)),
}
def _always(how: Naming) -> Callable[[Given], Naming]:
    return lambda given: how


#: Layer -> how it names its outputs, of its arguments.
NAMINGS: dict[str, Callable[[Given], Naming | None]] = {
    **{name: _always(Naming(name)) for name in _FIRST},
    **{name: _always(how) for name, how in _OTHERS.items()},
    **_BY_ARGUMENTS,
}
