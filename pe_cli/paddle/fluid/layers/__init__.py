"""fluid.layers: the core's catalogue, and what scripts of the original call beside it.

A name of the core's catalogue goes before one of the modules here: when the core learns a layer, that one is used.
"""

from __future__ import annotations

import inspect
from typing import Any

from pe_cli.layers.define.registry import discover
from pe_cli.paddle.fluid.layers import (
    beams,
    catalogue,
    composed,
    control_flow,
    decoding,
    detection,
    detection_nms,
    detection_proposals,
    distributions,
    dynamic_rnn,
    dynamic_rows,
    dynamic_sizes,
    extensions,
    files,
    io,
    losses,
    lstm,
    ops,
    padding,
    printing,
    py_func,
    ranges,
    resizing,
    rnn,
    schedules,
    tensor,
    v1_8_functions,
    volumes,
)
from pe_cli.paddle.reference_names import missing

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
    "sequence_unpad",
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
    *v1_8_functions.__all__,
    *dynamic_rows.__all__,
    *ops.__all__,
    *schedules.__all__,
    *extensions.__all__,
}
#: Where the names are that the core's catalogue lacks, or has with less.
_MODULES = (
    beams, composed, control_flow, ranges, decoding, detection, detection_nms, detection_proposals, distributions, dynamic_rnn,
    v1_8_functions, dynamic_sizes, files, io, dynamic_rows, losses, lstm, ops, padding,
    printing, py_func, resizing, rnn, schedules, tensor, volumes, extensions,
)  # fmt: skip


def _collected() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in _MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            found[name.rstrip("_")] = catalogue.called(value) if inspect.isfunction(value) else value
    core = {name: catalogue.adapt(definition) for name, definition in discover().items()}
    return {**found, **{name: fn for name, fn in core.items() if name not in _WIDER or name not in found}}


def _at_home(layers: dict[str, Any]) -> dict[str, Any]:
    """Return layers that say this module and their name here: PaddleDetection looks its operators up by these."""
    seen: set[int] = set()
    for name, fn in layers.items():
        # A layer with a second name keeps the first; only what was wrapped for this module is changed.
        if inspect.isfunction(fn) and hasattr(fn, "__wrapped__") and id(fn) not in seen:
            fn.__module__, fn.__name__, fn.__qualname__ = __name__, name, name
            seen.add(id(fn))
    return layers


globals().update(_at_home(_collected()))
__getattr__ = missing("fluid.layers", lambda: globals())
