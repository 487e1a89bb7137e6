"""Products, tables, noise, normalisation and borders by 2.x's arguments."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import product
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call

#: Layouts whose channels are the second axis.
FIRST = ("NC", "NCL", "NCHW", "NCDHW")
LAST = ("NLC", "NHWC", "NDHWC")
#: 2.x's ways to scale a dropout -> fluid's.
MODES = {"upscale_in_train": "upscale_in_train", "downscale_in_infer": "downgrade_in_infer"}


def channels_first(function: str, data_format: str) -> bool:
    """Tell whether the channels are the second axis.

    Raises:
        FluidValueError: an unknown layout.
    """
    if data_format not in (*FIRST, *LAST):
        raise FluidValueError(
            f"{function}: data_format is {data_format!r}", hint=f"one of {', '.join((*FIRST, *LAST))}"
        )
    return data_format in FIRST


def linear(x: Any, weight: Any, bias: Any = None, name: str | None = None) -> Any:
    """Return x weight + bias: [..., in] times [in, out]."""
    out = call("mul", x, weight, len(x.shape) - 1)
    return out if bias is None else call("elementwise_add", out, bias, len(x.shape) - 1)


def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None, name: str | None = None) -> Any:
    """Return x1 W_i x2 + b_i for every output i; weight is [out, in 1, in 2], bias [1, out]."""
    outs, first, second = weight.shape
    # x1 is multiplied by the matrices of all outputs at once, and its part for each output by x2 then.
    table = call("reshape", call("transpose", weight, [1, 0, 2]), [first, outs * second])
    parts = call("reshape", call("mul", x1, table), [-1, outs, second])
    out = call("reduce_sum", call("elementwise_mul", parts, call("unsqueeze", x2, [1])), 2)
    return out if bias is None else call("elementwise_add", out, call("reshape", bias, [outs]), 1)


@raised_as(FluidValueError)
def embedding(
    x: Any, weight: Any, padding_idx: int | None = None, sparse: bool = False, name: str | None = None
) -> Any:
    """Look up a row of weight for every id of [...]: [..., width]; the row of padding_idx counts as 0."""
    ensure_defaults()
    # For the op -1 means none, so an index from the end is turned into one from the front.
    index = -1 if padding_idx is None else padding_idx % weight.shape[0]
    attrs = {"is_sparse": sparse, "padding_idx": index}
    return LayerHelper("embedding", name).one("lookup_table_v2", {"W": weight, "Ids": x}, attrs)


def one_hot(x: Any, num_classes: int, name: str | None = None) -> Any:
    """Write a 1 at every id of [...]: [..., num_classes]."""
    from pe_cli.paddle.fluid.input import one_hot as written

    return written(x, num_classes)


def label_smooth(label: Any, prior_dist: Any = None, epsilon: float = 0.1, name: str | None = None) -> Any:
    """Move the share epsilon of every label to all classes, or to a given distribution."""
    return call("label_smooth", label, prior_dist, epsilon, label.dtype)


def dropout(
    x: Any,
    p: float = 0.5,
    axis: int | list[int] | None = None,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> Any:
    """Set elements to zero at random while training.

    Args:
        x: any shape.
        p: chance of a zero, from 0 to 1.
        axis: axes along which elements are drawn; those along the others share their fate. None draws each.
        training: False, or a program cloned for tests, evaluates.
        mode: upscale_in_train or downscale_in_infer.
        name: prefix of the output's name.

    Raises:
        FluidValueError: an unknown mode.
    """
    if mode not in MODES:
        raise FluidValueError(f"dropout: mode is {mode!r}", hint=" or ".join(MODES))
    if p == 0:
        return x
    if axis is None:
        return call("dropout", x, p, not training, None, name, MODES[mode])
    drawn = [a % len(x.shape) for a in ([axis] if isinstance(axis, int) else axis)]
    others = [i for i, _ in enumerate(x.shape) if i not in drawn]
    # One number is drawn for each place along the axes that are named; it is spread over the others by the product. The maximum only has
    # the right shape: its value is not used.
    kept = call(
        "dropout", _ones(call("reduce_max", x, others, True) if others else x), p, not training, None, None, MODES[mode]
    )
    return call("elementwise_mul", x, kept)


def _ones(like: Any) -> Any:
    made = LayerHelper("fill_like").one("fill_like", {"X": like}, {"value": 1.0})
    made.stop_gradient = True
    return made


def dropout2d(x: Any, p: float = 0.5, training: bool = True, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Set whole channels of images to zero at random while training."""
    return dropout(x, p, [0, 1] if channels_first("dropout2d", data_format) else [0, 3], training)


def dropout3d(
    x: Any, p: float = 0.5, training: bool = True, data_format: str = "NCDHW", name: str | None = None
) -> Any:
    """Set whole channels of volumes to zero at random while training."""
    return dropout(x, p, [0, 1] if channels_first("dropout3d", data_format) else [0, 4], training)


