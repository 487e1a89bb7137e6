"""nn: layers of PaddlePaddle 2.x over the same ops, in static mode."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.fluid.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from pe_cli.paddle.fluid.layers import BeamSearchDecoder, dynamic_decode
from pe_cli.paddle.nn import (
    attention,
    containers,
    functional,
    initializer,
    layer,
    made,
    norm,
    parametric,
    rnn,
    rnn_cells,
    transformer,
    utils,
)
from pe_cli.paddle.reference_names import missing

#: What is fluid's, too.
_SAME = (ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue, BeamSearchDecoder, dynamic_decode)


def _collected() -> dict[str, Any]:
    modules = (layer, containers, made, parametric, norm, attention, transformer, rnn, rnn_cells)
    same = {one.__name__.replace("GradientClip", "ClipGrad"): one for one in _SAME}
    own = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {"functional": functional, "initializer": initializer, "utils": utils, **same, **own}


globals().update(_collected())
__getattr__ = missing("paddle.nn", lambda: globals())
