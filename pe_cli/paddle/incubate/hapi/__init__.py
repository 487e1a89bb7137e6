"""Where 1.8 has what later versions have in `paddle.io` and `paddle.vision`."""

from __future__ import annotations

from pe_cli.paddle.incubate.hapi import distributed, vision

__all__ = ["distributed", "vision"]
