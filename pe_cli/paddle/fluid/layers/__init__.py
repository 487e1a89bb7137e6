"""fluid.layers: the core's catalogue, and what scripts of the original call beside it.

A name of the core's catalogue goes before one of the modules here: when the core learns a layer, that one is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pe_cli.layers.define.registry import discover
from pe_cli.optim.schedule import (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    piecewise_decay,
    polynomial_decay,
)
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers import (
    beams,
    catalogue,
    composed,
    control_flow,
    counting,
    decoding,
    detection,
    detection_nms,
    detection_proposals,
    distributions,
    dynamic_rnn,
    early,
    fed_sizes,
    files,
    io,
    kept_rows,
    learning_rate_scheduler,
    losses,
    lstm,
    ops,
    padding,
    printing,
    py_func,
    resizing,
    rnn,
    tensor,
    volumes,
    wider,
)
from pe_cli.paddle.names import elsewhere, missing, places

_SCHEDULES = (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    piecewise_decay,
    polynomial_decay,
)
#: Layers that scripts call with more than the core's has: these go before the catalogue.
_WIDER = {
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "pool2d",
    "pool3d",
    "data_norm",
    "resize_bilinear",
    "resize_nearest",
    "resize_trilinear",
    "data",
    "assign",
    "topk",
    "affine_grid",
    "auc",
    "center_loss",
    "box_coder",
    "multi_box_head",
    "locality_aware_nms",
    "matrix_nms",
    "multiclass_nms",
    "detection_output",
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "uniform_random_batch_size_like",
    "randperm",
    "cross_entropy",
    "square_error_cost",
    "label_smooth",
    "stack",
    "fill_constant",
    "reduce_mean",
    "create_parameter",
    "lstm",
    "isfinite",
    "fill_constant_batch_size_like",
    "crop",
    "image_resize",
    "interpolate",
    "crop_tensor",
    "range",
    "linspace",
    "expand",
    "slice",
    "im2sequence",
    "ones",
    "zeros",
    "unsqueeze",
    "strided_slice",
    "one_hot",
    "concat",
    "sequence_mask",
    "split",
    "uniform_random",
    "full",
    "where",
    "unique",
    "unique_with_counts",
    "has_nan",
    "has_inf",
    "is_empty",
    "arange",
    "randn",
    "retinanet_detection_output",
    *detection_proposals.__all__,
    *early.__all__,
    *kept_rows.__all__,
    *ops.__all__,
    *wider.__all__,
}
#: Where the names are that the core's catalogue lacks, or has with less.
_MODULES = (
    beams, composed, control_flow, counting, decoding, detection, detection_nms, detection_proposals, distributions, dynamic_rnn, early,
    fed_sizes, files, io, kept_rows, losses, lstm, ops, padding,
    printing, py_func, resizing, rnn, tensor, volumes, wider,
)  # fmt: skip


def _on_defaults(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a schedule that appends to the default programs of scripts, even where it is the first that a script calls."""

    @functools.wraps(schedule)
    def made(*args: Any, **given: Any) -> Any:
        ensure_defaults()
        with raised_as(FluidValueError):
            return schedule(*args, **given)

    return made


def _collected() -> dict[str, Any]:
    found: dict[str, Any] = {f.__name__: _on_defaults(f) for f in _SCHEDULES}
    for module in _MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            found[name.rstrip("_")] = catalogue.called(value) if inspect.isfunction(value) else value
    core = {name: catalogue.adapt(definition) for name, definition in discover().items()}
    return {**found, **{name: fn for name, fn in core.items() if name not in _WIDER or name not in found}}


#: Modules of the original that have no file of their own here: the names of all of them are this package's.
_PLACES = ("nn", "loss", "sequence_lod", "metric_op", "device", "utils", "distributions")
#: Modules of the original that have a file, which holds a part of what the original's does.
_PARTS = (control_flow, detection, io, learning_rate_scheduler, ops, rnn, tensor)

globals().update(_collected())
for _part in _PARTS:
    _part.__getattr__ = elsewhere(__name__)  # type: ignore[method-assign]
globals().update(places(__name__, dict.fromkeys(_PLACES, __name__)))
__getattr__ = missing("fluid.layers", lambda: globals())
