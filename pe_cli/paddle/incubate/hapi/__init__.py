"""Where 1.8 has what later versions have in `paddle.io` and `paddle.vision`."""

from __future__ import annotations

from pe_cli.paddle.incubate.hapi import vision
from pe_cli.paddle.names import places

globals().update(places(__name__, {"distributed": "pe_cli.paddle.io"}))
__all__ = ["distributed", "vision"]
