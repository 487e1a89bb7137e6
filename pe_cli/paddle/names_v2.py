"""Names that functions and layers of 2.x give to what they append, and use up: those of PaddlePaddle 2.6.2.

Recorded by tests/paddle/recordings/names_v2.py. How names are given is in `pe_cli.paddle.fluid.naming`; parameters of layers that a
script makes later have the original's names only where every function before them uses up as many names of each key.

A row is a text: keys of names that are used up, `key*3` for three, and last that of the result. It stands for `<key>_<number>.tmp_0`,
`key.1` for `.tmp_1`, `key.0,1` for two results, `key!` for `<key>_<number>` itself, and `key+1` where one more is used up behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pe_cli.paddle.fluid.naming import PREFIX, Naming, appended, named

Given = Mapping[str, Any]

#: Functions whose only result is the first variable of a prefix with their own name.
_OWN = (
    "abs", "acos", "acosh", "add_n", "addmm", "all", "allclose", "any", "argmax", "argmin", "asin", "asinh", "assign", "atan", "atan2",
    "atanh", "bmm", "cast", "ceil", "clip", "concat", "cos", "cosh", "cross", "cumsum", "dist", "dot", "einsum", "equal", "equal_all",
    "erf", "exp", "expand_as", "expm1", "eye", "flatten", "flip", "floor", "full_like", "gather", "gather_nd", "greater_equal",
    "greater_than", "index_sample", "index_select", "inverse", "kron", "less_equal", "less_than", "log", "log10", "log1p", "log2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "masked_select", "max", "mean", "min", "mm", "multiplex",
    "mv", "not_equal", "numel", "randint", "randperm", "reciprocal", "roll", "round", "rsqrt", "scale", "scatter", "scatter_nd_add",
    "shape", "shard_index", "sign", "sin", "sinh", "slice", "sort", "sqrt", "square", "squeeze", "stack", "stanh", "strided_slice",
    "sum", "t", "tan", "tanh", "tile", "trace", "transpose", "uniform", "where",
    "bilinear", "embedding", "label_smooth", "unfold", "sequence_mask", "temporal_shift", "pixel_shuffle", "affine_grid", "grid_sample",
    "relu", "relu6", "sigmoid", "log_softmax", "gelu", "elu", "celu", "selu", "silu", "swish", "mish", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "maxout", "prelu", "softplus", "softshrink", "softsign", "thresholded_relu",
    "nll_loss", "log_loss", "hsigmoid_loss",
)  # fmt: skip

_SQUEEZED = "unsqueeze2 {} squeeze"
_AS_ROWS = "pool2d", "max_pool2d_with_index"

_ROWS = {
    **{name: name for name in _OWN},
    **{name: f"elementwise_{op}!" for name, op in (
        ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"), ("floor_divide", "floordiv"), ("mod", "mod"),
        ("maximum", "max"), ("minimum", "min"),
    )},
    **{name: f"{name}.2" for name in ("batch_norm", "layer_norm", "instance_norm")},
    **dict.fromkeys(("full", "ones", "zeros"), "fill_constant*1 fill_constant"),
    **{f"{kind}_pool{axes}d": f"pool{axes}d" for kind in ("avg", "adaptive_avg") for axes in (2, 3)},
    "adaptive_avg_pool1d": _SQUEEZED.format("pool2d"),
    "avg_pool1d": _SQUEEZED.format("pool2d"),
    "adaptive_max_pool1d": _SQUEEZED.format("max_pool2d_with_index"),
    "adaptive_max_pool2d": "max_pool2d_with_index",
    "adaptive_max_pool3d": "max_pool3d_with_index",
    "arange": "fill_constant*6 range",
    "argsort": "argsort.1",
    "broadcast_to": "expand",
    "chunk": "split.0,1",
    "accuracy": "accuracy.2",
    "cosine_similarity": "elementwise_mul*3 sum*3 sqrt clip tmp tmp!",
    "diag": "diag_v2",
    "dice_loss": "one_hot_v2 squeeze numel*2 sum*3 tmp*10 mean",
    "expand": "expand",
    "glu": "split sigmoid elementwise_mul!",
    "isfinite": "isfinite_v2",
    "isinf": "isinf_v2",
    "isnan": "isnan_v2",
    "linspace": "fill_constant*6 linspace",
    "local_response_norm": "pad3d pool3d pow reshape2*2 scale squeeze unsqueeze2 elementwise_mul elementwise_div!",
    "matmul": "matmul_v2",
    "median": "cast*2 flatten isnan_v2 slice*2 sum tmp*4 top_k_v2 reshape2",
    "meshgrid": "meshgrid.0,1",
    "nonzero": "where_index",
    "normalize": "elementwise_max fill_constant*2 p_norm elementwise_div!",
    "npair_loss": "equal matmul_v2 mean*3 reshape2 softmax_with_cross_entropy square*2 sum*4 tile transpose tmp*6 tmp!",
    "one_hot": "one_hot_v2",
    "ones_like": "full_like",
    "pairwise_distance": "elementwise_sub fill_constant*2 elementwise_add PairwiseDistance",
    "outer": "reshape2*2 outer",
    "prod": "reduce_prod",
    "rand": "uniform",
    "randn": "gaussian",
    "rank": "assign",
    "reshape": "reshape2",
    "scatter_nd": "fill_constant*2 scatter_nd_add",
    "split": "split.0,1",
    "square_error_cost": "square_error_cost.1",
    "standard_normal": "gaussian",
    "std": "cast*2 fill_constant*2 mean numel*2 pow sum tmp*8 where sqrt",
    "take_along_axis": "expand*2 take_along_axis",
    "tanhshrink": "tanh_shrink",
    "topk": "top_k_v2.0,1",
    "tril": "tril!",
    "triu": "triu!",
    "unbind": "unbind.0,1",
    "unsqueeze": "unsqueeze2",
    "unstack": "unstack.0,1",
    "var": "cast*2 fill_constant*2 mean numel*2 pow sum where tmp*7 tmp!",
    "zeros_like": "full_like",
}  # fmt: skip


def _some(given: Given, name: str) -> bool:
    return given.get(name) is not None


def _reduced(row: str, given: Given, default: str = "mean") -> str:
    """Return a row with what the loss's `reduction` appends."""
    how = given.get("reduction", default)
    return row if how == "none" else f"{row.split('.')[0].rstrip('!')} {how}"


