"""nn: layers of PaddlePaddle 2.x over the same ops, in static mode."""

from __future__ import annotations

from pe_cli.paddle.names import missing
from pe_cli.paddle.nn import functional

__all__ = ["functional"]
__getattr__ = missing("paddle.nn", lambda: globals())
