"""fluid.layers: the core's catalogue, and what scripts of the original call beside it.

A name of the core's catalogue goes before one of the modules here: when the core learns a layer, that one is used.
"""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.registry import discover
from pe_cli.optim.schedule import (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    noam_decay,
    piecewise_decay,
    polynomial_decay,
)
from pe_cli.paddle.fluid.layers import (
    catalogue,
    composed,
    control_flow,
    detection,
    fed_sizes,
    images,
    io,
    losses,
    lstm,
    ops,
    padding,
    printing,
    py_func,
    rnn,
    tensor,
)
from pe_cli.paddle.names import missing

_SCHEDULES = (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    noam_decay,
    piecewise_decay,
    polynomial_decay,
)
#: Layers that scripts call with more than the core's has: these go before the catalogue.
_WIDER = {
    "conv2d",
    "conv2d_transpose",
    "pool2d",
    "data",
    "assign",
    "topk",
    "affine_grid",
    "auc",
    "center_loss",
    "box_coder",
    "gaussian_random",
    "randperm",
    "cross_entropy",
    "stack",
    "fill_constant",
    "reduce_mean",
    "scale",
    "create_parameter",
    "lstm",
    "isfinite",
    "fill_constant_batch_size_like",
    *ops.__all__,
}


def _collected() -> dict[str, Any]:
    found: dict[str, Any] = {f.__name__: f for f in _SCHEDULES}
    for module in (composed, control_flow, detection, fed_sizes, images, io, losses, lstm, ops, padding, printing, py_func, rnn, tensor):
        found |= {name.rstrip("_"): getattr(module, name) for name in module.__all__}
    core = {name: catalogue.adapt(definition) for name, definition in discover().items()}
    return {**found, **{name: fn for name, fn in core.items() if name not in _WIDER or name not in found}}


globals().update(_collected())

__getattr__ = missing("fluid.layers", lambda: globals())