def _linear(given: Given) -> str:
    return "linear.1" if _some(given, "bias") else "linear"


def _convolution(kind: str) -> Callable[[Given], str]:
    def row(given: Given) -> str:
        channels = given["x"].shape[1 if str(given.get("data_format", "NC"))[1] == "C" else -1]
        apart = kind.startswith("conv2d") and given.get("groups", 1) == channels > 1
        key, biased = f"depthwise_{kind}" if apart else kind, _some(given, "bias")
        if kind == "conv3d_transpose" and biased:
            return f"{key} elementwise_add!"
        return f"reshape2 {key}.1" if biased else key

    return row


def _row_convolution(further: str) -> Callable[[Given], str]:
    return lambda given: f"{further} unsqueeze2*2 {'elementwise_add ' if _some(given, 'bias') else ''}squeeze"


def _max_pool(axes: int) -> Callable[[Given], str]:
    def row(given: Given) -> str:
        return f"max_pool{axes}d_with_index.0,1" if given.get("return_mask") else f"pool{axes}d"

    return row


def _dropout(given: Given) -> str | None:
    return None if given.get("p", 0.5) == 0 else "dropout"


def _alpha_dropout(given: Given) -> str | None:
    row = "cast elementwise_add elementwise_mul elementwise_sub fill_constant*6 greater_equal scale*2 uniform elementwise_add!"
    return None if given.get("p", 0.5) == 0 or not given.get("training", True) else row


def _channel_dropout(axes: int) -> Callable[[Given], str | None]:
    row = f"shape fill_constant*{2 * axes + 2} uniform greater_equal scale cast*2 elementwise_mul!"
    return lambda given: None if given.get("p", 0.5) == 0 else row


def _pad(given: Given) -> str:
    axes = len(given["x"].shape)
    return _SQUEEZED.format("pad3d") if axes in (3, 4) else "pad3d" if axes == 5 else "pad"


def _interpolate(given: Given) -> str:
    return f"{given.get('mode', 'nearest').lower()}_interp_v2"


def _cross_entropy(given: Given) -> str:
    label, logits, how = given["label"], given["input"], given.get("reduction", "mean")
    soft, ignored = given.get("soft_label"), given.get("ignore_index", -100) >= 0
    row = "unsqueeze2 " if not soft and len(label.shape) == len(logits.shape) - 1 else ""
    row += "softmax_with_cross_entropy"
    if not _some(given, "weight"):
        if how == "mean" and ignored and not soft:
            return f"{row} cast equal fill_constant*2 sum*2 tmp*4 tmp!"
        return _reduced(f"{row}.1", given)
    if soft:
        row += " matmul_v2 reshape2 cast"
        if how != "mean":
            return _reduced(f"{row} elementwise_mul!", given)
        return f"{row} cast equal fill_constant*2 elementwise_mul sum*2 tmp*2 tmp!"
    row += " cast*2 squeeze gather_nd reshape2 elementwise_mul*2"
    if how != "mean":
        return _reduced(f"{row} tmp*4 elementwise_mul!", given)
    more = " cast elementwise_mul tmp*2" if ignored else ""
    return f"{row} equal fill_constant*2 sum*2 elementwise_mul{more} tmp*6 tmp!"


def _softmax_with_cross_entropy(given: Given) -> str:
    return "softmax_with_cross_entropy." + ("1,0" if given.get("return_softmax") else "1")