def alpha_dropout(x: Any, p: float = 0.5, training: bool = True, name: str | None = None) -> Any:
    """Set elements to selu's lowest value at random while training, then keep mean 0 and variance 1.

    Raises:
        FluidValueError: p is not in [0, 1).

    Source:
        Klambauer et al. 2017, section 3.
    """
    if not 0 <= p < 1:
        raise FluidValueError(f"alpha_dropout: p must be from 0 to below 1, got {p}")
    if not training or p == 0:
        return x
    # Klambauer et al. 2017, section on alpha dropout: a and b keep mean 0 and variance 1 where a share p is set to the limit of selu at
    # minus infinity.
    lowest = -1.0507009873554805 * 1.6732632423543772
    a = ((1 - p) * (1 + p * lowest**2)) ** -0.5
    # 0 or 1 / (1 - p) while training; 1 for all in a program cloned for tests, which has to return x.
    drawn = call("dropout", _ones(x), p, False, None, None, "upscale_in_train")
    kept = call("scale", drawn, 1 - p)
    testing = call("scale", call("elementwise_mul", drawn, call("scale", kept, -1.0, 1.0)), 1 / p)
    mixed = call("elementwise_add", call("elementwise_mul", x, kept), call("scale", kept, -lowest, lowest))
    dropped = call("scale", mixed, a, -a * lowest * p)
    for part in (drawn, kept, testing):
        part.stop_gradient = True
    other = call("scale", testing, -1.0, 1.0)
    return call("elementwise_add", call("elementwise_mul", dropped, other), call("elementwise_mul", x, testing))


def normalize(x: Any, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: str | None = None) -> Any:
    """Divide by the p-norm along an axis; one below epsilon counts as epsilon."""
    powers = call("square", x) if p == 2 else call("pow", call("abs", x), float(p))
    # Clipped before the root, whose slope at 0 is infinite; numbers below 1e-37 have fewer digits in float32.
    total = call("clip", call("reduce_sum", powers, axis, True), max(epsilon**p, 1e-37), 3.4e38)
    return call("elementwise_mul", x, call("pow", total, -1.0 / p))


def layer_norm(
    x: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    epsilon: float = 1e-05,
    name: str | None = None,
) -> Any:
    """Normalise over the last axes, whose sizes are normalized_shape; then times weight, plus bias.

    Raises:
        FluidValueError: x does not end in normalized_shape.
    """
    sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    if list(x.shape[-len(sizes) :]) != sizes or len(sizes) >= len(x.shape):
        raise FluidValueError(f"layer_norm: normalized_shape is {sizes}, but the input is {x}")
    gain, shift = (
        None if v is None else call("reshape", v, [product(sizes)]) if len(v.shape) > 1 else v for v in (weight, bias)
    )
    attrs = {"begin_norm_axis": len(x.shape) - len(sizes), "epsilon": float(epsilon)}
    given = {"X": x, "Scale": gain, "Bias": shift}
    return LayerHelper("layer_norm", name).op("layer_norm", given, attrs, ("Y", "Mean", "Variance"))[0]


def batch_norm(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Any:
    """Normalise every channel, while training by the batch and else by the running statistics, which training moves."""
    ensure_defaults()
    attrs = {
        "momentum": float(momentum),
        "epsilon": float(epsilon),
        "is_test": not training,
        "data_layout": "NCHW" if channels_first("batch_norm", data_format) else "NHWC",
        "use_global_stats": bool(use_global_stats),
    }
    given = {"X": x, "Scale": weight, "Bias": bias, "Mean": running_mean, "Variance": running_var}
    moved = {"MeanOut": running_mean, "VarianceOut": running_var}
    saved = ("Y", "SavedMean", "SavedVariance")
    return LayerHelper("batch_norm", name).op("batch_norm", given, attrs, saved, moved)[0]


def instance_norm(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-05,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Normalise every channel of every sample; running statistics have no effect, as in the original.

    Raises:
        FluidValueError: channels are not the second axis.
    """
    if not channels_first("instance_norm", data_format):
        raise FluidValueError(f"instance_norm: data_format is {data_format!r}", hint="channels first")
    # The op without scale and bias, which are applied after it: either may be absent.
    out = call("instance_norm", x, eps, False, False)
    out = out if weight is None else call("elementwise_mul", out, weight, 1)
    return out if bias is None else call("elementwise_add", out, bias, 1)


def local_response_norm(
    x: Any,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Divide by the mean square of `size` neighbouring channels: x / (k + alpha mean x^2)^beta; an even size looks one further back.

    Raises:
        FluidValueError: fewer than three or more than five axes, size below 1, or an unknown layout.
    """
    if not 3 <= len(x.shape) <= 5 or size < 1:
        raise FluidValueError(
            f"local_response_norm needs 3 to 5 axes and a size of 1 or more, got {x} and {size}", hint="unsqueeze adds axes"
        )
    first, whole = channels_first("local_response_norm", data_format), [0, *x.shape[1:]]
    if size % 2:
        # A row of any rank becomes an image of width 1, as only the channels' neighbours matter.
        images = call("reshape", x, [0, x.shape[1], -1, 1] if first else [0, -1, 1, x.shape[-1]])
        return call("reshape", call("lrn", images, size, k, alpha / size, beta, None, "NCHW" if first else "NHWC"), whole)
    squares = call("reshape", call("square", x), [0, 1, x.shape[1], -1] if first else [0, 1, -1, x.shape[-1]])
    # Of an even window one neighbour more lies before, as in the original.
    sides, window = [size // 2, (size - 1) // 2], [size, 1]
    padded = call("pad2d", squares, [*sides, 0, 0] if first else [0, 0, *sides])
    means = call("pool2d", padded, window if first else window[::-1], "avg", 1, exclusive=False)
    return call("elementwise_div", x, call("reshape", call("pow", call("scale", means, alpha, k), beta), whole))


__all__ = [
    "alpha_dropout", "batch_norm", "bilinear", "dropout", "dropout2d", "dropout3d", "embedding", "instance_norm",
    "label_smooth", "layer_norm", "linear", "local_response_norm", "normalize", "one_hot",
]  # fmt: skip
