"""nn.functional: layers of PaddlePaddle 2.x without parameters of their own, on static variables."""

from __future__ import annotations

from functools import partial
from typing import Any

from pe_cli.layers.define.registry import discover
from pe_cli.paddle import names_v2
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.layers import catalogue, composed
from pe_cli.paddle.forwarding import declared, table
from pe_cli.paddle.nn.functional import (
    activation,
    common,
    conv,
    later_layers,
    later_losses,
    loss,
    pooling,
    transducer,
    vision,
)
from pe_cli.paddle.reference_names import missing

#: fluid's layers whose arguments are 2.x's, too.
SAME = (
    "diag_embed", "dice_loss", "gather_tree", "log_loss", "npair_loss",
    "sequence_mask", "softmax_with_cross_entropy", "square_error_cost", "temporal_shift",
)  # fmt: skip

#: Functions with `_` behind their names, which return a new tensor, as in 2.6's static mode.
IN_PLACE = {
    "hardtanh_": ("hardtanh", "x min=-1.0 max=1.0 name", "Return `hardtanh(x, min, max)`."),
    "leaky_relu_": ("leaky_relu", "x negative_slope=0.01 name", "Return `leaky_relu(x, negative_slope)`."),
    "tanh_": ("tanh", "x name", "Return `tanh(x)`."),
    "thresholded_relu_": ("thresholded_relu", "x threshold=1.0 name", "Return `thresholded_relu(x, threshold)`."),
}


def _collected() -> dict[str, Any]:
    found = {
        name: raised_as(FluidValueError)(getattr(module, name))
        for module in (activation, common, conv, loss, pooling, vision, later_losses, later_layers, transducer)
        for name in module.__all__
    }
    rows = table(declared("nn.functional"), lambda layer: partial(composed.call, layer))
    ours = {name: raised_as(FluidValueError)(function) for name, function in rows.items()}
    core = discover()
    same = {name: catalogue.adapt(core[name]) for name in SAME}
    made = {**ours, **found, **same, "tanh": partial(composed.call, "tanh")}
    in_place = table(IN_PLACE, lambda name: made[name])
    return names_v2.with_names({**ours, **found, **same, **in_place})


globals().update(_collected())
__getattr__ = missing("paddle.nn.functional", lambda: globals())