def _kl_div(given: Given) -> str:
    return "kl_div shape sum tmp tmp!" if given.get("reduction", "mean") == "batchmean" else _reduced("kl_div", given)


def _binary_cross_entropy(given: Given) -> str:
    return _reduced("binary_cross_entropy" + (" elementwise_mul!" if _some(given, "weight") else ""), given)


def _binary_cross_entropy_with_logits(given: Given) -> str:
    row = "fill_constant*2 sigmoid_cross_entropy_with_logits"
    if _some(given, "pos_weight"):
        row += " elementwise_sub elementwise_add elementwise_mul!"
    if _some(given, "weight"):
        row = row.rstrip("!") + " elementwise_mul!"
    return _reduced(row, given)


def _margin_ranking_loss(given: Given) -> str:
    relu = "" if given.get("reduction") == "none" else "relu "
    return f"elementwise_sub elementwise_mul scale {relu}margin_ranking_loss"


def _sigmoid_focal_loss(given: Given) -> str:
    row = "fill_constant*2 pow sigmoid sigmoid_cross_entropy_with_logits elementwise_mul tmp*10 elementwise_mul!"
    return _reduced(row, given, "sum")


def _ctc_loss(given: Given) -> str:
    how = given.get("reduction", "mean")
    return "warpctc squeeze" + {"mean": " tmp*2 mean", "sum": " sum"}.get(how, "")


def _norm(given: Given) -> str:
    return "frobenius_norm" if given.get("p") in (None, "fro") else "p_norm"


def _pow(given: Given) -> str:
    return "pow" if isinstance(given["y"], (int, float)) else "elementwise_pow+1"


def _lerp(given: Given) -> str:
    return "fill_constant*2 lerp" if isinstance(given["weight"], (int, float)) else "lerp"


def _diff(given: Given) -> str:
    return f"diff elementwise_sub*{given.get('n', 1) - 1} elementwise_sub!"


_CHOSEN: dict[str, Callable[[Given], str | None]] = {
    "linear": _linear,
    "conv2d": _convolution("conv2d"),
    "conv3d": _convolution("conv3d"),
    "conv2d_transpose": _convolution("conv2d_transpose"),
    "conv3d_transpose": _convolution("conv3d_transpose"),
    "conv1d": _row_convolution("assign conv2d"),
    "conv1d_transpose": _row_convolution("conv2d_transpose"),
    "max_pool1d": lambda given: _SQUEEZED.format(_AS_ROWS[bool(given.get("return_mask"))]),
    "max_pool2d": _max_pool(2),
    "max_pool3d": _max_pool(3),
    "softmax": lambda given: "softmax.1" if _some(given, "dtype") else "softmax",
    "dropout": _dropout,
    "alpha_dropout": _alpha_dropout,
    "dropout2d": _channel_dropout(2),
    "dropout3d": _channel_dropout(3),
    "pad": _pad,
    "interpolate": _interpolate,
    "upsample": _interpolate,
    "cross_entropy": _cross_entropy,
    "softmax_with_cross_entropy": _softmax_with_cross_entropy,
    "mse_loss": lambda given: _reduced("elementwise_sub square", given),
    "l1_loss": lambda given: _reduced("elementwise_sub abs", given),
    "smooth_l1_loss": lambda given: _reduced("huber_loss.1", given),
    "kl_div": _kl_div,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "margin_ranking_loss": _margin_ranking_loss,
    "sigmoid_focal_loss": _sigmoid_focal_loss,
    "ctc_loss": _ctc_loss,
    "norm": _norm,
    "pow": _pow,
    "lerp": _lerp,
    "diff": _diff,
}


@cache
def naming(row: str) -> Naming:
    """Return how a row of this module's form names what is appended."""
    *used, result = row.split()
    before: dict[str, int] = {}
    for word in used:
        key, _, count = word.partition("*")
        before[key] = before.get(key, 0) + int(count or 1)
    key, _, numbers = result.partition(".")
    key, _, behind = key.partition("+")
    # Further results of such a layer have names of the prefix.
    outputs = (PREFIX, 0) if key.endswith("!") else tuple(int(n) for n in (numbers or "0").split(","))
    return Naming(key.rstrip("!"), outputs, before, int(behind or 0), exact=True)


def with_names(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return functions of 2.x, those of this table with the original's names."""
    return {name: _with_names(name, function) for name, function in functions.items()}


def _with_names(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if name in _CHOSEN:
        chosen = _CHOSEN[name]

        def how(given: Given) -> Naming | None:
            row = chosen(given)
            return None if row is None else naming(row)

        return named(function, how)
    return named(function, lambda given: naming(_ROWS[name])) if name in _ROWS else function


def named_layer(make: Callable[[], Any], row: str, prefix: str | None = None) -> Any:
    """Return what a layer appends, named by a row, or by a prefix and the numbers of the row's result."""
    return appended(make, naming(row), prefix)
