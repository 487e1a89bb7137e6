"""nn: layers of PaddlePaddle 2.x over the same ops, in static mode."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.names import missing
from pe_cli.paddle.nn import attention, containers, functional, layer, made, norm, parametric, rnn, transformer


def _collected() -> dict[str, Any]:
    modules = (layer, containers, made, parametric, norm, attention, transformer, rnn)
    return {"functional": functional, **{name: getattr(module, name) for module in modules for name in module.__all__}}


globals().update(_collected())
__getattr__ = missing("paddle.nn", lambda: globals())
